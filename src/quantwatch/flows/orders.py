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
from quantwatch.record.store import Store

log = logger()


@dataclass(frozen=True, slots=True)
class Orders:
    """Gives orders."""

    memory: Memory
    keeper: Keeper
    outbox: Outbox
    meters: Meters

    async def give(
        self,
        decision: Decision,
        order: Order,
        *,
        old: TargetState,
        process: str | None = None,
        said: Sequence[Transition] = (),
        sets: Sequence[SetState] = (),
        closing: Proposal | None = None,
    ) -> None:
        """Write an order down and hand it over to be carried out. Raises StoreError, and then nothing was done.

        old: where the target stands, a person's word included; process: which process of the node is taken out. said,
        sets: what a person's word has changed besides. closing: the proposal that is approved by it, which was written
        as a decision already.
        """
        wanted = decision.wish
        state = begun(old, decision, order, process=process)
        routed = moved(old, state, reason=wanted.reason, decision=decision.id, at=decision.at, author=decision.author)
        changes, intent = [*said, *routed], Intent(order, opened=decision.at)

        def write(store: Store) -> None:
            if closing is None:
                store.decide(decision, intent=intent, state=state, transitions=changes, sets=sets)
            else:
                store.close_proposal(closing, intent=intent, state=state, transitions=changes)

        await self.keeper.write(write)
        self.memory.targets[state.target] = state
        self.memory.nothing_asked(state.target)
        self.meters.decided(wanted.pool, wanted.action, decision.ruling)
        for one in changes:
            self.meters.transition(one)
        log.warning(
            f"{wanted.action}: {wanted.reason}",
            target=state.target,
            decision_id=decision.id,
            pool=wanted.pool,
            run_id=wanted.run,
            author=decision.author,
        )
        self.outbox.start(intent)
