"""Shifts the traffic of a ladder by weights: up at once and before anybody leaves, down step by step.

Nothing of it is kept: the gateway itself tells how far it has come, so a restart goes on where the last life stopped.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from quantwatch.act.contract import Driver, Weighs
from quantwatch.clock import Clock
from quantwatch.errors import GatewayError, StoreError
from quantwatch.flow.decision import Action, Order, PoolMode, Wish
from quantwatch.flow.state import AWAY, Axis, Routing, TargetState, Transition
from quantwatch.flow.verdict import Quality
from quantwatch.flows.generation import Generation
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory
from quantwatch.flows.pools import BASELINE
from quantwatch.flows.scene import against_baseline, scene, sound
from quantwatch.flows.shifting import at_a_loss, shifting
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
        way or in doubt. A gateway that is slow to tell keeps nobody else waiting.
        """
        driver, pool = self.generation().driver, self._watchlist.pools.get(name)
        if pool is None or not pool.steps or pool.rules.mode not in ACTING or not isinstance(driver, Weighs):
            self.memory.weights = {one: share for one, share in self.memory.weights.items() if self._pool(one) != name}
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                await self._tend(pool, driver)

    async def _tend(self, pool: WatchedPool, driver: Weighs) -> None:
        found, known = self._found(pool), dict(self.memory.weights)
        if self._hindered(pool, found):
            return
        inside = {name for name, one in found.items() if not one.away}
        now = await self._read(inside, driver)
        async with self.one_at_a_time:  # so that no order begins meanwhile
            told = {name: self.memory.weights.get(name) for name in now}
            moved = any(told[name] not in (known.get(name), share) for name, share in now.items())
            if moved or self._found(pool) != found or self._hindered(pool, found) or not self._in_force(pool, driver):
                return  # what was read may be of a moment before; who has changed it looks as well
            others = {name: one for name, one in self.memory.weights.items() if name not in found}
            self.memory.weights = {**others, **now}
            if len(now) == len(inside):  # whoever is not known may have any share
                await self._set(pool, now, driver)

    async def _read(self, names: Iterable[str], driver: Weighs) -> Mapping[str, int]:
        """The share of each; none after the first that cannot be told, since nothing can be set then."""
        now: dict[str, int] = {}
        for name in sorted(names):
            share = await driver.weight(self._node(name))
            if share is None:
                break
            now[name] = share
        return now

    async def _set(self, pool: WatchedPool, now: Mapping[str, int], driver: Weighs) -> None:
        good, bad = self._quality(pool)
        if at_a_loss(pool.ladder, now, good=good, bad=bad):
            return
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

    def _in_force(self, pool: WatchedPool, driver: object) -> bool:
        return self.generation().driver is driver and self._watchlist.pools.get(pool.name) is pool

    def _quality(self, pool: WatchedPool) -> tuple[frozenset[str], frozenset[str]]:
        """Who is good by fresh results, or as the baseline proven lately, and who breaches; the rest is not known."""
        now = self.clock.now()
        bad = breaching(pool.name, self._watchlist, self.memory, now)
        proven = {BASELINE} if against_baseline(self.memory, now) is None else set()
        return (sound(pool.name, self._watchlist, self.memory, now) | proven) - bad, bad

    def _found(self, pool: WatchedPool) -> Mapping[str, TargetState]:
        return {name: self._state(name, pool) for name in self._names(pool)}

    def _names(self, pool: WatchedPool) -> list[str]:
        return [name for rung in pool.ladder for name in rung.members]

    def _state(self, name: str, pool: WatchedPool) -> TargetState:
        return self.memory.target_state(name, pool.name)

    def _node(self, name: str) -> str:
        known = self._watchlist.targets.get(name)
        return known.gateway_name if known is not None else next(iter(self._watchlist.pools.values())).baseline_name
