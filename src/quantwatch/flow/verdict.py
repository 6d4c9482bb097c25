"""Qualities, findings and verdicts: what was decided and by which numbers."""

from dataclasses import dataclass
from enum import StrEnum


class Quality(StrEnum):
    """The quality axis of a target and a task set (measurement design, section 5)."""

    OK = "ok"
    WARN = "warn"
    DEGRADED = "degraded"
    CORRUPTED = "corrupted"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


CANNOT_TELL = frozenset({Quality.INCONCLUSIVE, Quality.INVALID, Quality.UNKNOWN, Quality.SKIPPED})
BREACHES = frozenset({Quality.DEGRADED, Quality.CORRUPTED})
GOOD = frozenset({Quality.OK, Quality.WARN})

_SEVERITY = {
    Quality.CORRUPTED: 7,
    Quality.DEGRADED: 6,
    Quality.INVALID: 5,
    Quality.UNKNOWN: 4,
    Quality.INCONCLUSIVE: 3,
    Quality.SKIPPED: 2,
    Quality.WARN: 1,
    Quality.OK: 0,
}


def worst(qualities: "list[Quality]") -> Quality:
    """Return the quality that stands for several: corrupted > degraded > cannot tell > warn > ok.

    Of nothing at all nothing is known, so an empty list is UNKNOWN, never OK.
    """
    return max(qualities, key=_SEVERITY.__getitem__, default=Quality.UNKNOWN)


def severity(quality: Quality) -> int:
    """A number by which qualities are put in order; the worst has the highest."""
    return _SEVERITY[quality]


class Metric(StrEnum):
    """The numbers that carry limits."""

    KL_MEAN = "kl_mean"
    KL_P99 = "kl_p99"
    PERPLEXITY_RATIO = "perplexity_ratio"
    TOP1_AGREEMENT = "top1_agreement"


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided confidence interval; level 0.95 means 95 %."""

    low: float
    high: float
    level: float = 0.95


@dataclass(frozen=True, slots=True)
class Limit:
    """Where a metric starts to warn and where it becomes critical; None switches a level off."""

    warn: float | None = None
    critical: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One metric held against its limit, with the sentence that explains the outcome.

    part: the slice it is about (`language zh`), None for the whole task set. needed: prompts of the whole
    draw that would decide what this one could not; None where none is needed or none that anybody would ask is enough.
    """

    metric: Metric
    quality: Quality
    value: float
    interval: Interval | None
    limit: Limit
    reason: str
    part: str | None = None
    needed: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided about one target on one task set, worst reason first."""

    quality: Quality
    reasons: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
