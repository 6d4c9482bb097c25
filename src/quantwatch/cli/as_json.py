"""A report as JSON, schema 1 (docs/compare.schema.json). Numbers that do not exist are null, never NaN."""

import math
from typing import Any

from quantwatch.flow.divergence import Divergence, Estimate
from quantwatch.flow.identity import Identity
from quantwatch.flow.report import Report, SetReport, TargetReport
from quantwatch.flow.verdict import Finding


def report_json(report: Report) -> dict[str, Any]:
    """The whole report, ready for json.dumps."""
    return {
        "schema": 1,
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
        "task_sets": [_task_set(one) for one in target.task_sets],
    }


def _identity(identity: Identity | None) -> dict[str, Any]:
    fields = ("name", "url", "model", "root", "max_model_len", "version", "started", "tokenizer")
    return {name: getattr(identity, name, None) for name in fields}


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
    """Marked positions; a reply that the server could not even write counts as one."""
    refused = sum(1 for missing in one.observation.missing if missing.quality.value == "corrupted")
    return refused + (one.divergence.corrupted_positions if one.divergence is not None else 0)


def _numbers(divergence: Divergence | None) -> dict[str, Any]:
    if divergence is None:
        return dict.fromkeys(NUMBERS)
    d = divergence
    values = (
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
