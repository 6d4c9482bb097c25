"""What an earlier life has left: open orders are taken up, and the gateway is asked how every target stands."""

import asyncio
import contextlib
from dataclasses import replace

from quantwatch.act.contract import Seen
from quantwatch.act.traffic import Met
from quantwatch.flow.decision import Action, Order, PoolMode, Result
from quantwatch.flow.state import Human, Routing, TargetState
from quantwatch.flows.keeper import unbroken
from quantwatch.flows.memory import moved
from quantwatch.flows.roll import call_roll
from quantwatch.flows.tend import tend
from quantwatch.flows.watch import Watch
from quantwatch.flows.watched import Watched
from quantwatch.judge.wish import insists
from quantwatch.log import logger

log = logger()

LOOK_SECONDS = 10.0
"""How long the gateway may take to answer about all targets; what it has not told by then stays as recorded."""

TRAFFIC_SECONDS = 8.0
"""How long requests through the gateway may take meanwhile."""

UNDER_WAY = (Routing.LEAVING, Routing.RETURNING)

FOUND: dict[tuple[Routing, Seen, bool], tuple[Routing, str]] = {
    (Routing.IN, Seen.ISOLATED, False): (
        Routing.CONTRADICTED,
        "the gateway says isolated, and not by a decision that is on record",
    ),
    (Routing.OUT, Seen.ROUTABLE, True): (
        Routing.CONTRADICTED,
        "the gateway says routable, and on record it is isolated",
    ),
    (Routing.CONTRADICTED, Seen.ISOLATED, True): (Routing.OUT, "the gateway says isolated, as was decided"),
    (Routing.CONTRADICTED, Seen.ROUTABLE, True): (Routing.IN, "the gateway says routable, so it is in traffic"),
    (Routing.CONTRADICTED, Seen.ROUTABLE, False): (Routing.IN, "the gateway says routable again"),
}
"""What follows from a look: by record, the gateway's state, and whether the isolation is ours."""


async def resume(watch: Watch) -> None:
    """Bring record, gateway and orders together before anything new is decided. Raises StoreError."""
    intents = await watch.keeper.write(lambda store: store.open_intents())
    ordered = {one.order.target for one in intents}
    for state in list(watch.memory.targets.values()):
        if state.routing in UNDER_WAY and state.target not in ordered:
            await _put(watch, state, Routing.CONTRADICTED, "an order was under way, and the record of it is lost")
    await tend(watch)
    await look(watch)
    for intent in intents:
        order = intent.order
        log.warning("taking up an order of an earlier life", target=order.target, decision_id=order.decision)
        watch.outbox.start(intent)
    for state in watch.memory.targets.values():
        _remind(watch, state)
    await watch.notices.begin()


async def look(watch: Watch) -> None:
    """Hold the record of every target against the gateway's own state, where that can be read. Raises StoreError.

    Gateways forget at a reload, and people undrain by hand. What has an order under way is left alone. One that hangs
    delays a start by LOOK_SECONDS in all; its lists are then on record as not read, and weights stay as they are.
    """
    end = asyncio.get_running_loop().time() + LOOK_SECONDS
    await asyncio.gather(_looks(watch, end), _rolls(watch))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(end):
            await asyncio.gather(*(watch.shift.tend(one) for one in watch.watchlist.pools))
    for name, target in watch.watchlist.targets.items():
        if insists(watch.memory.target_state(name, target.pool)) is not None:
            await watch.turns.decider.decide(name)


async def _looks(watch: Watch, end: float) -> None:
    """Look at every target at once. end: by the loop's time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(end):
            await asyncio.gather(*(_look(watch, one) for one in watch.watchlist.targets.values()))


async def _rolls(watch: Watch) -> None:
    """Ask for every pool's list at once; each has its own end, which is put on record."""
    driver, now = watch.generation.driver, watch.clock.now()
    pools = [one for one in watch.watchlist.pools.values() if one.rules.mode is not PoolMode.OBSERVE]
    await asyncio.gather(*(call_roll(one, watch.watchlist, watch.memory, driver=driver, now=now) for one in pools))


async def _look(watch: Watch, target: Watched) -> None:
    """A pool that is only watched is left alone, but for what a person has forced out of it."""
    driver = watch.generation.driver
    pool = watch.watchlist.pools[target.pool]
    state = watch.memory.target_state(target.name, target.pool)
    spared = pool.rules.mode is PoolMode.OBSERVE and state.human is not Human.FORCED_OUT
    if spared or not driver.abilities.reads_back or not driver.abilities.calls:
        return
    if state.routing in UNDER_WAY:
        return
    seen = await driver.observe(_question(target, state, driver.name))
    if seen is Seen.ISOLATED and await _still_met(watch, state):
        return
    async with watch.one_at_a_time:
        if watch.memory.target_state(target.name, target.pool) != state:
            return  # an order has begun or ended meanwhile, or a person has spoken
        found = FOUND.get((state.routing, seen, state.owner is not None))
        if found is not None:
            await unbroken(_put(watch, state, *found))


async def _still_met(watch: Watch, state: TargetState) -> bool:
    """Whether traffic that contradicted an isolation may still do so: the gateway said "isolated" then too.

    Only requests that others answered end that; what cannot be told changes nothing.
    """
    ended, traffic = watch.memory.ended.get(state.target), watch.generation.traffic
    if traffic is None or state.routing is not Routing.CONTRADICTED or ended is None or ended.outcome is None:
        return False
    if ended.order.decision != state.owner or ended.outcome.result is not Result.CONTRADICTED:
        return False
    try:
        async with asyncio.timeout(TRAFFIC_SECONDS):
            return (await traffic.ask(ended.order)).met is not Met.OTHERS
    except TimeoutError:
        return True


def _question(target: Watched, state: TargetState, driver: str) -> Order:
    """An order in form only, to name the node to the driver, and which decision took it out if one did."""
    node = state.node or target.gateway_name
    return Order(state.owner or "", Action.ISOLATE, target.name, target.pool, node, driver, reason="", verdict="")


async def _put(watch: Watch, old: TargetState, routing: Routing, why: str) -> None:
    now = watch.clock.now()
    new = replace(old, routing=routing, since=now)
    if routing is Routing.IN:
        new = replace(new, owner=None, gone=None, lane=None, node=None, driver=None)
    changes = moved(old, new, reason=why, decision=old.owner, at=now)
    await watch.keeper.write(lambda store: store.save_target(new, changes))
    watch.memory.targets[new.target] = new
    for one in changes:
        watch.meters.transition(one)
    log.error(f"routing is {routing} now: {why}", target=new.target)


def _remind(watch: Watch, state: TargetState) -> None:
    """Say which isolations nothing will ever end by itself."""
    target = watch.watchlist.targets.get(state.target)
    if state.routing is Routing.IN:
        return
    if target is None:
        why = "it is no longer configured"
    elif watch.watchlist.pools[target.pool].rules.mode is PoolMode.OBSERVE:
        why = "its pool is only observed"
    else:
        return
    log.warning(f"isolated, and {why}: `quantwatch release` brings it back", target=state.target)
