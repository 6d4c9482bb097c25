"""Looks at a pool as a whole: a storm and its end, whose fault it is, and what a person's yes to all of it sets free.

Many members that breach at once have a common cause: the yardstick, or what they share. Only a yardstick that was
proven sound since they began makes it the nodes' own; until then nothing acts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from quantwatch.flow.check import Check
from quantwatch.flow.decision import Brake, Objection, Ruling, Wish
from quantwatch.flow.fleet import Fleet, PoolRules
from quantwatch.flow.pool import PoolStanding, PoolState
from quantwatch.flow.state import Routing
from quantwatch.judge.brake import objections, stormy
from quantwatch.judge.yardstick import Pair, refuted

OVERRIDDEN = frozenset({Brake.CAP, Brake.STORM, Brake.RATE})
"""What a person's yes to the whole pool overrides, and is told of; everything else objects all the same."""


@dataclass(frozen=True, slots=True)
class Weather:
    """What a pool looks like at one moment.

    members: how many it has. guilty: those that breach and count, with their task sets and how long a self-check of the
    baseline counts for each, in seconds. checks: the latest self-check for each target and task set, of the baseline
    that it was measured against. mismatch: why the baseline and a member that breaches cannot be compared at all, by
    the latest handshakes.
    """

    members: int
    guilty: Mapping[Pair, float] = field(default_factory=dict)
    checks: Mapping[Pair, Check] = field(default_factory=dict)
    mismatch: str | None = None

    @property
    def breaching(self) -> list[str]:
        """Names of those that breach and count, in order."""
        return sorted({target for target, _ in self.guilty})


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether the yardstick is proven for everything that breaches. at: by then, None where it is not.

    why: what is missing. refuted: something speaks against it, so that an older proof counts no more either.
    """

    at: datetime | None
    why: str = ""
    refuted: bool = False


def stand(old: PoolStanding, weather: Weather, rules: PoolRules, *, now: datetime) -> PoolStanding:
    """Where a pool stands now. old: where it stood at the last look.

    A storm that has calmed keeps its state for the pool's cooldown; one that comes back has a whole one ahead.
    """
    if stormy(weather.members, len(weather.breaching), rules.storm_share):
        return _raging(old, weather, now=now)
    if old.state is PoolState.HEALTHY:
        return old
    if old.raging is not None:
        return replace(old, raging=None, until=now + timedelta(seconds=rules.storm_cooldown_seconds))
    if old.until is not None and now < old.until:
        return old
    return PoolStanding(old.pool, since=now, reason="the storm has passed, and its cooldown is over")


def proof(weather: Weather, *, since: datetime, now: datetime) -> Proof:
    """Whether the yardstick was proven sound for every breach since then, thoroughly, and not too long ago.

    Another baseline than the one that was proven is another yardstick, so a new one refutes what was proven before.
    """
    moved = refuted(weather.checks)
    if moved is not None:
        return Proof(None, moved, refuted=True)
    if weather.mismatch is not None:
        return Proof(None, weather.mismatch, refuted=True)
    times = []
    for pair, seconds in sorted(weather.guilty.items()):
        check = weather.checks.get(pair)
        missing = _missing(check, pair[1], since=since, until=now - timedelta(seconds=seconds))
        if check is None or missing is not None:
            return Proof(None, missing or "", refuted=check is not None and check.new)
        times.append(check.at)
    return Proof(min(times, default=None))


def together(asked: Sequence[tuple[Wish, Fleet]]) -> list[tuple[Ruling, tuple[Objection, ...]]]:
    """What becomes of the wishes of a pool when a person says yes to all of it, in their order.

    Each is looked at as if those before it that may act had left already, so that the last backend is never among them.
    """
    leaving: set[str] = set()
    rulings = []
    for wanted, fleet in asked:
        found = objections(wanted, _without(fleet, leaving))
        free = {one.brake for one in found} <= OVERRIDDEN
        if free:
            leaving.add(wanted.target)
        rulings.append((Ruling.ACT if free else Ruling.SUPPRESSED, found))
    return rulings


def said(ruled: Sequence[tuple[Ruling, tuple[Objection, ...]]]) -> tuple[Objection, ...]:
    """Everything that objects to such a yes, each thing once; of what is overridden the last word."""
    found: dict[object, Objection] = {}
    for one in (one for _, objecting in ruled for one in objecting):
        found[one.brake if one.brake in OVERRIDDEN else one] = one
    return tuple(found.values())


def _raging(old: PoolStanding, weather: Weather, *, now: datetime) -> PoolStanding:
    """Where a pool stands while many breach. What was proven holds for as long as a self-check counts, unless refuted.

    A baseline that is busy for one run therefore changes nothing.
    """
    since = old.raging or now
    found = proof(weather, since=since, now=now)
    proven = found.at or (None if found.refuted else old.proven)
    window = max(weather.guilty.values(), default=0.0)
    held = proven is not None and (now - proven).total_seconds() <= window
    state = PoolState.FLEET_DEGRADED if held else PoolState.STORM
    names = weather.breaching
    many = f"{len(names)} of {weather.members} members breach at once ({', '.join(names)})"
    sure = "the baseline is proven sound" if held else f"the baseline is not proven sound: {found.why}"
    return PoolStanding(
        old.pool,
        state,
        since=old.since if old.state is state else now,
        began=old.began or now,
        raging=since,
        proven=proven,
        reason=f"{many}, and {sure}",
    )


def _missing(check: Check | None, task_set: str, *, since: datetime, until: datetime) -> str | None:
    """What a self-check lacks to be a proof. since: when the storm began. until: an older one counts no more."""
    if check is not None and check.new:
        cure = "`quantwatch accept-baseline` if they are right"
        return f"no clean run has proven its answers on {task_set} yet; {cure}"
    if check is None or check.at < since or not check.thorough:
        return f"it has not been checked on {task_set} since the storm began"
    if not check.sound:
        return f"it could not be held against its stored answers on {task_set}"
    return f"its last self-check on {task_set} is too old" if check.at < until else None


def _without(fleet: Fleet, leaving: set[str]) -> Fleet:
    """The pool once these have left."""
    members = tuple(replace(one, routing=Routing.LEAVING) if one.target in leaving else one for one in fleet.members)
    return replace(fleet, members=members, recent_actions=fleet.recent_actions + len(leaving))
