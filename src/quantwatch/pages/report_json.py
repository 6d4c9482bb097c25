"""An incident, or a period, as JSON. Numbers that do not exist are null, never NaN."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from quantwatch.flow.as_json import json_number
from quantwatch.log import without_secrets
from quantwatch.pages.advice import Advice
from quantwatch.pages.incident import Event, Exchange, Incident, LeftOut, Number, Part, Period
from quantwatch.pages.tokens import Place, Prompt, TokenView, token_view
from quantwatch.record.as_json import decision_json
from quantwatch.record.cases import PairCount, Point
from quantwatch.record.decisions import StoredDecision

SCHEMA = 1


def incident_json(one: Incident) -> dict[str, Any]:
    """Everything of an incident, ready for json.dumps."""
    seen = None if one.tokens is None else token_view(one.tokens)
    return {
        **_head("incident", one.made, one.version),
        "subject": one.subject,
        "target": one.target,
        "task_set": one.task_set,
        "pool": one.pool,
        "quality": None if one.quality is None else one.quality.value,
        "reason": one.headline,
        "run": None if one.run is None else dict(one.run.document),
        "decisions": [decision_document(each) for each in one.decisions],
        "timeline": [event_json(each) for each in one.timeline],
        "left_out": _left_out(one.left_out),
        "numbers": [_number(each) for each in one.numbers],
        "slices": [_part(each) for each in one.parts],
        "runs": [point_json(each) for each in one.course],
        "last_good_run": None if one.sound is None else one.sound.id,
        "changed": [
            {"place": each.place, "factor": each.factor, "before": each.before, "after": each.after}
            for each in one.changed
        ],
        "gateway": [_exchange(each) for each in one.exchanges],
        "baseline": {
            "answers_kept": one.yardstick.answers,
            "first": _moment(one.yardstick.first),
            "last": _moment(one.yardstick.last),
            "doubts": list(one.yardstick.doubts),
        },
        "prompts_shown": one.shown.value,
        "tokens": None if seen is None else tokens_json(seen),
        "advice": [_advice(each) for each in one.advice],
    }


def period_json(one: Period) -> dict[str, Any]:
    """Everything of a period, ready for json.dumps."""
    return {
        **_head("period", one.made, one.version),
        "since": one.since.isoformat(),
        "until": one.until.isoformat(),
        "cut": bool(one.left_out),
        "left_out": _left_out(one.left_out),
        "breached": {"runs": one.breached, "targets": one.targets},
        "orders": {name: getattr(one.orders, name) for name in ("decisions", "done", "failed", "open")},
        "pairs": [_pair(each) for each in one.pairs],
        "decisions": [decision_document(each) for each in one.decisions],
        "breaches": [point_json(each) for each in one.breaches],
        "timeline": [event_json(each) for each in one.timeline],
    }


def decision_document(one: StoredDecision) -> dict[str, Any]:
    """A decision as `quantwatch show` writes it, with secrets in addresses masked."""
    whole = decision_json(one)
    for name in ("order", "outcome"):
        if whole[name] is not None:
            whole[name] = {key: without_secrets(v) if isinstance(v, str) else v for key, v in whole[name].items()}
    return whole


def tokens_json(seen: TokenView) -> dict[str, Any]:
    """What is kept of a run's tokens. Probabilities from 0 to 1, KL in nats."""
    return {"measured": seen.measured, "texts": seen.texts, "prompts": [_prompt(each) for each in seen.prompts]}


def event_json(one: Event) -> dict[str, Any]:
    """One line of a timeline."""
    return {
        "at": one.at.isoformat(),
        "kind": one.kind.value,
        "said": one.said,
        "by": one.by,
        "run": one.run,
        "decision": one.decision,
    }


def point_json(one: Point) -> dict[str, Any]:
    """A run with its mean KL in nats."""
    return {
        "id": one.id,
        "target": one.target,
        "task_set": one.task_set,
        "started": one.started.isoformat(),
        "quality": one.quality.value,
        "reason": one.reason,
        **{name: json_number(getattr(one, name)) for name in ("kl", "low", "high", "warn", "critical")},
    }


def _head(kind: str, made: datetime, version: str) -> dict[str, Any]:
    return {"schema": SCHEMA, "kind": kind, "made": made.isoformat(), "quantwatch": version}


def _number(one: Number) -> dict[str, Any]:
    names = ("value", "low", "high", "warn", "critical", "times")
    return {
        "metric": one.metric,
        "part": one.part,
        **{name: json_number(getattr(one, name)) for name in names},
        "verdict": None if one.verdict is None else one.verdict.value,
        "reason": one.reason,
    }


def _part(one: Part) -> dict[str, Any]:
    names = ("kl", "low", "high", "perplexity_ratio", "top1", "times")
    plain = {name: getattr(one, name) for name in ("dimension", "value", "prompts", "positions")}
    return {**plain, **{name: json_number(getattr(one, name)) for name in names}}


def _left_out(one: LeftOut) -> dict[str, int]:
    return {name: getattr(one, name) for name in ("runs", "breaches", "decisions", "changes")}


def _exchange(one: Exchange) -> dict[str, Any]:
    return {
        "decision": one.decision,
        "opened": one.opened.isoformat(),
        "attempts": one.attempts,
        "sent": dict(one.sent),
        "result": one.result,
        "detail": one.detail,
        "settled": _moment(one.settled),
        "doubt": one.doubt,
    }


def _advice(one: Advice) -> dict[str, Any]:
    return {
        "cause": one.cause.value,
        "title": one.remedy.title,
        "seen": one.seen,
        "steps": [{"said": each.said, "command": each.command} for each in one.remedy.steps],
        "runbook": one.runbook,
    }


def _pair(one: PairCount) -> dict[str, Any]:
    return {
        "target": one.target,
        "task_set": one.task_set,
        "runs": {quality.value: count for quality, count in one.runs},
        "breaches": one.breaches,
        "worst": None if one.worst is None else point_json(one.worst),
    }


def _prompt(one: Prompt) -> dict[str, Any]:
    return {
        "prompt": one.id,
        "mode": one.mode,
        "prompt_length": one.prompt_length,
        "kl_mean": one.kl_mean,
        "kl_max": one.kl_max,
        "tokens": [_place(each) for each in one.places],
    }


def _place(one: Place) -> dict[str, Any]:
    names = ("id", "text", "golden", "baseline", "node", "baseline_rank", "node_rank", "moved")
    choices: Sequence[dict[str, Any]] = [{name: getattr(each, name) for name in names} for each in one.choices]
    return {
        "position": one.position,
        "id": one.id,
        "text": one.text,
        "kl": one.kl,
        "mark": one.mark,
        "shifted": one.shifted,
        "choices": choices,
    }


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
