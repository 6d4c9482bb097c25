"""Holds one Divergence against its limits.

A critical limit is breached only when the whole interval lies beyond it; a value beyond it whose interval reaches back
is inconclusive. A warning is a notice on which nothing acts, so there the value decides. A census has no sampling
error, so there the value decides everywhere.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from quantwatch.flow.divergence import NOTHING, Dimension, Divergence, Estimate, Evidence, Slice
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


Limits = Mapping[Metric, Limit]
Part = tuple[Dimension, str]


def findings(divergence: Divergence, limits: Limits, parts: Mapping[Part, Limits] | None = None) -> tuple[Finding, ...]:
    """Hold every metric that carries a limit against it, in the order of Metric; then those of the parts.

    parts: limits by dimension and value; a part that the draw does not hold has no finding.
    """
    found = [_finding(metric, divergence, limits[metric], whole=divergence) for metric in _in_order(limits)]
    for one in divergence.slices:
        own = (parts or {}).get((one.dimension, one.value), {})
        found += [_finding(metric, one, own[metric], whole=divergence) for metric in _in_order(own)]
    return tuple(found)


def _in_order(limits: Limits) -> list[Metric]:
    return [metric for metric in Metric if metric in limits]


def estimate_of(numbers: Divergence | Slice, metric: Metric) -> Estimate:
    """The estimate that a metric names; a slice has none of kl_p99."""
    estimate: Estimate = getattr(numbers, metric.value, NOTHING)
    return estimate


def name_of(finding: Finding) -> str:
    """How messages call what a finding is about: `mean KL`, `mean KL of language zh`."""
    return LABELS[finding.metric] if finding.part is None else f"{LABELS[finding.metric]} of {finding.part}"


@dataclass(frozen=True, slots=True)
class _Draw:
    """What a number was measured on."""

    evidence: Evidence
    prompts: int
    distinct: int


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


def _finding(metric: Metric, numbers: Divergence | Slice, limit: Limit, *, whole: Divergence) -> Finding:
    estimate = estimate_of(numbers, metric)
    draw = _Draw(whole.evidence, numbers.prompts, numbers.distinct_prompts)
    part = numbers.name if isinstance(numbers, Slice) else None
    finding = Finding(metric, Quality.OK, estimate.value, estimate.interval, limit, "", part)
    quality, reason = _held(finding, draw)
    finding = replace(finding, quality=quality, reason=reason)
    share = whole.prompts / max(numbers.prompts, 1)
    return replace(finding, needed=_needed(finding, draw, share=share))


def _needed(finding: Finding, draw: "_Draw", *, share: float) -> int | None:
    """Prompts of the whole draw that would decide. share: prompts of the draw for each that the part holds."""
    critical = finding.limit.critical
    if finding.quality is not Quality.INCONCLUSIVE or critical is None or math.isnan(finding.value):
        return None
    estimate = Estimate(finding.value, finding.interval)
    if _too_few(estimate, draw) is not None:
        return math.ceil((draw.prompts + 1) * share)
    if not _finite(estimate):
        return None
    needed = prompts_to_decide(estimate, critical, draw.prompts)
    return math.ceil(needed * share) if needed <= MOST_PROMPTS else None


def _held(finding: Finding, draw: "_Draw") -> tuple[Quality, str]:
    metric, limit, estimate = finding.metric, finding.limit, Estimate(finding.value, finding.interval)
    label, value = name_of(finding), finding.value
    side = _Side(-1 if metric is Metric.TOP1_AGREEMENT else 1)
    if math.isnan(value):
        return Quality.INCONCLUSIVE, f"{label} could not be computed: no position was usable"
    word, shown = "under" if side.sign < 0 else "over", told(value, limit)
    if limit.critical is not None and side.beyond(value, limit.critical):
        said = f"{label} {shown} is {word} the critical limit {limit.critical:g}"
        return _critical(said, side, estimate, limit.critical, draw)
    if limit.warn is not None and side.beyond(value, limit.warn):
        return Quality.WARN, f"{label} {shown} is {word} the warning limit {limit.warn:g}"
    return Quality.OK, f"{label} {shown} is within its limits"


def _critical(said: str, side: _Side, estimate: Estimate, critical: float, draw: _Draw) -> tuple[Quality, str]:
    if draw.evidence is Evidence.CENSUS:
        return Quality.DEGRADED, said
    few, interval = _too_few(estimate, draw), estimate.interval
    if few is not None or interval is None:
        return Quality.INCONCLUSIVE, f"{said}, but {few}"
    near = side.near_end(estimate)
    level = f"{percent(interval.level)} interval"
    if side.beyond(near, critical):
        return (
            Quality.DEGRADED,
            f"{said}, and so is its whole {level} ({'up to' if side.sign < 0 else 'from'} {near:.4g})",
        )
    said = f"{said}, but its {level} reaches back to {near:.4g}"
    return Quality.INCONCLUSIVE, f"{said}{_more(estimate, critical, draw.prompts)}"


def _too_few(estimate: Estimate, draw: _Draw) -> str | None:
    """Why the draw is too small to prove anything, or None."""
    if draw.distinct < LEAST_PROMPTS:
        return f"on {draw.distinct} different prompts; {LEAST_PROMPTS} are the least for a verdict"
    if estimate.interval is None:
        return f"{draw.prompts} prompts are too few for an interval"
    return None


def _more(estimate: Estimate, critical: float, prompts: int) -> str:
    """How many prompts would decide, where anybody would ask that many."""
    if not _finite(estimate):
        return ""
    needed = prompts_to_decide(estimate, critical, prompts)
    if needed > MOST_PROMPTS:
        return "; it is too close to the limit for more prompts to decide"
    return f"; about {needed} prompts would decide"


def _finite(estimate: Estimate) -> bool:
    """Whether the interval has a width that can be reckoned with."""
    return estimate.interval is not None and math.isfinite(estimate.interval.high - estimate.interval.low)


def percent(level: float) -> str:
    """A confidence level for a sentence: 95 %, 99.58 %."""
    return f"{100 * level:.4g} %"


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
