"""A report as JSON, schema 1 (docs/compare.schema.json). Numbers that do not exist are null, never NaN."""

import math
from datetime import datetime
from typing import Any

from quantwatch import __version__
from quantwatch.flow.divergence import Divergence, Estimate
from quantwatch.flow.identity import Identity
from quantwatch.flow.report import Report, SetReport, TargetReport
from quantwatch.flow.verdict import Finding
from quantwatch.flows.plan import Plan


def report_json(report: Report, *, plan: dict[str, Any], started_at: datetime) -> dict[str, Any]:
    """The whole report, ready for json.dumps."""
    return {
        "schema": 1,
        "quantwatch": __version__,
        "started_at": started_at.isoformat(timespec="seconds"),
        "plan": plan,
        "complete": report.complete,
        "baseline": {**_identity(report.baseline), "trouble": report.trouble},
        "targets": [_target(target) for target in report.targets],
    }


def _target(target: TargetReport) -> dict[str, Any]:
    return {
        "target": target.target,
        "identity": _identity(target.identity),
        "quality": target.quality.value,
        "reasons": list(target.reasons),
        "misconfigured": target.misconfigured,
        "notes": list(target.notes),
        "task_sets": [_task_set(one) for one in target.task_sets],
    }


def _identity(identity: Identity | None) -> dict[str, Any]:
    fields = ("name", "url", "model", "root", "max_model_len", "version", "started", "tokenizer")
    return {name: getattr(identity, name, None) for name in fields}


def plan_json(plan: Plan, scheme: str) -> dict[str, Any]:
    """What was asked for, as far as it is needed to repeat or compare a result."""
    return {
        "scheme": scheme,
        "positions": plan.scope.value,
        "continuation_tokens": plan.continuation_tokens,
        "one_token_positions": plan.positions,
        "k": plan.k,
        "seed": plan.seed,
    }


def _task_set(one: SetReport) -> dict[str, Any]:
    seen = one.observation
    return {
        "name": one.name,
        "pool": one.pool,
        "prompts": seen.measured,
        "drawn": seen.drawn,
        "seed": one.seed,
        "k": one.k,
        "mode": one.mode.value,
        **_numbers(one.divergence),
        "corrupted_positions": _corrupted(one),
        "verdict": one.verdict.quality.value,
        "reasons": list(one.verdict.reasons),
        "findings": [_finding(finding) for finding in one.verdict.findings],
        "missing": [
            {"prompt": m.prompt_id, "draws": m.weight, "quality": m.quality.value, "reason": m.reason}
            for m in seen.missing
        ],
        "probe_seconds_baseline": one.seconds_baseline,
        "probe_seconds_node": one.seconds_node,
    }


def _corrupted(one: SetReport) -> int:
    """Marked positions; where the server could not even write its numbers, at least one."""
    marked = one.divergence.corrupted_positions if one.divergence is not None else 0
    return max(marked, int(one.observation.corruption is not None))


def _numbers(divergence: Divergence | None) -> dict[str, Any]:
    if divergence is None:
        return dict.fromkeys(NUMBERS)
    d = divergence
    values = (
        d.distinct_prompts,
        d.positions,
        d.estimator.value,
        d.evidence.value,
        _number(d.kl_mean.value),
        _interval(d.kl_mean),
        _number(d.kl_median),
        _number(d.kl_p99.value),
        _interval(d.kl_p99),
        _number(d.kl_max),
        _number(d.perplexity_baseline),
        _number(d.perplexity_node),
        _number(d.perplexity_ratio.value),
        _interval(d.perplexity_ratio),
        _number(d.top1_agreement.value),
        _interval(d.top1_agreement),
        _number(d.tail_mass_baseline),
        _number(d.tail_mass_node),
        _number(d.coverage),
        d.uninformative_positions,
    )
    return dict(zip(NUMBERS, values, strict=True))


NUMBERS = (
    "distinct_prompts",
    "positions",
    "estimator",
    "evidence",
    "kl_mean",
    "kl_interval",
    "kl_median",
    "kl_p99",
    "kl_p99_interval",
    "kl_max",
    "perplexity_baseline",
    "perplexity_node",
    "perplexity_ratio",
    "perplexity_ratio_interval",
    "top1_agreement",
    "top1_interval",
    "tail_mass",
    "tail_mass_node",
    "coverage",
    "uninformative_positions",
)


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "metric": finding.metric.value,
        "value": _number(finding.value),
        "warn": finding.limit.warn,
        "critical": finding.limit.critical,
        "verdict": finding.quality.value,
        "reason": finding.reason,
    }


def _interval(estimate: Estimate) -> list[float | None] | None:
    if estimate.interval is None:
        return None
    return [_number(estimate.interval.low), _number(estimate.interval.high)]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
