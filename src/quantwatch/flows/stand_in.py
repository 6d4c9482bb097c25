"""Who stands in for a target that is to leave: its pool's fallback, or on a ladder the next sound rung."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from quantwatch.act.contract import Abilities
from quantwatch.flow.decision import Order
from quantwatch.flow.fleet import Fallback
from quantwatch.flow.state import TargetState
from quantwatch.flow.verdict import BREACHES
from quantwatch.flows.memory import Memory
from quantwatch.flows.pools import BASELINE
from quantwatch.flows.scene import FALLBACK_SECONDS, against_target, asked, baseline_lost, fallback_of, sound
from quantwatch.flows.watched import Watched, WatchedPool, Watchlist
from quantwatch.flows.weather import breaching, members
from quantwatch.judge.brake import overloaded
from quantwatch.judge.ladder import above


@dataclass(frozen=True, slots=True)
class StandIns:
    """Looks for one. able: what the gateway's driver can do."""

    watchlist: Watchlist
    memory: Memory
    able: Abilities

    async def of(self, target: Watched, pool: WatchedPool, now: datetime) -> Fallback | None:
        """Who would take a target's traffic, asked right now and for a few seconds at most.

        On a ladder the first member above that is in, good by its own fresh results, answers, and is under its load
        limits. Where everybody good is over them, the first of those; else whoever was asked last, with everything that
        speaks against each. None where nobody is named, or no rung stands above.
        """
        if not pool.ladder:
            return await fallback_of(pool, self.watchlist, self.memory, now)
        busy: Fallback | None = None
        against: list[str] = []
        for rung, name in self._candidates(target, pool):
            found = await self._asked(name, pool, now)
            found = replace(found, rung=rung, node=self._node(name, pool), steered=self.able.steers)
            if found.healthy and not overloaded(found, pool.rules):
                return found
            busy = busy or (found if found.healthy else None)
            against.append(f"{name} on rung {rung}: {found.why or 'it is loaded'}")
            if self._gets_it_anyway(name, pool):
                break  # the gateway goes by an order of its own: nobody behind this one would get the traffic
        if busy is not None or not against:
            return busy
        return replace(found, healthy=False, why="; ".join(against))

    def _candidates(self, target: Watched, pool: WatchedPool) -> Iterator[tuple[str, str]]:
        """Rung and name of everyone who may stand in, the best first; nobody who is away."""
        for rung in above(target.name, pool.ladder):
            yield from ((rung.name, one) for one in rung.members if one == BASELINE or not self._state(one, pool).away)

    async def _asked(self, name: str, pool: WatchedPool, now: datetime) -> Fallback:
        if name in breaching(pool.name, self.watchlist, self.memory, now):
            return Fallback(name, healthy=False, why="it breaches itself")
        try:
            async with asyncio.timeout(FALLBACK_SECONDS):
                return await asked(name, self.watchlist, self.memory, now)
        except TimeoutError:
            return Fallback(name, healthy=False, why=f"it did not answer within {FALLBACK_SECONDS:g} s")

    def _gets_it_anyway(self, name: str, pool: WatchedPool) -> bool:
        return name != BASELINE and not self.able.steers and not (self.able.weighs and pool.steps)

    def _node(self, name: str, pool: WatchedPool) -> str:
        return pool.baseline_name if name == BASELINE else self.watchlist.targets[name].gateway_name

    def _state(self, name: str, pool: WatchedPool) -> TargetState:
        return self.memory.target_state(name, pool.name)


def lost(order: Order, target: Watched, memory: Memory, watchlist: Watchlist, *, now: datetime) -> str | None:
    """Why whoever was to take a target's traffic no longer can; the gateway may have been down for an hour.

    That is who the order names, or else the members that stay: on a ladder those of the same rung and below.
    """
    pool = watchlist.pools[target.pool]
    if order.fallback is not None:
        since = memory.target_state(target.name, pool.name).since or now
        if order.fallback == pool.baseline_name:
            known = baseline_lost(memory, now, since=since)
            return None if known is None else _no_longer(BASELINE, known)
        return _lost(order.fallback, memory, watchlist, now=now)
    higher = {name for rung in above(target.name, pool.ladder) for name in rung.members}
    there = {one.target for one in members(pool.name, watchlist, memory) if not one.away} - {target.name} - higher
    left = (there & sound(pool.name, watchlist, memory, now)) - breaching(pool.name, watchlist, memory, now)
    return None if left else f"no sound member of {pool.name} is left to take the traffic"


def _lost(node: str, memory: Memory, watchlist: Watchlist, *, now: datetime) -> str | None:
    """Why targets that stand in no longer can. node: what the gateway calls them; a server may be one in two pools."""
    those = [one for one in watchlist.targets.values() if one.gateway_name == node]
    if not those:
        return _no_longer(node, "it has left the configuration")
    for one in those:
        bad = any(state.quality in BREACHES for state in memory.states_of(one.name, one.sets))
        if memory.target_state(one.name, one.pool).away or bad:
            return f"{one.name}, which was to take the traffic, is {'bad' if bad else 'out'} itself"
        known = against_target(one, memory, now)
        if known is not None:
            return _no_longer(one.name, known)
    return None


def _no_longer(name: str, why: str) -> str:
    return f"{name}, which was to take the traffic, can no longer: {why}"
