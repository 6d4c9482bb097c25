"""What waits for a person: proposed once, closed once, and never longer open than what speaks for it stands."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from quantwatch.clock import Clock
from quantwatch.errors import StoreError
from quantwatch.expose.meters import Meters
from quantwatch.flow.decision import Action, Brake, Decision, Wish
from quantwatch.flow.proposal import Fate, Proposal
from quantwatch.flows.case import Case, standing
from quantwatch.flows.keeper import Keeper, unbroken
from quantwatch.flows.memory import Memory
from quantwatch.flows.resting import keep_pause, own_pause
from quantwatch.flows.watched import Watchlist
from quantwatch.judge.proposal import may_be_proposed
from quantwatch.log import logger

log = logger()

MOST_OPEN = 5
"""Proposals of a pool that may wait at once: where one more is wanted, somebody should look at the pool as a whole."""


@dataclass(frozen=True, slots=True)
class Proposals:
    """Keeps what waits for a person. Whoever calls holds the lock of whoever decides."""

    memory: Memory
    keeper: Keeper
    meters: Meters
    clock: Clock
    watchlist: Callable[[], Watchlist]

    async def propose(self, decision: Decision, case: Case) -> None:
        """Put a wish before people, unless one of its target waits already or the same one was answered lately."""
        wanted, pool = decision.wish, case.pool
        if wanted.target in self.memory.proposals:
            return
        evidence = self.evidence(wanted)
        last = self.memory.closed.get((wanted.target, wanted.action))
        rest = pool.approval_seconds
        if not may_be_proposed(wanted, evidence, last, now=decision.at, rest_seconds=rest):
            return
        if sum(one.pool == pool.name for one in self.memory.proposals.values()) >= MOST_OPEN:
            await self._too_many(decision, seconds=rest)
            return
        others = [one.reason for one in decision.objections if one.brake is not Brake.AWAITING_APPROVAL]
        proposal = Proposal(
            decision=decision.id,
            target=wanted.target,
            pool=pool.name,
            action=wanted.action,
            reason=wanted.reason,
            evidence=evidence,
            opened=decision.at,
            expires=decision.at + timedelta(seconds=rest),
            task_set=wanted.task_set,
            lane=wanted.lane,
            objections="; ".join(others),
        )
        with contextlib.suppress(StoreError):  # the next run asks again
            await self.keeper.write(lambda store: store.decide(decision, proposal=proposal))
            self.memory.proposals[wanted.target] = proposal
            self.meters.decided(pool.name, wanted.action, decision.ruling)
            said = f"{wanted.action} waits for approval: {wanted.reason}"
            log.warning(said, target=wanted.target, decision_id=decision.id, objections=proposal.objections)

    async def tend(self) -> None:
        """Close what has expired, and what is no longer asked for. Raises StoreError."""
        for one in list(self.memory.proposals.values()):
            now = self.clock.now()
            found = standing(one, self.memory, self.watchlist(), now)
            if isinstance(found, str):
                await self.close(one, Fate.WITHDRAWN, author="quantwatch", said=found)
            elif now >= one.expires:
                await self.close(one, Fate.EXPIRED, author="quantwatch", said="nobody answered in time")

    async def close(self, proposal: Proposal, fate: Fate, *, author: str, said: str) -> None:
        """Write how a proposal ended. Raises StoreError, and then it stays open."""
        closed = self.closed(proposal, fate, author=author, said=said)
        await unbroken(self._close(closed))
        log.warning(f"proposal {fate}: {said}", target=closed.target, decision_id=closed.decision, author=author)

    async def _close(self, closed: Proposal) -> None:
        await self.keeper.write(lambda store: store.close_proposal(closed))
        self.forget(closed)

    def closed(self, proposal: Proposal, fate: Fate, *, author: str, said: str) -> Proposal:
        """The proposal as it ends now, on the evidence of now."""
        now = self.clock.now()
        found = standing(proposal, self.memory, self.watchlist(), now)
        evidence = proposal.evidence if isinstance(found, str) else self.evidence(found.wish)
        return replace(proposal, fate=fate, closed=now, author=author, said=said, evidence=evidence)

    def forget(self, closed: Proposal) -> None:
        """Remember that a proposal is closed, once that is written."""
        self.memory.proposals.pop(closed.target, None)
        self.memory.closed[closed.target, closed.action] = closed
        self.meters.proposal_closed(closed.pool, closed.action, closed.fate)

    def evidence(self, wanted: Wish) -> str:
        """The runs that speak for a wish now."""
        if wanted.action is Action.ISOLATE:
            return wanted.run or ""
        target = self.watchlist().targets[wanted.target]
        return ",".join(sorted(one.run or "" for one in self.memory.states_of(target.name, target.sets)))

    async def _too_many(self, decision: Decision, *, seconds: float) -> None:
        """Let nothing more happen in a pool for which nobody answers."""
        wanted = decision.wish
        said = f"{MOST_OPEN} proposals wait for a person, and one more is wanted: {wanted.action} {wanted.target}"
        lasts = timedelta(seconds=seconds)
        pause = own_pause(f"pool:{wanted.pool}", said, decision=decision.id, at=decision.at, lasts=lasts)
        self.meters.paused_itself("approvals")
        log.error("paused, since too many proposals wait", pool=wanted.pool, pause_id=pause.id, reason=said)
        await keep_pause(pause, self.memory, self.keeper)
