"""Shifts the traffic of a ladder by weights: up at once and before anybody leaves, down step by step.

Nothing of it is kept: the gateway itself tells how far it has come, so a restart goes on where the last life stopped.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from quantwatch.act.contract import Driver, Seen, Unanswered, Weighs
from quantwatch.clock import Clock
from quantwatch.errors import GatewayError, GatewayRefused, GatewayUnavailable, StoreError
from quantwatch.flow.decision import Action, Order, PoolMode, Wish
from quantwatch.flow.state import AWAY, Axis, Routing, TargetState, Transition
from quantwatch.flow.verdict import Quality
from quantwatch.flows.generation import Generation
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory
from quantwatch.flows.scene import scene
from quantwatch.flows.watched import WatchedPool, Watchlist
from quantwatch.flows.weather import breaching
from quantwatch.judge.brake import objections
from quantwatch.judge.ladder import WHOLE, shares
from quantwatch.judge.standing import fresh
from quantwatch.log import logger

log = logger()

ACTING = (PoolMode.APPROVE, PoolMode.ENFORCE)
SECONDS = 20.0
"""How long one look may take; the gateway keeps what was set until then, and the next look goes on."""

UNSETTLED = AWAY - {Routing.OUT}


@dataclass(frozen=True, slots=True)
class Shift:
    """Keeps the weights of ladders as they should be. generation: the configuration in force."""

    memory: Memory
    keeper: Keeper
    clock: Clock
    one_at_a_time: asyncio.Lock
    generation: Callable[[], Generation]

    def carrying(self, order: Order) -> Driver:
        """The driver as it carries out an order."""
        now = self.generation()
        return now.probed(shifting(now.driver, order, now.watchlist, self.memory))

    async def follow(self, order: Order) -> None:
        """Look at an order's pool once it has ended."""
        await self.tend(order.pool)

    async def tend(self, name: str) -> None:
        """Read the weights of a pool back, and set those that should be others. Raises nothing of the gateway's.

        Nothing is touched while the pool is only watched or paused, the store cannot be written, or an order is under
        way or in doubt.
        """
        driver, pool = self.generation().driver, self._watchlist.pools.get(name)
        if pool is None or not pool.steps or pool.rules.mode not in ACTING or not isinstance(driver, Weighs):
            self.memory.weights = {one: share for one, share in self.memory.weights.items() if self._pool(one) != name}
            return
        with contextlib.suppress(TimeoutError):
            async with self.one_at_a_time, asyncio.timeout(SECONDS):  # so that no order begins meanwhile
                await self._tend(pool, driver)

    async def _tend(self, pool: WatchedPool, driver: Weighs) -> None:
        states = {name: self._state(name, pool) for name in self._names(pool)}
        if self._hindered(pool, states):
            return
        inside = {name for name, one in states.items() if not one.away}
        now = {name: share for name in inside if (share := await driver.weight(self._node(name))) is not None}
        self.memory.weights = {
            **{name: one for name, one in self.memory.weights.items() if name not in states},
            **now,
        }
        if len(now) == len(inside):  # whoever is not known may have any share
            await self._set(pool, now, driver)

    async def _set(self, pool: WatchedPool, now: Mapping[str, int], driver: Weighs) -> None:
        good = now.keys() - breaching(pool.name, self._watchlist, self.memory, self.clock.now())
        stepping = [name for name in now if now[name] < WHOLE and await self._may_step(name, pool)]
        wanted = shares(pool.ladder, now, sound=good, stepping=stepping, steps=pool.steps)
        for name, share in wanted.items():
            try:
                said = await driver.weigh(self._node(name), share)
            except GatewayError as exc:
                log.warning("a weight could not be set", target=name, reason=str(exc))
                return  # whoever is to get less keeps what it has until others have more
            self.memory.weights[name] = share
            log.info(f"from {now[name]} % to {share} % of its weight: {said}", target=name, pool=pool.name)
            if name in stepping:
                await self._note(name, pool, (now[name], share))

    async def _may_step(self, name: str, pool: WatchedPool) -> bool:
        """Whether every task set was clean since the last step, and nothing objects to more traffic."""
        target = self._watchlist.targets.get(name)
        if target is None:
            return True
        at = self.clock.now()
        # an earlier life may have stepped after the runs that it has left
        since = max(self.memory.stepped.setdefault(name, at), self._state(name, pool).since or at)
        for state in self.memory.states_of(name, target.sets):
            recent = fresh(state, now=at, period_seconds=target.sets[state.task_set].period_seconds)
            if not recent or state.last is not Quality.OK or state.at is None or state.at <= since:
                return False
        wish = Wish(Action.RELEASE, name, pool.name, "clean")
        try:
            fleet = await scene(wish, self._watchlist, self.memory, self.keeper, now=at, fallback=None)
        except StoreError:
            return False
        return not objections(wish, fleet)

    async def _note(self, name: str, pool: WatchedPool, share: tuple[int, int]) -> None:
        """Write a step down."""
        at = self.clock.now()
        self.memory.stepped[name] = at
        state = self._state(name, pool)
        said = f"from {share[0]} % to {share[1]} % of its weight, after clean runs of every task set"
        change = Transition(at, name, Axis.ROUTING, str(state.routing), str(state.routing), said)
        try:
            await self.keeper.write(lambda store: store.save_target(state, [change]))
        except StoreError as exc:
            log.error("a step that was taken is not written down", target=name, reason=str(exc))

    def _pool(self, name: str) -> str | None:
        known = self._watchlist.targets.get(name)
        return known.pool if known is not None else None

    @property
    def _watchlist(self) -> Watchlist:
        return self.generation().watchlist

    def _hindered(self, pool: WatchedPool, states: Mapping[str, TargetState]) -> bool:
        now = self.clock.now()
        paused = any(one.covers("", pool.name, now=now) for one in self.memory.pausing(now))
        return paused or self.keeper.trouble is not None or any(one.routing in UNSETTLED for one in states.values())

    def _names(self, pool: WatchedPool) -> list[str]:
        return [name for rung in pool.ladder for name in rung.members]

    def _state(self, name: str, pool: WatchedPool) -> TargetState:
        return self.memory.target_state(name, pool.name)

    def _node(self, name: str) -> str:
        known = self._watchlist.targets.get(name)
        return known.gateway_name if known is not None else next(iter(self._watchlist.pools.values())).baseline_name


class Shifting:
    """A driver that sets weights before an order. before: percent by the name at the gateway.

    Whoever stands in has everything before anybody leaves, and whoever comes back begins with the first step.
    """

    def __init__(self, driver: Driver, weighs: Weighs, before: Mapping[str, int]) -> None:
        self.name, self.abilities = driver.name, driver.abilities
        self._driver, self._weighs, self._before = driver, weighs, before

    async def call(self, order: Order) -> str:
        """Set the weights, then pass the order on. A refused weight holds no order up: what counts is who is in.

        Raises Unanswered or GatewayRefused.
        """
        for node, share in self._before.items():
            try:
                await self._weighs.weigh(node, share)
            except GatewayRefused as exc:
                log.warning("a weight could not be set", node=node, share=share, reason=str(exc))
            except GatewayUnavailable as exc:
                raise Unanswered(str(exc), arrived=False) from exc  # the order itself was not sent
        return await self._driver.call(order)

    async def observe(self, order: Order) -> Seen:
        """Pass the question on."""
        return await self._driver.observe(order)


def shifting(driver: Driver, order: Order, watchlist: Watchlist, memory: Memory) -> Driver:
    """The driver for an order: with weights around it where its pool is a ladder that shifts."""
    pool = watchlist.pools.get(order.pool)
    if pool is None or not pool.steps or not isinstance(driver, Weighs):
        return driver
    if order.action is Action.RELEASE:
        return Shifting(driver, driver, {order.node: pool.steps[0]})
    names = next((one.members for one in pool.ladder if one.name == order.rung and order.target not in one.members), ())
    inside = [one for one in names if not memory.target_state(one, pool.name).away]
    known = {one.name: one.gateway_name for one in watchlist.targets.values()}
    return Shifting(driver, driver, {known.get(one, pool.baseline_name): WHOLE for one in inside})
