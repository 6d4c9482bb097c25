"""A report as JSON, schema 1 (docs/compare.schema.json). Numbers that do not exist are null, never NaN."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from quantwatch import __version__
from quantwatch.flow.canary import Canary
from quantwatch.flow.divergence import Divergence, Estimate, Slice
from quantwatch.flow.handshake import Handshake
from quantwatch.flow.identity import Identity
from quantwatch.flow.load import Load
from quantwatch.flow.report import Report, SetReport, TargetReport
from quantwatch.flow.verdict import Finding


def report_json(report: Report, *, plan: dict[str, Any], started_at: datetime) -> dict[str, Any]:
    """The whole report, ready for json.dumps."""
    return {
        "schema": 1,
        "quantwatch": __version__,
        "started_at": started_at.isoformat(timespec="seconds"),
        "plan": plan,
        "complete": report.complete,
        "baseline": {**identity_json(report.baseline), "trouble": report.trouble},
        "targets": [target_json(target) for target in report.targets],
    }


def target_json(target: TargetReport) -> dict[str, Any]:
    """One target with its task sets."""
    return {
        "target": target.target,
        "identity": identity_json(target.identity),
        "quality": target.quality.value,
        "reasons": list(target.reasons),
        "misconfigured": target.misconfigured,
        "notes": list(target.notes),
        "task_sets": [set_json(one) for one in target.task_sets],
    }


def identity_json(identity: Identity | None) -> dict[str, Any]:
    """Who a server says it is; null where it does not say."""
    fields = ("name", "url", "model", "root", "max_model_len", "version", "started", "tokenizer")
    return {name: getattr(identity, name, None) for name in fields}


def handshakes_json(found: Sequence[Handshake]) -> dict[str, Any]:
    """Handshakes of several servers; ok is null where it cannot be told."""
    return {
        "schema": 1,
        "quantwatch": __version__,
        "comparable": all(one.ok for one in found),
        "servers": [handshake_json(one) for one in found],
    }


def handshake_json(one: Handshake) -> dict[str, Any]:
    """One server's handshake, point by point."""
    return {
        "server": one.server,
        "ok": one.ok,
        "complete": one.complete,
        "tokens": one.tokens,
        "checks": [
            {"check": seen.point.value, "ok": seen.ok, "seen": seen.detail, "advice": seen.advice} for seen in one.seen
        ],
    }


LOAD = ("waiting", "running", "kv_usage", "started", "prompt_tokens", "generated_tokens")
"""What is written down of a load."""


def load_json(load: Load | None) -> dict[str, float | None] | None:
    """How busy a server was; null where it does not say. What it counts of its own numbers is there if it counts."""
    if load is None:
        return None
    values = {**{name: getattr(load, name) for name in LOAD}, **load.counted}
    return {name: json_number(value) for name, value in values.items()}


def load_of(document: Any) -> Load | None:
    """The load of a document of load_json; None where it holds none, as documents of older versions do."""
    if not isinstance(document, Mapping):
        return None

    def number(name: str) -> float | None:
        value = document.get(name)
        return float(value) if isinstance(value, int | float) else None

    return Load(
        waiting=number("waiting") or 0.0,
        kv_usage=number("kv_usage") or 0.0,
        started=number("started"),
        running=number("running"),
        prompt_tokens=number("prompt_tokens"),
        generated_tokens=number("generated_tokens"),
        broken_rows=number("broken_rows"),
        runaway_rows=number("runaway_rows"),
        corrupted_requests=number("corrupted_requests"),
    )


def set_json(one: SetReport) -> dict[str, Any]:
    """One target on one task set."""
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
        "interval_level": _level(one.divergence),
        "slices": [_slice(part) for part in one.divergence.slices] if one.divergence is not None else [],
        "corrupted_positions": _corrupted(one),
        "canary": canary_json(seen.canary),
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


def _level(divergence: Divergence | None) -> float | None:
    """Two-sided level of every interval of the set."""
    interval = divergence.kl_mean.interval if divergence is not None else None
    return interval.level if interval is not None else None


def _slice(part: Slice) -> dict[str, Any]:
    return {
        "dimension": part.dimension.value,
        "value": part.value,
        "prompts": part.prompts,
        "distinct_prompts": part.distinct_prompts,
        "positions": part.positions,
        "kl_mean": json_number(part.kl_mean.value),
        "kl_interval": _interval(part.kl_mean),
        "perplexity_ratio": json_number(part.perplexity_ratio.value),
        "perplexity_ratio_interval": _interval(part.perplexity_ratio),
        "top1_agreement": json_number(part.top1_agreement.value),
        "top1_interval": _interval(part.top1_agreement),
    }


def canary_json(canary: Canary) -> dict[str, Any]:
    """Free answers that came, and what was odd about them and about the distributions."""
    signs = [
        {"sign": one.sign.value, "weight": one.weight.value, "prompt": one.prompt_id, "said": one.said}
        for one in canary.seen
    ]
    return {"answers": canary.answers, "structured": canary.structured, "signs": signs}


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
        json_number(d.kl_mean.value),
        _interval(d.kl_mean),
        json_number(d.kl_median),
        json_number(d.kl_p99.value),
        _interval(d.kl_p99),
        json_number(d.kl_max),
        json_number(d.perplexity_baseline),
        json_number(d.perplexity_node),
        json_number(d.perplexity_ratio.value),
        _interval(d.perplexity_ratio),
        json_number(d.logprob_delta.value),
        _interval(d.logprob_delta),
        json_number(d.top1_agreement.value),
        _interval(d.top1_agreement),
        json_number(d.topk_overlap),
        json_number(d.variation_low),
        json_number(d.variation_high),
        json_number(d.entropy_baseline),
        json_number(d.entropy_node),
        json_number(d.tail_mass_baseline),
        json_number(d.tail_mass_node),
        json_number(d.coverage),
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
    "logprob_delta",
    "logprob_delta_interval",
    "top1_agreement",
    "top1_interval",
    "topk_overlap",
    "variation_low",
    "variation_high",
    "entropy_baseline",
    "entropy_node",
    "tail_mass",
    "tail_mass_node",
    "coverage",
    "uninformative_positions",
)


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "metric": finding.metric.value,
        "part": finding.part,
        "value": json_number(finding.value),
        "warn": finding.limit.warn,
        "critical": finding.limit.critical,
        "verdict": finding.quality.value,
        "reason": finding.reason,
        "prompts_needed": finding.needed,
    }


def _interval(estimate: Estimate) -> list[float | None] | None:
    if estimate.interval is None:
        return None
    return [json_number(estimate.interval.low), json_number(estimate.interval.high)]


def json_number(value: float | None) -> float | None:
    """A number that JSON can write; null for NaN, infinities and what is not there."""
    return value if value is not None and math.isfinite(value) else None
