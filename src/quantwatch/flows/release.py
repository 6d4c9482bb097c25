"""A person brings a target back that stays out otherwise: it left the configuration, or its pool is only watched."""

from quantwatch.errors import InputError
from quantwatch.flow.decision import Action, Decision, Intent, Order, PoolMode, Ruling, Wish
from quantwatch.flow.run import stamp
from quantwatch.flow.state import Routing, TargetState
from quantwatch.flows.case import pause_over
from quantwatch.flows.keeper import unbroken
from quantwatch.flows.memory import moved
from quantwatch.flows.order import begun
from quantwatch.flows.watch import Watch
from quantwatch.log import logger

log = logger()

ISOLATED = (Routing.OUT, Routing.CONTRADICTED)


async def release(watch: Watch, name: str, *, author: str, reason: str) -> str:
    """Give the order and return its decision's id. Raises InputError where there is nothing to release, StoreError."""
    async with watch.turns.decider.one_at_a_time:  # what is checked must still be so when it is written
        state, mode = _releasable(watch, name)
        decision = _decision(watch, state, mode, said=f"{author}: {reason}")
        await unbroken(_order(watch, state, decision, watch.generation.driver.name))
    return decision.id


def _releasable(watch: Watch, name: str) -> tuple[TargetState, PoolMode]:
    """The target's state and its pool's mode. Raises InputError where it cannot be released by hand."""
    state = watch.memory.targets.get(name)
    if state is None or state.routing is Routing.IN or state.owner is None:
        raise InputError(f"{name} is not isolated by quantwatch")
    if state.routing not in ISOLATED:
        raise InputError(f"an order for {name} is under way already")
    mode = _mode(watch, name)
    driver = watch.generation.driver
    if state.driver not in (None, driver.name):
        raise InputError(f"{name} was isolated through {state.driver}, and the configuration names {driver.name} now")
    pause = pause_over(name, state.pool, watch.memory, watch.watchlist, now=watch.clock.now())
    if pause is not None:
        said = f"{pause.author} paused {pause.scope}: {pause.reason}"
        ends = "it closes by itself" if pause.window else f"`quantwatch resume {pause.id}` ends that"
        raise InputError(f"{said}; {ends}")
    return state, mode


def _mode(watch: Watch, name: str) -> PoolMode:
    target = watch.watchlist.targets.get(name)
    return PoolMode.OBSERVE if target is None else watch.watchlist.pools[target.pool].rules.mode


def _decision(watch: Watch, state: TargetState, mode: PoolMode, *, said: str) -> Decision:
    now = watch.clock.now()
    id_ = stamp("d", now, f"{watch.random.getrandbits(24):06x}")
    return Decision(id_, now, Wish(Action.RELEASE, state.target, state.pool, said), mode, Ruling.ACT)


async def _order(watch: Watch, old: TargetState, decision: Decision, driver: str) -> None:
    wanted, target = decision.wish, watch.watchlist.targets.get(old.target)
    node = old.node or (target.gateway_name if target is not None else old.target)
    order = Order(decision.id, Action.RELEASE, old.target, old.pool, node, driver, wanted.reason, verdict="unknown")
    state = begun(old, decision, order, process=None)
    changes = moved(old, state, reason=wanted.reason, decision=decision.id, at=decision.at)
    intent = Intent(order, opened=decision.at)
    await watch.keeper.write(lambda one: one.decide(decision, intent=intent, state=state, transitions=changes))
    watch.memory.targets[old.target] = state
    log.warning(f"release: {wanted.reason}", target=old.target, decision_id=decision.id)
    watch.outbox.start(intent)
