"""The release gate: what was measured of a candidate, gate by gate, and whether it is kept."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from quantwatch.flow.identity import Identity
from quantwatch.flow.report import SetReport, TargetReport

TAIL = 0.99
"""The share of requests that the latency gate is about."""

RESIDENT = "process_resident_memory_bytes"
"""The memory metric that Python servers export: of the process that answers /metrics, not of the GPU."""

SHARE_LEVEL = 0.95
"""Confidence of the two-sided interval of the share of failed requests."""

OURS = frozenset({"unreachable", "misconfigured", "refused"})
"""Kinds of failed requests that say nothing of the node: the network's, or our own."""


class Answer(StrEnum):
    """The whole answer. CANNOT_TELL is no acceptance either."""

    KEEP = "keep"
    REJECT = "reject"
    CANNOT_TELL = "cannot_tell"


class GateVerdict(StrEnum):
    """What one gate says."""

    PASS = "pass"  # noqa: S105, a verdict, no password
    FAIL = "fail"
    CANNOT_TELL = "cannot_tell"


class GateKind(StrEnum):
    """What a gate looks at."""

    QUALITY = "quality"
    AGAINST_RUNNING = "against_running"
    LATENCY = "latency"
    ERRORS = "errors"
    MEMORY = "memory"


TITLES = {
    GateKind.QUALITY: "quality",
    GateKind.AGAINST_RUNNING: "not worse than running",
    GateKind.LATENCY: "P99 latency",
    GateKind.ERRORS: "errors",
    GateKind.MEMORY: "memory",
}
"""How people call the gates."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """A number and its confidence bounds; an end that cannot be given is infinite, a number that is not there NaN."""

    value: float = math.nan
    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that a gate looked at. limit: what it was held against. unit: `nats`, `s`, `B`, or nothing."""

    name: str
    number: Bounded
    limit: float | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate of one task set, with the sentences that explain it."""

    task_set: str
    gate: GateKind
    verdict: GateVerdict
    reasons: tuple[str, ...]
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True)
class Paired:
    """A candidate minus the running node on the same positions of the same prompts; larger is worse in all three.

    drawn: draws of the task set; prompts: draws that all three servers answered. kl_mean: in nats. log_perplexity:
    logarithm of perplexity of the candidate over that of the running node. top1: agreement that is lost. high: upper
    bound, low: lower bound corrected for the number of comparisons, both one-sided.
    """

    drawn: int
    prompts: int
    distinct_prompts: int
    positions: int
    kl_mean: Bounded
    log_perplexity: Bounded
    top1: Bounded


@dataclass(frozen=True, slots=True)
class Margins:
    """How much worse than the running node a candidate may be, in the units of Paired."""

    kl_mean: float
    log_perplexity: float
    top1: float


@dataclass(frozen=True, slots=True)
class Timed:
    """One request of the load. error: what kind of failure, None for a whole answer."""

    seconds: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Latency:
    """Times of whole requests in seconds, and failures by kind.

    sent: requests. completed: whole answers. timeouts: requests broken off; they count among the times with the time
    that they had taken, so their quantiles are lower bounds. level: of the two-sided interval of p99. histogram: upper
    edge in seconds and requests at most that slow but slower than the edge before. error_share: the node's own failures
    among the requests that reached it.
    """

    sent: int
    completed: int
    timeouts: int
    level: float
    mean: float
    p50: float
    p90: float
    p95: float
    p99: Bounded
    maximum: float
    error_share: Bounded
    errors: Mapping[str, int] = field(default_factory=dict)
    histogram: tuple[tuple[float, int], ...] = ()

    @property
    def timed(self) -> int:
        """How many times there are."""
        return self.completed + self.timeouts

    @property
    def cut_off(self) -> bool:
        """Whether p99 is a time-out, so that the true one is larger."""
        return self.timeouts > self.timed * (1 - TAIL)

    @property
    def not_the_nodes(self) -> int:
        """Failed requests that say nothing of the node."""
        return sum(count for kind, count in self.errors.items() if kind in OURS)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a node's /metrics says of its memory: bytes by the metric asked for, tokens that its KV cache holds."""

    size: float | None = None
    kv_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one node in bytes over one task set; None where it did not tell.

    kv_tokens: capacity of its KV cache.
    """

    before: float | None = None
    peak: float | None = None
    after: float | None = None
    kv_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits of the gates; None switches one off. p99_seconds: absolute. *_ratio: candidate over running node.

    level: two-sided confidence of the p99 interval of each node. metric: name of the memory metric.
    """

    margins: Margins | None = None
    p99_seconds: float | None = None
    p99_ratio: float | None = None
    max_error_share: float | None = None
    max_bytes: int | None = None
    max_memory_ratio: float | None = None
    metric: str = RESIDENT

    @property
    def level(self) -> float:
        """0.95, or for a ratio of two intervals 0.975 each, so that both hold together with 0.95 (Bonferroni)."""
        return 0.95 if self.p99_ratio is None else 0.975


@dataclass(frozen=True, slots=True)
class SetEvidence:
    """Everything about one task set. None where it was not measured. gates: of this task set."""

    name: str
    candidate: SetReport | None
    running: SetReport | None
    paired: Paired | None
    latency: Latency | None
    latency_running: Latency | None
    memory: Memory
    memory_running: Memory
    gates: tuple[GateResult, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A whole gate run. plan: what was asked for, as JSON. candidate, running: as a comparison sees them.

    complete: False when interrupted. misconfigured: a person has to correct an address, key or model name.
    """

    id: str
    started: datetime
    seconds: float
    plan: Mapping[str, object]
    baseline: Identity | None
    candidate: TargetReport | None
    running: TargetReport | None
    sets: tuple[SetEvidence, ...]
    answer: Answer
    reasons: tuple[str, ...]
    complete: bool
    misconfigured: bool = False
    trouble: str | None = None


def least_requests(share: float, level: float) -> int:
    """Fewest times whose largest bounds a quantile from above at a two-sided level: share ** n <= (1 - level) / 2."""
    return math.ceil(math.log((1 - level) / 2) / math.log(share) - 1e-9)


def least_without_failure(limit: float) -> int:
    """Fewest requests of which none failed whose failing share is bounded by a limit at 95 %, two-sided.

    0 where the limit allows nothing or anything: one failure decides then, or none ever does.
    """
    return least_requests(1 - limit, SHARE_LEVEL) if 0 < limit < 1 else 0
