"""What there is to decide about a target: what its verdicts ask for, by the configuration of now."""

from dataclasses import dataclass, replace
from datetime import datetime

from quantwatch.flow.decision import Action, Order, PoolMode, Wish
from quantwatch.flow.state import Pause, Routing, TargetState
from quantwatch.flows.memory import Memory
from quantwatch.flows.scene import storming
from quantwatch.flows.watched import Watched, WatchedPool, Watchlist
from quantwatch.judge.wish import wish, withdrawn


@dataclass(frozen=True, slots=True)
class Case:
    """A wish, about whom, by which configuration."""

    wish: Wish
    target: Watched
    pool: WatchedPool
    watchlist: Watchlist


def case_of(name: str, memory: Memory, watchlist: Watchlist, now: datetime) -> Case | None:
    """What there is to decide about a target; None where nothing is asked for or the pool must only be watched."""
    target = watchlist.targets.get(name)
    if target is None:
        return None
    pool = watchlist.pools[target.pool]
    storming(pool, watchlist, memory, now)
    wanted = _wish(target, pool, memory, now)
    if wanted is None or pool.rules.mode is PoolMode.OBSERVE:
        memory.nothing_asked(name)
        return None
    return Case(wanted, target, pool, watchlist)


def unwanted(order: Order, memory: Memory, watchlist: Watchlist, now: datetime) -> str | None:
    """Why an order under way is no longer wanted by the configuration and the results of now; None while it is."""
    target = watchlist.targets.get(order.target)
    pause = pause_over(order.target, order.pool, memory, watchlist, now=now)
    if pause is not None:
        return f"{pause.author} paused {pause.scope}: {pause.reason}"
    isolating = order.action is Action.ISOLATE
    if target is None:
        return "its target has left the configuration" if isolating else None
    pool = watchlist.pools[target.pool]
    if pool.rules.mode is not PoolMode.ENFORCE:
        # What a person releases in such a pool stays wanted; quantwatch itself would not have begun.
        return f"the mode of its pool is {pool.rules.mode} now" if isolating else None
    state = memory.target_state(order.target, order.pool)
    states = memory.states_of(order.target, target.sets)
    return withdrawn(order.action, state, states, target.rules(pool), now=now, process=_process(memory, target.name))


def pause_over(name: str, pool: str, memory: Memory, watchlist: Watchlist, *, now: datetime) -> Pause | None:
    """A pause that holds for a target, by the pool it was in and by the one it is in now."""
    target = watchlist.targets.get(name)
    pools = {pool} if target is None else {pool, target.pool}
    return next((one for one in memory.pausing(now) if any(one.covers(name, pool, now=now) for pool in pools)), None)


def _wish(target: Watched, pool: WatchedPool, memory: Memory, now: datetime) -> Wish | None:
    """What the verdicts ask for; where it is not known how the gateway stands, whatever would mend the worse."""
    state = memory.target_state(target.name, target.pool)

    def asked(of: TargetState) -> Wish | None:
        return wish(
            of,
            memory.states_of(target.name, target.sets),
            target.rules(pool),
            now=now,
            process=_process(memory, target.name),
            findings={name: memory.findings(target.name, name) for name in target.sets},
        )

    if state.routing is not Routing.CONTRADICTED:
        return asked(state)
    return asked(replace(state, routing=Routing.IN)) or asked(replace(state, routing=Routing.OUT))


def _process(memory: Memory, target: str) -> str | None:
    """Which process a target was when it was last met; None before that."""
    known = memory.identities.get(target)
    return known.process if known is not None else None
