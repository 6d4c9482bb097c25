"""Holds one Divergence against its limits.

A critical limit is breached only when the whole interval lies beyond it; a value beyond it whose interval reaches back
is inconclusive. A warning is a notice on which nothing acts, so there the value decides. A census has no sampling
error, so there the value decides everywhere.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from quantwatch.flow.divergence import Divergence, Estimate, Evidence
from quantwatch.flow.verdict import Finding, Limit, Metric, Quality

LEAST_PROMPTS = 5
"""A draw with replacement can hold one prompt several times, and equal observations have no spread at all."""

MOST_PROMPTS = 1000
"""More prompts than anybody would ask; a value that close to its limit stays undecided."""

LABELS = {
    Metric.KL_MEAN: "mean KL",
    Metric.KL_P99: "p99 KL",
    Metric.PERPLEXITY_RATIO: "perplexity ratio",
    Metric.TOP1_AGREEMENT: "top-1 agreement",
}


def findings(divergence: Divergence, limits: Mapping[Metric, Limit]) -> tuple[Finding, ...]:
    """Hold every metric that carries a limit against it, in the order of Metric."""
    return tuple(
        _finding(metric, estimate_of(divergence, metric), limits[metric], divergence)
        for metric in Metric
        if metric in limits
    )


def estimate_of(divergence: Divergence, metric: Metric) -> Estimate:
    """The estimate that a metric names."""
    return {
        Metric.KL_MEAN: divergence.kl_mean,
        Metric.KL_P99: divergence.kl_p99,
        Metric.PERPLEXITY_RATIO: divergence.perplexity_ratio,
        Metric.TOP1_AGREEMENT: divergence.top1_agreement,
    }[metric]


@dataclass(frozen=True, slots=True)
class _Side:
    """A metric turned so that larger is worse; sign -1 for agreement, which is bad when it is small."""

    sign: int

    def beyond(self, value: float, limit: float) -> bool:
        return self.sign * value > self.sign * limit

    def near_end(self, estimate: Estimate) -> float:
        """The end of the interval that speaks for the node."""
        assert estimate.interval is not None  # noqa: S101, callers have checked; this is for the type checker
        return estimate.interval.low if self.sign > 0 else estimate.interval.high


def _finding(metric: Metric, estimate: Estimate, limit: Limit, divergence: Divergence) -> Finding:
    quality, reason = _held(metric, estimate, limit, divergence)
    return Finding(metric, quality, estimate.value, estimate.interval, limit, reason)


def _held(metric: Metric, estimate: Estimate, limit: Limit, divergence: Divergence) -> tuple[Quality, str]:
    label, value = LABELS[metric], estimate.value
    side = _Side(-1 if metric is Metric.TOP1_AGREEMENT else 1)
    if math.isnan(value):
        return Quality.INCONCLUSIVE, f"{label} could not be computed: no position was usable"
    word, shown = "under" if side.sign < 0 else "over", told(value, limit)
    if limit.critical is not None and side.beyond(value, limit.critical):
        said = f"{label} {shown} is {word} the critical limit {limit.critical:g}"
        return _critical(said, side, estimate, limit.critical, divergence)
    if limit.warn is not None and side.beyond(value, limit.warn):
        return Quality.WARN, f"{label} {shown} is {word} the warning limit {limit.warn:g}"
    return Quality.OK, f"{label} {shown} is within its limits"


def _critical(
    said: str, side: _Side, estimate: Estimate, critical: float, divergence: Divergence
) -> tuple[Quality, str]:
    if divergence.evidence is Evidence.CENSUS:
        return Quality.DEGRADED, said
    few, interval = _too_few(estimate, divergence), estimate.interval
    if few is not None or interval is None:
        return Quality.INCONCLUSIVE, f"{said}, but {few}"
    near = side.near_end(estimate)
    level = f"{interval.level:.0%} interval"
    if side.beyond(near, critical):
        return (
            Quality.DEGRADED,
            f"{said}, and so is its whole {level} ({'up to' if side.sign < 0 else 'from'} {near:.4g})",
        )
    said = f"{said}, but its {level} reaches back to {near:.4g}"
    return Quality.INCONCLUSIVE, f"{said}{_more(estimate, critical, divergence.prompts)}"


def _too_few(estimate: Estimate, divergence: Divergence) -> str | None:
    """Why the draw is too small to prove anything, or None."""
    if divergence.distinct_prompts < LEAST_PROMPTS:
        return f"on {divergence.distinct_prompts} different prompts; {LEAST_PROMPTS} are the least for a verdict"
    if estimate.interval is None:
        return f"{divergence.prompts} prompts are too few for an interval"
    return None


def _more(estimate: Estimate, critical: float, prompts: int) -> str:
    """How many prompts would decide, where anybody would ask that many."""
    assert estimate.interval is not None  # noqa: S101, callers have checked; this is for the type checker
    if not math.isfinite(estimate.interval.high - estimate.interval.low):
        return ""
    needed = prompts_to_decide(estimate, critical, prompts)
    if needed > MOST_PROMPTS:
        return "; it is too close to the limit for more prompts to decide"
    return f"; about {needed} prompts would decide"


def told(value: float, limit: Limit) -> str:
    """A value for a sentence: four digits, or as many as it takes not to look equal to a limit."""
    ends = [end for end in (limit.warn, limit.critical) if end is not None and end != value]
    texts = (f"{value:.{digits}g}" for digits in range(4, 18))  # 17 digits give a float back exactly
    return next(text for text in texts if float(text) not in ends)


def prompts_to_decide(estimate: Estimate, limit: float, prompts: int) -> int:
    """How many prompts would bring the interval clear of the limit, if value and spread stay as they are.

    The half-width shrinks with the square root of the number of prompts.
    """
    assert estimate.interval is not None  # noqa: S101, callers have checked; this is for the type checker
    half = (estimate.interval.high - estimate.interval.low) / 2
    distance = max(abs(estimate.value - limit), 1e-9)
    return max(prompts + 1, math.ceil(prompts * (half / distance) ** 2))
