"""What is watched: targets with their task sets, built from the settings once a configuration is loaded."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from quantwatch.flow.decision import Lane
from quantwatch.flow.fleet import PoolRules, Rung
from quantwatch.flow.prompt import ProbeMode, PromptSet
from quantwatch.judge.threshold import Limits, Part
from quantwatch.judge.wish import WishRules
from quantwatch.probe.contract import Prober


@dataclass(frozen=True, slots=True)
class WatchedSet:
    """One task set as one target is asked about it. period_seconds: the longest time between two scheduled runs.

    sizes: of the draw, each at which it may be looked at; the first is `draw`. level: two-sided level of every
    interval. confirm_mode: how the confirming run asks. parts: limits of parts. release_margin: how far inside its
    critical limits a clean run must lie to count towards a return.
    """

    name: str
    prompts: PromptSet
    mode: ProbeMode
    k: int
    draw: int
    continuation_tokens: int
    positions: int
    confirm_cycles: int
    period_seconds: float
    act_on: frozenset[Lane]
    limits: Limits
    parts: Mapping[Part, Limits] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    level: float = 0.95
    confirm_mode: ProbeMode | None = None
    release_margin: float = 0.0

    @property
    def limits_digest(self) -> str:
        """Twelve hex digits that change with any limit, and with the level at which it is held against."""
        content: dict[str, object] = {"": _plain(self.limits), "level": self.level}
        content |= {f"{dimension}={value}": _plain(limits) for (dimension, value), limits in self.parts.items()}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _plain(limits: Limits) -> dict[str, list[float | None]]:
    return {metric.value: [limit.warn, limit.critical] for metric, limit in limits.items()}


@dataclass(frozen=True, slots=True)
class Watched:
    """One target. gateway_name: what the gateway calls it."""

    name: str
    scheme: str
    pool: str
    gateway_name: str
    prober: Prober
    sets: Mapping[str, WatchedSet]

    @property
    def periods(self) -> dict[str, float]:
        """The longest time between two scheduled runs in seconds, by task set."""
        return {name: one.period_seconds for name, one in self.sets.items()}

    def rules(self, pool: "WatchedPool") -> WishRules:
        """What the judge needs to know to wish anything."""
        return WishRules(
            act_on={name: one.act_on for name, one in self.sets.items()},
            periods=self.periods,
            release_after=pool.release_after,
            minimum_hold_seconds=pool.minimum_hold_seconds,
            limits={name: one.limits_digest for name, one in self.sets.items()},
            hold_jitter=pool.hold_jitter,
            probation_seconds=pool.probation_seconds,
        )


@dataclass(frozen=True, slots=True)
class WatchedPool:
    """One pool. fallback: `baseline`, a target's name, or None. fallback_name: what the gateway calls it.

    approval_seconds: how long a proposal waits for a person. hold_jitter, probation_seconds, forgive_after_seconds:
    of a return (judge/recovery.py). ladder: its rungs, the cheapest first; empty without.
    steps: percent of its own weight with which a target comes back on a ladder, one after another; empty for at once.
    baseline_name: what the gateway calls the baseline.
    """

    name: str
    rules: PoolRules
    release_after: int
    minimum_hold_seconds: float
    fallback: str | None = None
    fallback_name: str | None = None
    approval_seconds: float = 14_400.0
    hold_jitter: float = 0.0
    probation_seconds: float = 0.0
    forgive_after_seconds: float = 0.0
    ladder: tuple[Rung, ...] = ()
    steps: tuple[int, ...] = ()
    baseline_name: str = ""


@dataclass(frozen=True, slots=True)
class Watchlist:
    """A whole configuration, ready to be run. digest: changes with any setting."""

    baseline: Prober
    targets: Mapping[str, Watched]
    pools: Mapping[str, WatchedPool]
    digest: str = ""

    @property
    def task_sets(self) -> set[str]:
        """Names of all task sets."""
        return {name for target in self.targets.values() for name in target.sets}
