"""What there is to decide about a target: what its verdicts ask for, by the configuration of now."""

from dataclasses import dataclass, replace
from datetime import datetime

from quantwatch.flow.decision import Action, Order, Origin, PoolMode, Wish
from quantwatch.flow.pool import OnFleetDegraded, whole
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.state import Human, Pause, Routing, TargetState
from quantwatch.flows.memory import Memory
from quantwatch.flows.stand_in import lost
from quantwatch.flows.watched import Watched, WatchedPool, Watchlist
from quantwatch.flows.weather import confirmed, members, of_pool, storming
from quantwatch.judge.brake import stormy
from quantwatch.judge.wish import insists, overruled, wish, withdrawn
from quantwatch.judge.yardstick import refuted


@dataclass(frozen=True, slots=True)
class Case:
    """A wish, about whom, by which configuration. author: whose standing word it is, None for what verdicts ask for."""

    wish: Wish
    target: Watched
    pool: WatchedPool
    watchlist: Watchlist
    author: str | None = None


def case_of(name: str, memory: Memory, watchlist: Watchlist, now: datetime) -> Case | None:
    """What there is to decide about a target; None where nothing is asked for or the pool must only be watched."""
    target = watchlist.targets.get(name)
    if target is None:
        return None
    pool = watchlist.pools[target.pool]
    storming(pool, watchlist, memory, now)
    state = memory.target_state(name, pool.name)
    insisted = insists(state)
    if insisted is not None:
        return Case(insisted, target, pool, watchlist, author=state.human_author)
    wanted = _wish(target, pool, memory, now)
    if wanted is None or pool.rules.mode is PoolMode.OBSERVE:
        memory.nothing_asked(name)
        return None
    return Case(wanted, target, pool, watchlist)


@dataclass(frozen=True, slots=True)
class PoolCase:
    """A wish about a whole pool that its own nodes have degraded. members: what verdicts ask for about each of them."""

    wish: Wish
    pool: WatchedPool
    members: tuple[Case, ...]


def pool_case(name: str, memory: Memory, watchlist: Watchlist, now: datetime) -> PoolCase | str:
    """The wish to isolate every member that breaches, confirmed; or why there is none. wish.run: the runs behind it."""
    pool = watchlist.pools.get(name)
    if pool is None:
        return "its pool has left the configuration"
    storming(pool, watchlist, memory, now)
    if pool.rules.mode is PoolMode.OBSERVE or pool.rules.on_fleet_degraded is not OnFleetDegraded.APPROVE:
        return f"its pool is set to mode {pool.rules.mode} and on_fleet_degraded {pool.rules.on_fleet_degraded} now"
    at = memory.storms[name]
    if not at.degraded:
        return f"its pool is not degraded as a whole any more: {at.reason}"
    cases = []
    for target in of_pool(name, watchlist):
        wanted = _wish(target, pool, memory, now)
        if wanted is not None and wanted.action is Action.ISOLATE:
            cases.append(Case(wanted, target, pool, watchlist))
    sure = confirmed(pool, watchlist, memory, now)
    if not cases or not stormy(len(list(members(name, watchlist, memory))), sure, pool.rules.storm_share):
        return f"the breaches of {sure} members are confirmed, which is too few, or none of them asks for it"
    names, runs = ", ".join(one.target.name for one in cases), sorted(one.wish.run or "" for one in cases)
    reason = f"every member with a confirmed breach (now {names}), since {at.reason}"
    return PoolCase(Wish(Action.ISOLATE, whole(name), name, reason, run=",".join(runs)), pool, tuple(cases))


def standing(proposal: Proposal, memory: Memory, watchlist: Watchlist, now: datetime) -> Case | PoolCase | str:
    """The wish that a proposal is about, on the evidence of now; or why it is no longer asked for."""
    if proposal.of_pool:
        found = pool_case(proposal.pool, memory, watchlist, now)
        dry = isinstance(found, PoolCase) and found.pool.rules.mode is PoolMode.DRY_RUN
        return f"the mode of its pool is {PoolMode.DRY_RUN} now" if dry else found
    target = watchlist.targets.get(proposal.target)
    if target is None:
        return "its target has left the configuration"
    pool = watchlist.pools[target.pool]
    if pool.rules.mode is not PoolMode.APPROVE:
        return f"the mode of its pool is {pool.rules.mode} now"
    state = memory.target_state(target.name, pool.name)
    if state.human is not Human.NONE:
        return f"a person has set the target to {state.human}"
    wanted = _wish(target, pool, memory, now, about=proposal.task_set)
    if wanted is None or wanted.action is not proposal.action:
        return "what spoke for it no longer stands, or is too old to count"
    return Case(wanted, target, pool, watchlist)


def unwanted(order: Order, memory: Memory, watchlist: Watchlist, now: datetime) -> str | None:
    """Why an order under way is no longer wanted by people, the configuration and the results of now; None while it is.

    What a person ordered is withdrawn by a person's word alone: no pause, mode or measurement speaks against it.
    """
    target = watchlist.targets.get(order.target)
    isolating = order.action is Action.ISOLATE
    state = memory.target_state(order.target, order.pool)
    if target is None and isolating:
        return "its target has left the configuration"
    if order.origin is Origin.PERSON:
        return overruled(order.action, state)
    if isolating and state.human is Human.FORCED_OUT:
        return None
    pause = pause_over(order.target, order.pool, memory, watchlist, now=now)
    if pause is not None:
        return pause.said
    return None if target is None else _outdated(order, target, memory, watchlist, now=now)


def _outdated(order: Order, target: Watched, memory: Memory, watchlist: Watchlist, *, now: datetime) -> str | None:
    """Why an order is no longer wanted by its pool's mode and the results of now."""
    pool = watchlist.pools[target.pool]
    mode, isolating = pool.rules.mode, order.action is Action.ISOLATE
    approved = order.origin is Origin.APPROVED and mode is PoolMode.APPROVE
    if mode is not PoolMode.ENFORCE and not approved:
        # What quantwatch began in another mode: a release may end, an isolation takes capacity away.
        return f"the mode of its pool is {mode} now" if isolating else None
    state = memory.target_state(target.name, pool.name)
    states = memory.states_of(target.name, target.sets)
    process = _process(memory, target.name)
    why = withdrawn(order.action, state, states, target.rules(pool), now=now, process=process)
    if why is not None or not isolating:
        return why
    moved = refuted(memory.checks)
    if moved is not None:
        return f"the baseline that measured the breach has moved since: {moved}"
    return lost(order, target, memory, watchlist, now=now)


def pause_over(name: str, pool: str, memory: Memory, watchlist: Watchlist, *, now: datetime) -> Pause | None:
    """A pause that holds for a target, by the pool it was in and by the one it is in now."""
    target = watchlist.targets.get(name)
    pools = {pool} if target is None else {pool, target.pool}
    return next((one for one in memory.pausing(now) if any(one.covers(name, pool, now=now) for pool in pools)), None)


def _wish(
    target: Watched, pool: WatchedPool, memory: Memory, now: datetime, *, about: str | None = None
) -> Wish | None:
    """What the verdicts ask for; where it is not known how the gateway stands, whatever would mend the worse.

    about: hear this task set alone, where it is a breach that is asked for.
    """
    state = memory.target_state(target.name, target.pool)
    rules = target.rules(pool)
    if about is not None:
        rules = replace(rules, act_on={about: rules.act_on.get(about, frozenset())})

    def asked(of: TargetState) -> Wish | None:
        return wish(
            of,
            memory.states_of(target.name, target.sets),
            rules,
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
