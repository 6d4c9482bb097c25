"""Pools as a whole: a storm is kept count of and written down, its yardstick proven at once, and people are asked."""

import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from quantwatch.errors import StoreError
from quantwatch.flow.decision import Brake, Decision, Objection, PoolMode, Ruling
from quantwatch.flow.fleet import Fallback
from quantwatch.flow.pool import PoolStanding, PoolState, whole
from quantwatch.flow.run import fresh_id
from quantwatch.flow.state import Axis, Transition
from quantwatch.flows.case import PoolCase, pool_case
from quantwatch.flows.decide import Decider, rungs_above
from quantwatch.flows.keeper import unbroken
from quantwatch.flows.memory import Memory, Pair
from quantwatch.flows.watched import Watchlist
from quantwatch.flows.weather import guilty, storming
from quantwatch.judge.fleet import said, together
from quantwatch.log import logger

log = logger()

AGAIN = timedelta(minutes=5)
"""After so long a yardstick that could not be proven is checked once more."""


IDLE = Objection(Brake.DRY_RUN, "the pool's mode is dry_run, or its driver changes nothing, so nobody is asked")
ASKS = Objection(Brake.AWAITING_APPROVAL, "a person has to agree to isolating a whole pool")


@dataclass(frozen=True, slots=True)
class Storms:
    """Looks at pools. prove: checks the yardstick against what breaches. under_way: pools for which it does so now."""

    decider: Decider
    prove: Callable[[Collection[Pair]], Awaitable[None]]
    under_way: set[str] = field(default_factory=set)

    @property
    def memory(self) -> Memory:
        """What the daemon knows."""
        return self.decider.memory

    @property
    def watchlist(self) -> Watchlist:
        """The configuration in force."""
        return self.decider.watchlist()

    async def look(self, pool: str) -> None:
        """After a run: where the pool stands now, whether that is its nodes' fault, and whether to ask people."""
        await self._settled(pool)
        if self._due(pool):
            await self._check(pool)
            await self._settled(pool)
        await self._ask(pool)

    async def tend(self) -> None:
        """End storms whose cooldown is over. Whoever calls holds the lock of whoever decides."""
        for pool in list(self.watchlist.pools):
            await unbroken(self._settle(pool))

    async def _settled(self, pool: str) -> None:
        async with self.decider.one_at_a_time:
            await unbroken(self._settle(pool))

    async def _settle(self, name: str) -> None:
        """Reckon where a pool stands, and write down what has changed; what cannot be written is tried again."""
        pool = self.watchlist.pools.get(name)
        if pool is None:
            return
        storming(pool, self.watchlist, self.memory, self.decider.clock.now())
        old, new = self.memory.kept.get(name, PoolStanding(name)), self.memory.storms[name]
        if new == old:
            return
        changes = _changes(old, new)
        with contextlib.suppress(StoreError):
            await self.decider.keeper.write(lambda store: store.save_pool(new, changes))
            self.memory.kept[name] = new
            for one in changes:
                self.decider.meters.transition(one)
                tell = log.info if new.state is PoolState.HEALTHY else log.error
                tell(f"pool is {new.state} now: {new.reason}", pool=name, was=str(old.state))

    def _due(self, pool: str) -> bool:
        """Whether the yardstick is to be checked now: once for a storm, and again while that proves nothing."""
        at, last = self.memory.storms.get(pool, PoolStanding(pool)), self.memory.checked.get(pool)
        if at.raging is None or pool in self.under_way:
            return False
        if last is None or last < at.raging:
            return True
        return at.state is PoolState.STORM and self.decider.clock.now() - last >= AGAIN

    async def _check(self, pool: str) -> None:
        found = guilty(pool, self.watchlist, self.memory, self.decider.clock.now())
        self.under_way.add(pool)
        log.warning("many members of a pool breach at once, so the yardstick is checked", pool=pool)
        try:
            await self.prove(tuple(found))
        finally:
            self.under_way.discard(pool)
            self.memory.checked[pool] = self.decider.clock.now()

    async def _ask(self, name: str) -> None:
        """Put a degraded pool before people, or record that it would be."""
        found = self._case(name)
        if found is None:
            return
        fallbacks = await self.decider.ask_ahead(found.pool, [one.target for one in found.members])
        async with self.decider.one_at_a_time:
            case = self._case(name)
            if case is not None and case.pool == found.pool:
                with contextlib.suppress(StoreError):  # the next run asks again
                    await unbroken(self._put(case, fallbacks))

    def _case(self, name: str) -> PoolCase | None:
        """What there is to ask, unless it waits already."""
        if whole(name) in self.memory.proposals:
            return None
        found = pool_case(name, self.memory, self.watchlist, self.decider.clock.now())
        if isinstance(found, str):
            self.memory.told.pop(whole(name), None)  # when it comes again, it is recorded again
            return None
        return found

    async def _put(self, case: PoolCase, fallbacks: Mapping[int, Fallback | None]) -> None:
        decision = await self._decision(case, fallbacks)
        if decision.ruling is Ruling.PROPOSED:
            await self.decider.proposals.propose(decision, case)
            return
        key = (decision.ruling, tuple(one.brake for one in decision.objections))
        if self.memory.told.get(case.wish.target) != key:
            await self.decider.keeper.write(lambda store: store.decide(decision))
            self.memory.told[case.wish.target] = key
            self.decider.meters.decided(case.pool.name, case.wish.action, decision.ruling)

    async def _decision(self, case: PoolCase, fallbacks: Mapping[int, Fallback | None]) -> Decision:
        """Raises StoreError."""
        now, mode = self.decider.clock.now(), case.pool.rules.mode
        asked = [
            await self.decider.asked(one, fallbacks.get(rungs_above(one.target, case.pool))) for one in case.members
        ]
        ruled = together(asked)
        objections = list(said(ruled))
        id_ = fresh_id("d", now, self.decider.random)
        dry = mode is PoolMode.DRY_RUN or not self.decider.driver().abilities.acts
        paused = any(one.covers(case.wish.target, case.pool.name, now=now) for one in self.memory.pausing(now))
        if dry or paused:
            free = not paused and any(ruling is Ruling.ACT for ruling, _ in ruled)
            objections += [IDLE] if dry else []
            ruling = Ruling.WOULD_HAVE if free else Ruling.SUPPRESSED
            return Decision(id_, now, case.wish, mode, ruling, tuple(objections))
        return Decision(id_, now, case.wish, mode, Ruling.PROPOSED, (*objections, ASKS))


def _changes(old: PoolStanding, new: PoolStanding) -> list[Transition]:
    if old.state is new.state or new.since is None:
        return []
    return [Transition(new.since, whole(new.pool), Axis.POOL, str(old.state), str(new.state), new.reason)]
