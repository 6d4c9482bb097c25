"""What the brakes look at, gathered: the pool, its fallback as it is right now, storms, pauses, the yardstick."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from quantwatch.errors import ProbeError
from quantwatch.flow.check import Check
from quantwatch.flow.decision import Wish
from quantwatch.flow.fleet import Fallback, Fleet, Roll
from quantwatch.flow.state import AWAY
from quantwatch.flow.verdict import GOOD, Quality
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory
from quantwatch.flows.watched import Watched, WatchedPool, Watchlist
from quantwatch.flows.weather import breaching, lately, members, of_pool, storming
from quantwatch.judge.ladder import on_ladder
from quantwatch.judge.standing import FRESH_PERIODS, target_quality
from quantwatch.judge.yardstick import MOVED, soundness, unproven

HOUR = timedelta(hours=1)
CHECK_AGE = timedelta(hours=6)
FALLBACK_SECONDS = 10.0
ROLL_AGE = timedelta(minutes=1)
"""How long the gateway's own list holds for a decision: it is read just before, and others may have the turn first."""


async def scene(
    wish: Wish,
    watchlist: Watchlist,
    memory: Memory,
    keeper: Keeper,
    *,
    now: datetime,
    fallback: Fallback | None,
) -> Fleet:
    """The wish's pool as it is now. Raises StoreError when the record of recent actions cannot be read.

    fallback: as it was found a moment ago; asking it may take seconds, in which nobody else should wait.
    """
    pool = watchlist.pools[wish.pool]
    recent = await keeper.write(lambda store: store.actions_since(pool.name, now - HOUR))
    target = watchlist.targets[wish.target]
    named = target.sets.get(wish.task_set) if wish.task_set is not None else None
    period = named.period_seconds if named is not None else 0.0
    guilty = (wish.target, wish.task_set) if wish.task_set is not None else None
    fleet = Fleet(
        pool=pool.name,
        rules=pool.rules,
        members=tuple(members(pool.name, watchlist, memory)),
        now=now,
        breaching=breaching(pool.name, watchlist, memory, now),
        sound=sound(pool.name, watchlist, memory, now),
        lately=lately(pool.name, watchlist, memory, now),
        storming=storming(pool, watchlist, memory, now),
        degraded=memory.storms[pool.name].degraded,
        fallback=_meanwhile(fallback, watchlist, memory, now),
        fallback_for=tuple(_stands_in_for(wish.target, watchlist, memory)),
        recent_actions=recent,
        pauses=tuple(memory.pausing(now)),
        yardstick=unproven(guilty, memory.checks, now=now, fresh_seconds=FRESH_PERIODS * period),
        store=keeper.trouble,
        roll=roll_of(pool.name, memory, now),
        ladder=pool.ladder,
    )
    return on_ladder(wish, fleet)


def roll_of(pool: str, memory: Memory, now: datetime) -> Roll | None:
    """What the gateway's own list says of a pool, for a decision now; None where it tells nobody."""
    roll = memory.rolls.get(pool)
    if roll is None or roll.trouble is not None or timedelta() <= now - roll.at <= ROLL_AGE:
        return roll
    return replace(roll, present=frozenset(), trouble="its list was read too long ago")


def sound(pool: str, watchlist: Watchlist, memory: Memory, now: datetime) -> frozenset[str]:
    """Members of a pool whose fresh results are good; one that is down or was never measured is none."""
    return frozenset(one.name for one in of_pool(pool, watchlist) if _quality(one, memory, now)[0] in GOOD)


def _stands_in_for(target: str, watchlist: Watchlist, memory: Memory) -> Iterable[str]:
    for pool in watchlist.pools.values():
        if pool.fallback == target and any(one.routing in AWAY for one in members(pool.name, watchlist, memory)):
            yield pool.name


async def fallback_of(pool: WatchedPool, watchlist: Watchlist, memory: Memory, now: datetime) -> Fallback | None:
    """The fallback, asked right now and for a few seconds at most: whether it answers, and how busy it is."""
    if pool.fallback is None:
        return None
    try:
        async with asyncio.timeout(FALLBACK_SECONDS):
            return await asked(pool.fallback, watchlist, memory, now)
    except TimeoutError:
        return Fallback(pool.fallback, healthy=False, why=f"it did not answer within {FALLBACK_SECONDS:g} s")


async def asked(name: str, watchlist: Watchlist, memory: Memory, now: datetime) -> Fallback:
    """A fallback as it is right now: whether it answers, what speaks against it, and how busy it is."""
    target = watchlist.targets.get(name)
    prober = watchlist.baseline if target is None else target.prober
    against = _known_against(name, watchlist, memory, now)
    try:
        await prober.identify()
    except ProbeError as exc:
        against = against or str(exc)
    load = await prober.load()
    return Fallback(
        name=name,
        healthy=against is None,
        why=against or "",
        waiting=load.waiting if load is not None else None,
        kv_usage=load.kv_usage if load is not None else None,
    )


def _meanwhile(fallback: Fallback | None, watchlist: Watchlist, memory: Memory, now: datetime) -> Fallback | None:
    """A fallback by what is known of it now: it may have gone bad, or left, since it was asked."""
    if fallback is None or not fallback.healthy:
        return fallback
    why = _known_against(fallback.name, watchlist, memory, now)
    return fallback if why is None else replace(fallback, healthy=False, why=why)


def _known_against(name: str, watchlist: Watchlist, memory: Memory, now: datetime) -> str | None:
    """What our own record holds against a fallback."""
    target = watchlist.targets.get(name)
    return against_baseline(memory, now) if target is None else against_target(target, memory, now)


def against_baseline(memory: Memory, now: datetime) -> str | None:
    """Why the baseline cannot take traffic; None where it was proven within the last hours, no longer ago.

    Its enrolled answers say nothing about how it is now; its self-check against them does.
    """
    return None if soundness(_recent_checks(memory, now)) else "the baseline was not proven sound lately"


def baseline_lost(memory: Memory, now: datetime, *, since: datetime) -> str | None:
    """What is known against the baseline; that nothing has proven it yet, as after a restart, is no such knowledge.

    since: when it was asked for the order at hand, and answered; that it was silent before counts no more.
    """
    if memory.silent is not None and memory.silent >= since:
        return memory.baseline_trouble or "it did not answer the latest self-check"
    return MOVED if soundness(_recent_checks(memory, now)) is False else None


def _recent_checks(memory: Memory, now: datetime) -> list[Check]:
    asked = [one for one in memory.checks.values() if not one.enrolled]
    asked += [one.check for one in memory.self_checks.values()]
    return [one for one in asked if timedelta() <= now - one.at <= CHECK_AGE]


def against_target(target: Watched, memory: Memory, now: datetime) -> str | None:
    """Why a target cannot take the traffic of others by its own latest verdicts."""
    state = memory.target_state(target.name, target.pool)
    if state.away:
        return f"{target.name} is itself out of traffic"
    quality, reason = _quality(target, memory, now)
    return None if quality in GOOD else f"{target.name} is {quality}: {reason}"


def _quality(target: Watched, memory: Memory, now: datetime) -> tuple[Quality, str]:
    return target_quality(memory.states_of(target.name, target.sets), now=now, periods=target.periods)
