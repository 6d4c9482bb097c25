"""From the verdicts on a target to an order, or to the reasons why not; everything is written down first."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from quantwatch.act.contract import Driver
from quantwatch.clock import Clock
from quantwatch.errors import StoreError
from quantwatch.expose.meters import Meters
from quantwatch.flow.decision import Action, Brake, Decision, Objection, Origin, PoolMode, Ruling, Wish
from quantwatch.flow.fleet import Fallback, Fleet
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.run import fresh_id
from quantwatch.flows.case import Case, case_of
from quantwatch.flows.keeper import Keeper, unbroken
from quantwatch.flows.memory import Memory
from quantwatch.flows.order import order_of
from quantwatch.flows.orders import Due, Orders
from quantwatch.flows.proposals import Proposals
from quantwatch.flows.roll import call_roll
from quantwatch.flows.scene import scene
from quantwatch.flows.spans import decided
from quantwatch.flows.stand_in import StandIns
from quantwatch.flows.watched import Watched, WatchedPool, Watchlist
from quantwatch.judge.brake import insisted, objections, ruling
from quantwatch.judge.ladder import above, aimed
from quantwatch.log import logger
from quantwatch.trace import current

log = logger()


@dataclass(frozen=True, slots=True)
class Decider:
    """Decides about one target at a time, so that a cap is checked and used in one step."""

    memory: Memory
    keeper: Keeper
    orders: Orders
    proposals: Proposals
    meters: Meters
    clock: Clock
    random: Random
    watchlist: Callable[[], Watchlist]
    driver: Callable[[], Driver]
    one_at_a_time: asyncio.Lock

    async def decide(self, name: str) -> None:
        """Wish, hear the objections, write the ruling down, and hand an order over to be carried out.

        By the configuration of now, not by that of the run: a pool may have been set to observe meanwhile.
        """
        found = self._case(name)
        if found is None:
            return
        fallbacks = await self.ask_ahead(found.pool, [found.target])
        async with self.one_at_a_time:
            case = self._case(name)  # again: what was asked for may have been done meanwhile
            if case is not None and case.pool == found.pool:
                await unbroken(self._rule(case, fallbacks.get(rungs_above(case.target, case.pool))))

    async def ask_ahead(self, pool: WatchedPool, leaving: Iterable[Watched]) -> Mapping[int, Fallback | None]:
        """Who would take over from each rung of those that would leave, by how many rungs stand above it, asked now.

        The gateway's own list is read as well. Both may take seconds, in which nobody else should wait for the lock.
        """
        watchlist, driver = self.watchlist(), self.driver()
        stand_ins = StandIns(watchlist, self.memory, driver.abilities)
        lowest = {rungs_above(one, pool): one for one in leaving}
        found = {above: await stand_ins.of(one, pool, self.clock.now()) for above, one in lowest.items()}
        await call_roll(pool, watchlist, self.memory, driver=driver, now=self.clock.now())
        return found

    async def _rule(self, case: Case, fallback: Fallback | None) -> None:
        decision = await self._decision(case, fallback)
        current().note(decided(decision))
        for objection in decision.objections:
            self.meters.suppressed(case.pool.name, objection.brake)
        if decision.ruling is Ruling.ACT:
            try:
                await self.act(decision, case)
            except StoreError as exc:
                self.meters.suppressed(case.pool.name, Brake.STORE)
                log.error("decision not written, so nothing was done", target=case.target.name, reason=str(exc))
        elif decision.ruling is Ruling.PROPOSED:
            self.memory.held[case.target.name] = None  # people are asked, so nothing is held back
            await self.proposals.propose(decision, case)
        else:
            await self._leave(decision)

    def _case(self, name: str) -> Case | None:
        return case_of(name, self.memory, self.watchlist(), self.clock.now())

    async def _decision(self, case: Case, fallback: Fallback | None) -> Decision:
        wanted, now = case.wish, self.clock.now()
        id_ = fresh_id("d", now, self.random)
        mode = case.pool.rules.mode
        try:
            fleet = await scene(wanted, case.watchlist, self.memory, self.keeper, now=now, fallback=fallback)
        except StoreError as exc:
            blind = Objection(Brake.STORE, str(exc))
            return Decision(id_, now, wanted, mode, Ruling.SUPPRESSED, (blind,))
        fleet = replace(self._as_the_driver_can(fleet), driver=self._other_way(case))
        wanted = aimed(wanted, fleet)
        if case.author is not None:
            return Decision(id_, now, wanted, mode, *insisted(wanted, fleet), case.author, Origin.PERSON)
        return Decision(id_, now, wanted, mode, *ruling(wanted, fleet))

    async def objecting(self, case: Case, fallback: Fallback | None) -> tuple[Wish, tuple[Objection, ...]]:
        """The wish as it would be done now, and what objects to it, apart from the pool's mode. Raises StoreError."""
        wanted, fleet = await self.asked(case, fallback)
        return wanted, objections(wanted, fleet)

    async def asked(self, case: Case, fallback: Fallback | None) -> tuple[Wish, Fleet]:
        """A wish as it would be done now, and its pool as the brakes see it. Raises StoreError."""
        now = self.clock.now()
        fleet = await scene(case.wish, case.watchlist, self.memory, self.keeper, now=now, fallback=fallback)
        return aimed(case.wish, fleet), replace(fleet, driver=self._other_way(case))

    def _other_way(self, case: Case) -> str | None:
        """Why a release cannot go the way the isolation went, or would bring back another node than was measured.

        What a person forced out is out in no sense where the driver changes nothing.
        """
        state = self.memory.target_state(case.target.name, case.pool.name)
        if case.wish.action is Action.ISOLATE:
            idle = case.author is not None and not self.driver().abilities.acts
            return f"gateway.driver {self.driver().name} changes nothing" if idle else None
        if state.driver not in (None, self.driver().name):
            return f"it was isolated through {state.driver}, and the configuration names {self.driver().name} now"
        if state.node not in (None, case.target.gateway_name):
            return f"it was isolated as {state.node}, and {case.target.gateway_name} is what is measured now"
        return None

    def _as_the_driver_can(self, fleet: Fleet) -> Fleet:
        """A driver that changes nothing can only say what it would have done."""
        if self.driver().abilities.acts or fleet.rules.mode not in (PoolMode.ENFORCE, PoolMode.APPROVE):
            return fleet
        return replace(fleet, rules=replace(fleet.rules, mode=PoolMode.DRY_RUN))

    async def act(self, decision: Decision, case: Case, *, closing: Proposal | None = None) -> None:
        """Give the order that a decision asks for. closing: the proposal that is approved by it. Raises StoreError."""
        await self.orders.give(self._due(decision, case), closing=closing)

    async def act_together(self, made: Sequence[tuple[Decision, Case]], *, closing: Proposal) -> None:
        """Give the orders that one yes to a whole pool leads to, all or none. Raises StoreError."""
        await self.orders.give_together([self._due(*one) for one in made], closing=closing)

    def _due(self, decision: Decision, case: Case) -> Due:
        wanted, target = decision.wish, case.target
        states = self.memory.states_of(target.name, target.sets)
        old = self.memory.target_state(target.name, case.pool.name)
        same = old.node if wanted.action is Action.RELEASE else None
        order = order_of(decision, target, case.pool, driver=self.driver().name, states=states, node=same)
        guilty = next((one.process for one in states if one.task_set == wanted.task_set), None)
        return Due(decision, order, old, guilty)

    async def _leave(self, decision: Decision) -> None:
        """Record a wish that nothing is done about, once for as long as the same things object."""
        wanted = decision.wish
        self.memory.held[wanted.target] = decision
        self.meters.decided(wanted.pool, wanted.action, decision.ruling)
        key = (
            wanted.action,
            wanted.lane,
            wanted.task_set,
            decision.ruling,
            tuple(o.brake for o in decision.objections),
        )
        if self.memory.told.get(wanted.target) == key:
            return
        why = "; ".join(one.reason for one in decision.objections)
        log.warning(
            f"would {wanted.action}, but did not: {why}",
            target=wanted.target,
            decision_id=decision.id,
            reason=wanted.reason,
        )
        try:
            await self.keeper.write(lambda store: store.decide(decision, intent=None, state=None, transitions=()))
        except StoreError:
            return
        self.memory.told[wanted.target] = key


def rungs_above(target: Watched, pool: WatchedPool) -> int:
    """How many rungs stand above a target's own; 0 off a ladder."""
    return len(above(target.name, pool.ladder))
