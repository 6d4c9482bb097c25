"""What the brakes look at: one pool, its fallback, and what happened lately."""

from dataclasses import dataclass
from datetime import datetime

from quantwatch.flow.decision import PoolMode
from quantwatch.flow.pool import OnFleetDegraded
from quantwatch.flow.state import Pause, TargetState


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung of a ladder: targets of one scheme, or the baseline alone. members: names of targets."""

    name: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fallback:
    """Who takes a pool's traffic. healthy: None when that could not be found out. why: what speaks against it.

    waiting, kv_usage: its load, None when it does not tell. node, rung: on a ladder, its name at the gateway and the
    rung that it stands on; None elsewhere. steered: the gateway sends it whatever a target leaves, whoever else is in.
    """

    name: str
    healthy: bool | None
    why: str = ""
    waiting: float | None = None
    kv_usage: float | None = None
    node: str | None = None
    rung: str | None = None
    steered: bool = False


@dataclass(frozen=True, slots=True)
class Roll:
    """Who of a pool the gateway could send traffic to, by its own list, and when it told.

    present: targets. trouble: why that is not known; None where it is.
    """

    at: datetime
    present: frozenset[str] = frozenset()
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class PoolRules:
    """How far a pool may be acted upon. max_isolated: share of its targets. storm_share: of targets that breach.

    on_fleet_degraded: what happens once a storm is proven to be the nodes' own.
    """

    mode: PoolMode = PoolMode.OBSERVE
    max_isolated: float = 0.34
    actions_per_hour: int = 4
    storm_share: float = 0.5
    storm_cooldown_seconds: float = 1800.0
    fallback_max_waiting: int = 4
    fallback_max_kv_usage: float = 0.8
    on_fleet_degraded: OnFleetDegraded = OnFleetDegraded.APPROVE


@dataclass(frozen=True, slots=True)
class Fleet:
    """One pool at one moment, as the brakes see it.

    members: every target of the pool, also those that have left the configuration while isolated. breaching: members
    with a fresh task set that breaches, confirmed or not. sound: members with fresh results, none of them worse than a
    warning. lately: members that left so short a while ago that others may breach by the same cause, and breach on.
    storming: a storm holds, its cooldown included. degraded: it rages, and is proven to be the nodes' own.
    fallback: None when the pool names none. fallback_for: other pools with isolated members that this target stands in
    for. recent_actions: isolations of this pool within the last hour. yardstick: why the baseline cannot be trusted,
    None when it is proven sound. store: why nothing can be written, None when it can. driver: why the gateway cannot be
    asked for this, None when it can. roll: what the gateway's own list says of the members, None where it tells nobody.
    ladder: the pool's rungs, the cheapest first; empty for a pool without.
    """

    pool: str
    rules: PoolRules
    members: tuple[TargetState, ...]
    now: datetime
    breaching: frozenset[str] = frozenset()
    sound: frozenset[str] = frozenset()
    lately: frozenset[str] = frozenset()
    storming: bool = False
    degraded: bool = False
    fallback: Fallback | None = None
    fallback_for: tuple[str, ...] = ()
    recent_actions: int = 0
    pauses: tuple[Pause, ...] = ()
    yardstick: str | None = None
    store: str | None = None
    driver: str | None = None
    roll: Roll | None = None
    ladder: tuple[Rung, ...] = ()

    def rung_of(self, target: str) -> Rung | None:
        """The rung that a target is on; None for one that is on none."""
        return next((one for one in self.ladder if target in one.members), None)
