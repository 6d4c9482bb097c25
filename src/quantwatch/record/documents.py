"""Nouns -> rows and documents of the store, and back."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from quantwatch.errors import StoreError
from quantwatch.flow.as_json import identity_json, json_number, load_json, load_of, set_json
from quantwatch.flow.decision import Action, Decision, Intent, Order, Origin, Outcome
from quantwatch.flow.load import Load
from quantwatch.flow.run import RunRecord
from quantwatch.flow.verdict import Finding, Interval, Limit, Metric, Quality

SCHEMA = 1
"""Version of the documents; theirs, not the tables'."""

PLAIN = (
    "kl_median",
    "kl_max",
    "perplexity_baseline",
    "perplexity_node",
    "tail_mass",
    "tail_mass_node",
    "coverage",
)
"""Numbers of a report without interval or limit."""

INTERVALS = {
    Metric.KL_MEAN: "kl_interval",
    Metric.KL_P99: "kl_p99_interval",
    Metric.PERPLEXITY_RATIO: "perplexity_ratio_interval",
    Metric.TOP1_AGREEMENT: "top1_interval",
}


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as the store gives it back. document: everything, in the form of run_json."""

    id: str
    target: str
    task_set: str
    started: datetime
    seconds: float
    quality: Quality
    reason: str
    document: Mapping[str, Any]

    @property
    def ended(self) -> datetime:
        """When it was over."""
        return self.started + timedelta(seconds=self.seconds)

    @property
    def numbers(self) -> Mapping[str, Any]:
        """Its report in the form of flow/as_json.set_json; empty where nothing could be asked."""
        return self.document.get("report") or {}

    @property
    def loads(self) -> tuple[Load | None, Load | None]:
        """How busy the target was before and after; None where it did not tell, or an older version wrote the run."""
        return load_of(self.document.get("load_before")), load_of(self.document.get("load_after"))


def run_json(record: RunRecord) -> dict[str, Any]:
    """A whole run, ready for json.dumps. Holds ids of prompts, never their text."""
    return {
        "schema": SCHEMA,
        "id": record.id,
        "target": record.target,
        "task_set": record.task_set,
        "pool": record.pool,
        "trigger": record.trigger.value,
        "started": record.started.isoformat(timespec="milliseconds"),
        "seconds": record.seconds if math.isfinite(record.seconds) else None,
        "quality": record.quality.value,
        "reason": record.reason,
        "basis": record.basis,
        "limits": record.limits,
        "baseline": None if record.baseline is None else identity_json(record.baseline),
        "node": None if record.node is None else identity_json(record.node),
        "load_before": load_json(record.load_before),
        "load_after": load_json(record.load_after),
        "report": None if record.report is None else set_json(record.report),
    }


def run_row(record: RunRecord) -> dict[str, Any]:
    """The row of a run."""
    names = ("id", "target", "task_set", "pool", "trigger", "started", "quality", "reason", "basis", "limits")
    measured = record.report is not None and record.report.divergence is not None
    seconds = record.seconds if math.isfinite(record.seconds) else 0.0
    row = {name: getattr(record, name) for name in names}
    return {**row, "seconds": seconds, "measured": measured, "document": run_json(record)}


def number_rows(run: str, report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row for each number of a run. report: in the form of set_json."""
    held = {finding["metric"]: finding for finding in report["findings"]}
    for metric, interval in INTERVALS.items():
        low, high = report[interval] or (None, None)
        limit = held.get(metric.value, {})
        yield {
            **{name: limit.get(name) for name in ("warn", "critical")},
            "quality": Quality(limit["verdict"]) if limit else None,
            "run": run,
            "metric": metric.value,
            "value": report[metric.value],
            "low": low,
            "high": high,
        }
    for name in PLAIN:
        empty = dict.fromkeys(("low", "high", "warn", "critical", "quality"))
        yield {**empty, "run": run, "metric": name, "value": report[name]}


def decision_row(decision: Decision) -> dict[str, Any]:
    """The row of a decision with everything that decided."""
    wish = decision.wish
    names = ("action", "target", "pool", "reason", "lane", "task_set", "run")
    return {
        "id": decision.id,
        "at": decision.at,
        **{name: getattr(wish, name) for name in names},
        "mode": decision.mode,
        "ruling": decision.ruling,
        "objections": [{"brake": one.brake.value, "reason": one.reason} for one in decision.objections],
        "findings": [finding_json(finding) for finding in wish.findings],
        "author": decision.author,
        "origin": decision.origin,
    }


def intent_row(intent: Intent) -> dict[str, Any]:
    """The row of an intent; its outcome as well where it has one already."""
    order = intent.order
    return {
        "decision": order.decision,
        "target": order.target,
        "pool": order.pool,
        "action": order.action,
        "opened": intent.opened,
        "attempts": intent.attempts,
        "sent": order_json(order),
        **(outcome_row(intent.outcome) if intent.outcome is not None else {}),
    }


def outcome_row(outcome: Outcome) -> dict[str, Any]:
    """The columns of an intent that its outcome fills."""
    return {
        "result": outcome.result,
        "detail": outcome.detail,
        "settled": outcome.at,
        "settled_attempts": outcome.attempts,
        "doubt": outcome.doubt,
    }


def intent_of(row: Mapping[str, Any]) -> Intent:
    """The intent of a row. Raises StoreError for a document that holds no order."""
    outcome = None
    if row["result"] is not None:
        outcome = Outcome(
            result=row["result"],
            detail=row["detail"] or "",
            at=row["settled"],
            attempts=row["settled_attempts"],
            doubt=bool(row["doubt"]),
        )
    return Intent(order_of(row["sent"]), row["opened"], row["attempts"], outcome)


def order_json(order: Order) -> dict[str, Any]:
    """An order, ready for json.dumps."""
    plain = {field.name: getattr(order, field.name) for field in dataclasses.fields(order)}
    chosen = {"action": order.action.value, "origin": order.origin.value}
    if order.rung is None:
        del plain["rung"]  # as it was written before there were ladders
    return {**plain, **chosen, "evidence": [finding_json(one) for one in order.evidence]}


def order_of(document: Mapping[str, Any]) -> Order:
    """The order of a document. Raises StoreError when it holds none."""
    try:
        evidence = tuple(finding_of(one) for one in document["evidence"])
        origin = Origin(document.get("origin", Origin.VERDICTS))  # not written before version 2 of the tables
        return Order(**{**document, "action": Action(document["action"]), "origin": origin, "evidence": evidence})
    except (KeyError, TypeError, ValueError):
        raise StoreError("the store holds an order that cannot be read; `quantwatch store check` tells more") from None


def finding_json(finding: Finding) -> dict[str, Any]:
    """A finding with its interval; a number that is not finite is null."""
    interval = finding.interval
    ends = None if interval is None else [json_number(interval.low), json_number(interval.high), interval.level]
    return {
        "metric": finding.metric.value,
        "part": finding.part,
        "value": json_number(finding.value),
        "interval": ends,
        "warn": finding.limit.warn,
        "critical": finding.limit.critical,
        "verdict": finding.quality.value,
        "reason": finding.reason,
    }


def finding_of(document: Mapping[str, Any]) -> Finding:
    """The finding of a document; null is NaN again. Raises KeyError, TypeError or ValueError when it holds none."""
    ends = document["interval"]
    interval = None if ends is None else Interval(_number(ends[0]), _number(ends[1]), ends[2])
    limit = Limit(document["warn"], document["critical"])
    value, quality = _number(document["value"]), Quality(document["verdict"])
    part = document.get("part")  # not written by versions before 0.2
    return Finding(Metric(document["metric"]), quality, value, interval, limit, document["reason"], part)


def findings_of(numbers: Mapping[str, Any]) -> tuple[Finding, ...]:
    """The findings of a report in the form of set_json, with their intervals; none where it holds none."""
    level, found = numbers.get("interval_level"), []
    for one in numbers.get("findings") or ():
        ends = None if one.get("part") is not None else numbers.get(INTERVALS[Metric(one["metric"])])
        interval = None if ends is None else [*ends, 0.95 if level is None else level]
        found.append(finding_of({**one, "interval": interval}))
    return tuple(found)


def _number(value: float | None) -> float:
    return math.nan if value is None else value
