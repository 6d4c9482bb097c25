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
from quantwatch.judge.yardstick import Pair

OVERRIDDEN = frozenset({Brake.CAP, Brake.STORM, Brake.RATE})
"""What a person's yes to the whole pool overrides, and is told of; everything else objects all the same."""


@dataclass(frozen=True, slots=True)
class Weather:
    """What a pool looks like at one moment.

    members: how many it has. breaching: those that breach and count. guilty: the task sets on which they do, with how
    long a self-check of the baseline counts, in seconds. checks: the latest self-check of each target and task set.
    mismatch: why the baseline and a member that breaches cannot be compared at all, by the latest handshakes.
    """

    members: int
    breaching: frozenset[str] = frozenset()
    guilty: Mapping[str, float] = field(default_factory=dict)
    checks: Mapping[Pair, Check] = field(default_factory=dict)
    mismatch: str | None = None


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
    """Whether the yardstick was proven sound on every guilty task set since then, thoroughly, and not too long ago."""
    moved = next((one for one in weather.checks.values() if one.sound is False), None)
    if moved is not None:
        return Proof(None, moved.trouble or "it no longer gives its stored answers", refuted=True)
    if weather.mismatch is not None:
        return Proof(None, weather.mismatch, refuted=True)
    times = []
    for name, seconds in sorted(weather.guilty.items()):
        at, why = _checked(name, weather.checks, since=since)
        if at is None or (now - at).total_seconds() > seconds:
            return Proof(None, why or f"its last self-check on {name} is too old")
        times.append(at)
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
    names = sorted(weather.breaching)
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


def _checked(task_set: str, checks: Mapping[Pair, Check], *, since: datetime) -> tuple[datetime | None, str]:
    """When the yardstick was last proven on a task set, all of its answers asked; or why it was not since then."""
    recent = [one for (_, name), one in checks.items() if name == task_set and one.thorough and one.at >= since]
    sound = [one.at for one in recent if one.sound]
    if sound:
        return max(sound), ""
    if not recent:
        return None, f"it has not been checked on {task_set} since the storm began"
    if any(one.new for one in recent):
        cure = "`quantwatch accept-baseline` if they are right"
        return None, f"no clean run has proven its answers on {task_set} yet; {cure}"
    return None, f"it could not be held against its stored answers on {task_set}"


def _without(fleet: Fleet, leaving: set[str]) -> Fleet:
    """The pool once these have left."""
    members = tuple(replace(one, routing=Routing.LEAVING) if one.target in leaving else one for one in fleet.members)
    return replace(fleet, members=members, recent_actions=fleet.recent_actions + len(leaving))
