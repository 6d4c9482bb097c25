"""How a pool as a whole looks: who belongs to it, who breaches on what, and whether that is a storm."""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime

from quantwatch.flow.pool import PoolStanding, PoolState
from quantwatch.flow.state import AWAY, TargetState
from quantwatch.flow.verdict import BREACHES
from quantwatch.flows.memory import Memory, Pair
from quantwatch.flows.watched import Watched, WatchedPool, Watchlist
from quantwatch.judge.fleet import Weather, stand
from quantwatch.judge.standing import FRESH_PERIODS, fresh, target_quality


def members(pool: str, watchlist: Watchlist, memory: Memory) -> Iterable[TargetState]:
    """Configured targets of the pool, and those that left it while they were away: their traffic is missing too."""
    yield from (memory.target_state(one.name, pool) for one in of_pool(pool, watchlist))
    yield from (state for state in memory.left_behind(watchlist.targets) if state.pool == pool)


def of_pool(pool: str, watchlist: Watchlist) -> list[Watched]:
    """Configured targets of a pool."""
    return [one for one in watchlist.targets.values() if one.pool == pool]


def breaching(pool: str, watchlist: Watchlist, memory: Memory, now: datetime) -> frozenset[str]:
    """Members of a pool with a fresh task set that breaches, confirmed or not; a skipped run changes nothing."""
    return frozenset(name for name, _ in guilty(pool, watchlist, memory, now))


def guilty(pool: str, watchlist: Watchlist, memory: Memory, now: datetime) -> Mapping[Pair, float]:
    """Members of a pool and their fresh task sets that breach, with the period of each in seconds."""
    return {
        (one.name, name): wanted.period_seconds
        for one in of_pool(pool, watchlist)
        for name, wanted in one.sets.items()
        if _breaches(one, name, memory, now)
    }


def storming(pool: WatchedPool, watchlist: Watchlist, memory: Memory, now: datetime) -> bool:
    """Whether a storm holds the pool, its cooldown included; keeps count of where the pool stands."""
    old = memory.storms.get(pool.name, PoolStanding(pool.name))
    new = memory.storms[pool.name] = stand(old, weather(pool, watchlist, memory, now), pool.rules, now=now)
    return new.state is not PoolState.HEALTHY


def weather(pool: WatchedPool, watchlist: Watchlist, memory: Memory, now: datetime) -> Weather:
    """What the pool looks like. Who had long been away when the storm began has been dealt with; the rest counts."""
    states = list(members(pool.name, watchlist, memory))
    began = memory.storms.get(pool.name, PoolStanding(pool.name)).began
    out = {one.target for one in states if one.routing in AWAY and not _left_since(one, began)}
    out -= lately(pool.name, watchlist, memory, now)
    found = guilty(pool.name, watchlist, memory, now)
    bad = {pair: FRESH_PERIODS * period for pair, period in found.items() if pair[0] not in out}
    return Weather(len(states), bad, memory.checks, _mismatch({name for name, _ in bad}, memory))


def lately(pool: str, watchlist: Watchlist, memory: Memory, now: datetime) -> frozenset[str]:
    """Members that left within the time for which a result counts, and breach on.

    Where nodes go bad in one moment, each is measured and confirmed in its own: the first has left before the second
    is known to breach.
    """
    longest: dict[str, float] = {}
    for (name, _), period in guilty(pool, watchlist, memory, now).items():
        longest[name] = max(longest.get(name, 0.0), FRESH_PERIODS * period)
    return frozenset(
        one.target
        for one in members(pool, watchlist, memory)
        if one.routing in AWAY
        and one.since is not None
        and (now - one.since).total_seconds() <= longest.get(one.target, -math.inf)
    )


def confirmed(pool: WatchedPool, watchlist: Watchlist, memory: Memory, now: datetime) -> int:
    """How many of those that count have a confirmed breach."""
    names = weather(pool, watchlist, memory, now).breaching
    found = [one for one in of_pool(pool.name, watchlist) if one.name in names]
    states = [(memory.states_of(one.name, one.sets), one.periods) for one in found]
    return sum(target_quality(known, now=now, periods=periods)[0] in BREACHES for known, periods in states)


def _left_since(state: TargetState, began: datetime | None) -> bool:
    return began is not None and state.since is not None and state.since >= began


def _mismatch(names: Iterable[str], memory: Memory) -> str | None:
    """Why a member cannot be compared with the baseline by its latest handshake."""
    for name in sorted(names):
        met = memory.handshakes.get(name)
        if met is not None and met.ok is False:
            bad = next(one for one in met.seen if one.ok is False)
            return f"the handshake with {name} failed: {bad.detail}"
    return None


def _breaches(target: Watched, task_set: str, memory: Memory, now: datetime) -> bool:
    state = memory.set_state(target.name, task_set)
    bad = state.breaches > 0 or state.quality in BREACHES
    return bad and fresh(state, now=now, period_seconds=target.sets[task_set].period_seconds)
