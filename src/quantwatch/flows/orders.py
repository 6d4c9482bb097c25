"""The one way to an order: everything that belongs to it is written down at once, and only then it begins."""

from collections.abc import Sequence
from dataclasses import dataclass

from quantwatch.expose.meters import Meters
from quantwatch.flow.decision import Decision, Intent, Order
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.state import SetState, TargetState, Transition
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory, moved
from quantwatch.flows.order import begun
from quantwatch.flows.outbox import Outbox
from quantwatch.log import logger
from quantwatch.record.pools import Given
from quantwatch.record.store import Store

log = logger()


@dataclass(frozen=True, slots=True)
class Due:
    """An order that is to be given. old: where the target stands, a person's word included.

    process: which process of the node is taken out.
    """

    decision: Decision
    order: Order
    old: TargetState
    process: str | None = None

    def given(self, said: Sequence[Transition] = ()) -> Given:
        """All that is written with it. said: changes that a person's word has made besides."""
        made, old = self.decision, self.old
        state = begun(old, made, self.order, process=self.process)
        reason = made.wish.reason
        routed = moved(old, state, reason=reason, decision=made.id, at=made.at, author=made.author)
        return Given(made, Intent(self.order, opened=made.at), state, (*said, *routed))


@dataclass(frozen=True, slots=True)
class Orders:
    """Gives orders."""

    memory: Memory
    keeper: Keeper
    outbox: Outbox
    meters: Meters

    async def give(
        self,
        due: Due,
        *,
        said: Sequence[Transition] = (),
        sets: Sequence[SetState] = (),
        closing: Proposal | None = None,
    ) -> None:
        """Write an order down and hand it over to be carried out. Raises StoreError, and then nothing was done.

        said, sets: what a person's word has changed besides. closing: the proposal that is approved by it, which was
        written as a decision already.
        """
        given = due.given(said)

        def write(store: Store) -> None:
            state, changes = given.state, given.transitions
            if closing is None:
                store.decide(given.decision, intent=given.intent, state=state, transitions=changes, sets=sets)
            else:
                store.close_proposal(closing, intent=given.intent, state=state, transitions=changes)

        await self.keeper.write(write)
        self._begin(given)

    async def give_together(self, due: Sequence[Due], *, closing: Proposal) -> None:
        """The same for every order that the approval of a whole pool leads to: all are written, or none."""
        orders = [one.given() for one in due]
        await self.keeper.write(lambda store: store.approve_pool(closing, orders))
        for one in orders:
            self._begin(one)

    def _begin(self, given: Given) -> None:
        decision, state = given.decision, given.state
        wanted = decision.wish
        self.memory.targets[state.target] = state
        self.memory.nothing_asked(state.target)
        self.meters.decided(wanted.pool, wanted.action, decision.ruling)
        for one in given.transitions:
            self.meters.transition(one)
        log.warning(
            f"{wanted.action}: {wanted.reason}",
            target=state.target,
            decision_id=decision.id,
            pool=wanted.pool,
            run_id=wanted.run,
            author=decision.author,
        )
        self.outbox.start(given.intent)
