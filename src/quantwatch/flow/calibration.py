"""What a calibration found: levels of a healthy node, noise floors, and the limits that they suggest.

Every metric has a distance from "equal to the baseline", so that one rule serves all: KL itself in nats, the magnitude
of the logarithm of the perplexity ratio, and 1 - top-1 agreement. A larger distance is always worse.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from quantwatch.flow.divergence import Dimension, Estimate, Estimator
from quantwatch.flow.identity import Identity
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.verdict import Limit, Metric

BINS_A_DECADE = 6
LOWEST_DECADE, HIGHEST_DECADE = -7, 2
BINS = BINS_A_DECADE * (HIGHEST_DECADE - LOWEST_DECADE)
"""How KL values are counted: logarithmic bins from 1e-7 to 100 nats; what lies beyond an end counts in the last bin."""


class Noise(StrEnum):
    """A server held against itself: asked twice for the same sequence, the numbers should be the same.

    baseline: its answer and a second one. cold: two answers of the node, each without anything in its prefix cache.
    warm: a cold answer of the node and one that may use the prefix cache.
    """

    BASELINE = "baseline"
    COLD = "cold"
    WARM = "warm"


@dataclass(frozen=True, slots=True)
class Reach:
    """What one more run of the same node stays under, as distances (upper prediction bounds over the cycles).

    value: the run's number, but for value_chance. near: the end of its interval that a critical limit is held against,
    but for near_chance.
    """

    value: float
    near: float
    value_chance: float
    near_chance: float


@dataclass(frozen=True, slots=True)
class Level:
    """One metric of a node over several cycles.

    pooled: all cycles together, the interval over prompts. cycles: each by itself, as a run is judged. noise: the same
    metric of servers against themselves; what could not be measured is left out. reach: None under two cycles.
    """

    metric: Metric
    pooled: Estimate
    cycles: tuple[Estimate, ...]
    noise: Mapping[Noise, Estimate]
    reach: Reach | None = None


@dataclass(frozen=True, slots=True)
class PartLevels:
    """The levels of a part of a task set. prompts: different ones. cycles: those that had a position of the part."""

    dimension: Dimension
    value: str
    prompts: int
    positions: int
    cycles: int
    levels: tuple[Level, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """Limits for one metric, or None, and the reason for either."""

    level: Level
    limit: Limit | None
    reason: str


@dataclass(frozen=True, slots=True)
class PartProposals:
    """What is proposed for a part of a task set."""

    part: PartLevels
    proposals: tuple[Proposal, ...]

    @property
    def name(self) -> str:
        """How messages call it: `language zh`."""
        return f"{self.part.dimension} {self.part.value}"


@dataclass(frozen=True, slots=True)
class Spread:
    """How n KL values spread: counts by bin (BINS of them), how many are exactly 0, and three quantiles in nats."""

    name: str
    counts: tuple[int, ...]
    zeros: int
    median: float
    p99: float
    largest: float

    @property
    def total(self) -> int:
        """How many values were counted."""
        return self.zeros + sum(self.counts)


@dataclass(frozen=True, slots=True)
class Drift:
    """A metric then and now. beyond: how many times the distance is what it was; None from or to nothing.

    apart: the intervals do not meet, so the change is more than the draw of the prompts.
    """

    metric: Metric
    then: Estimate
    now: Estimate
    beyond: float | None
    apart: bool


@dataclass(frozen=True, slots=True)
class SetCalibration:
    """One target on one task set.

    draw: prompts a cycle. cycles: usable ones; unusable: why others were left out. prompts: different prompts.
    fault: why nothing of this node may become a limit. noise_trouble: why a server was not held against itself.
    basis: what must stay equal for levels to be compared. told_apart: whether the node's own counters show that warm
    answers used the prefix cache and cold ones did not. in_force: the limits of the configuration now. parts: empty
    unless they were wanted.
    """

    target: str
    scheme: str
    task_set: str
    pool: str
    mode: ProbeMode
    k: int
    estimator: Estimator | None
    draw: int
    cycles: int
    unusable: tuple[str, ...]
    fault: str | None
    noise_trouble: str | None
    prompts: int
    positions: int
    basis: str
    baseline: Identity | None
    node: Identity | None
    told_apart: bool
    proposals: tuple[Proposal, ...]
    in_force: Mapping[Metric, Limit]
    spreads: tuple[Spread, ...]
    parts: tuple[PartProposals, ...] = ()

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"{self.task_set} on {self.target}"

    @property
    def left_out(self) -> tuple[str, ...]:
        """Each reason why cycles were left out, with how many it took."""
        counts = {reason: self.unusable.count(reason) for reason in dict.fromkeys(self.unusable)}
        return tuple(f"{n} cycle{'s' if n > 1 else ''} left out: {reason}" for reason, n in counts.items())


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A whole calibration. asked: cycles that were planned. complete: False when it was interrupted.

    seed: gives the same draws again. trouble: why it stopped before its end, besides an interruption.
    """

    at: datetime
    asked: int
    seed: int
    complete: bool
    sets: tuple[SetCalibration, ...]
    trouble: str | None = None


def distance(metric: Metric, value: float) -> float:
    """How far a value of a metric is from "equal to the baseline"; a larger one is worse."""
    match metric:
        case Metric.PERPLEXITY_RATIO:
            return abs(math.log(value)) if value > 0 else math.inf
        case Metric.TOP1_AGREEMENT:
            return 1.0 - value
        case _:
            return value


def at_distance(metric: Metric, away: float) -> float:
    """The value of a metric at a distance, on the worse side of equal."""
    match metric:
        case Metric.PERPLEXITY_RATIO:
            return math.exp(min(away, 700.0))  # a float holds no more than exp(709)
        case Metric.TOP1_AGREEMENT:
            return 1.0 - away
        case _:
            return away


def far_end(metric: Metric, estimate: Estimate) -> float:
    """Distance of the end of the interval that lies farther from equal; of the value where there is no interval."""
    interval = estimate.interval
    ends = (estimate.value,) if interval is None else (interval.low, interval.high)
    return max(distance(metric, end) for end in ends)


def near_end(metric: Metric, estimate: Estimate) -> float:
    """Distance of the end that a critical limit is held against; negative where that end is better than equal."""
    interval = estimate.interval
    if interval is None:
        return distance(metric, estimate.value)
    match metric:
        case Metric.PERPLEXITY_RATIO:
            return math.log(interval.low) if interval.low > 0 else -math.inf
        case Metric.TOP1_AGREEMENT:
            return 1.0 - interval.high
        case _:
            return interval.low


def drift(then: Level, now: Level) -> Drift:
    """One metric held against an earlier calibration of the same target and task set."""
    old, new = distance(then.metric, then.pooled.value), distance(now.metric, now.pooled.value)
    beyond = new / old if old > 0 and math.isfinite(new) else None
    a, b = then.pooled.interval, now.pooled.interval
    apart = a is not None and b is not None and (a.high < b.low or b.high < a.low)
    return Drift(now.metric, then.pooled, now.pooled, beyond, apart)
