"""Orders under way: each is carried out to its end beside the runs, and its end changes the target's routing."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

from quantwatch.act.carry_out import Attempt, carry_out
from quantwatch.act.contract import Driver
from quantwatch.clock import Clock
from quantwatch.errors import StoreError
from quantwatch.expose.meters import Meters
from quantwatch.flow.decision import DONE, Intent, Order, Outcome, Result
from quantwatch.flows.keeper import Keeper, unbroken
from quantwatch.flows.memory import Memory, moved
from quantwatch.flows.order import settled
from quantwatch.flows.resting import keep_pause, own_pause
from quantwatch.flows.spans import order_ended, traced_order
from quantwatch.log import logger

log = logger()

FAILURES = 3
"""Orders for one target in a row that came to nothing, after which it is left alone."""

REST = timedelta(hours=6)


class Outbox:
    """Carries out intents. driver, give_up_seconds: by the configuration of now. wanted: why an order no longer is.

    one_at_a_time: held by whoever changes a target's state. trouble: what the latest call failed with, None after one
    that worked. after: called once an order has ended and that is written.
    """

    def __init__(
        self,
        memory: Memory,
        keeper: Keeper,
        meters: Meters,
        clock: Clock,
        *,
        one_at_a_time: asyncio.Lock,
        driver: Callable[[Order], Driver],
        give_up_seconds: Callable[[], float],
        wanted: Callable[[Order], str | None],
    ) -> None:
        self._memory = memory
        self._keeper = keeper
        self._meters = meters
        self._clock = clock
        self._one_at_a_time = one_at_a_time
        self._driver = driver
        self._give_up_seconds = give_up_seconds
        self._wanted = wanted
        self._intents: dict[str, Intent] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.trouble: str | None = None
        self.after: Callable[[Order], Awaitable[None]] = _nothing

    @property
    def open(self) -> int:
        """Orders that are not settled."""
        return len(self._intents)

    def start(self, intent: Intent) -> None:
        """Begin to carry an intent out, beside everything else."""
        decision = intent.order.decision
        if decision in self._tasks and not self._tasks[decision].done():
            return
        self._intents[decision] = intent
        work = traced_order(intent.order, self._carry(intent))
        task = self._tasks[decision] = asyncio.create_task(work, name=f"order {decision}")
        task.add_done_callback(self._ended)

    async def idle(self) -> None:
        """Wait until every order has come to its end, or cannot be brought to one."""
        while running := [one for one in self._tasks.values() if not one.done()]:
            await asyncio.wait(running)

    def revive(self) -> None:
        """Begin again with orders whose end could not be written, or which a fault of ours has cut off."""
        for decision, intent in list(self._intents.items()):
            if decision not in self._tasks or self._tasks[decision].done():
                self.start(intent)

    async def renew(self) -> None:
        """Begin again with what is under way: the gateway's settings may have changed."""
        await self.stop()
        for intent in list(self._intents.values()):
            self.start(intent)

    async def stop(self) -> None:
        """Leave what is under way open in the store, as the next life can take it up."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Only what was cancelled: something may have begun meanwhile.
        self._tasks = {decision: one for decision, one in self._tasks.items() if one not in tasks}

    async def _carry(self, intent: Intent) -> None:
        order = intent.order
        driver = self._driver(order)
        if driver.name != order.driver:
            said = f"the configuration names driver {driver.name} now, and {order.driver} can no longer be called"
            doubt = intent.attempts > 0
            await self.settle(order, Outcome(Result.FAILED, said, self._clock.now(), intent.attempts, doubt=doubt))
            return
        try:
            await carry_out(
                intent,
                driver,
                self,
                self._clock,
                give_up_seconds=self._give_up_seconds(),
                wanted=lambda: self._wanted(order),
                tell=lambda attempt: self._tell(order, attempt),
            )
        except StoreError as exc:
            # The intent stays open in the store: the next start of the daemon takes it up again.
            log.error("the outcome of an order cannot be written", target=order.target, reason=str(exc))
            return
        await self.after(order)

    def _tell(self, order: Order, attempt: Attempt) -> None:
        self.trouble = attempt.failure
        self._meters.gateway_called(attempt.driver, attempt.action, seconds=attempt.seconds, failure=attempt.kind)
        if attempt.failure is not None:
            log.warning(
                "call to the gateway failed", target=order.target, decision_id=order.decision, reason=attempt.failure
            )

    async def begin_attempt(self, decision: str) -> int:
        """Count a call before it is sent. Raises StoreError."""
        return await unbroken(self._begin_attempt(decision))

    async def _begin_attempt(self, decision: str) -> int:
        count = await self._keeper.write(lambda store: store.begin_attempt(decision))
        self._intents[decision] = replace(self._intents[decision], attempts=count)
        return count

    async def settle(self, order: Order, outcome: Outcome) -> None:
        """Write an order's end and the routing that follows from it, both or neither. Raises StoreError."""
        await unbroken(self._settle(order, outcome))

    async def _settle(self, order: Order, outcome: Outcome) -> None:
        order_ended(outcome)
        async with self._one_at_a_time:  # so that no word of a person is lost that is written meanwhile
            await self._end(order, outcome)
        await self._rest(order, outcome)

    async def _end(self, order: Order, outcome: Outcome) -> None:
        now = self._clock.now()
        old = self._memory.target_state(order.target, order.pool)
        new = settled(old, order, outcome, now)
        changes = moved(old, new, reason=outcome.detail, decision=order.decision, at=now)
        await self._keeper.write(lambda store: store.settle(order.decision, outcome, state=new, transitions=changes))
        self._memory.ended[order.target] = Intent(order, now, outcome.attempts, outcome)
        self._intents.pop(order.decision, None)
        self._memory.targets[order.target] = new
        if not self._intents:
            self.trouble = None  # nobody waits for the gateway any more; how it ended is told by the outcome
        for one in changes:
            self._meters.transition(one)
        self._meters.settled(order.driver, order.action, outcome.result)
        say = log.info if outcome.result in DONE else log.error
        say(f"{order.action}: {outcome.result}: {outcome.detail}", target=order.target, decision_id=order.decision)

    async def _rest(self, order: Order, outcome: Outcome) -> None:
        """Leave a target alone for some hours after orders that came to nothing, one after another."""
        if outcome.result in DONE or outcome.result is Result.WITHDRAWN:
            self._memory.failures.pop(order.target, None)
            return
        count = self._memory.failures[order.target] = self._memory.failures.get(order.target, 0) + 1
        if count < FAILURES:
            return
        now = self._clock.now()
        said = f"{count} orders in a row came to nothing, the last one: {outcome.detail}"
        pause = own_pause(f"target:{order.target}", said, decision=order.decision, at=now, lasts=REST)
        self._memory.failures.pop(order.target, None)
        self._meters.paused_itself("gateway")
        log.error("paused after repeated failures of the gateway", target=order.target, pause_id=pause.id, reason=said)
        await keep_pause(pause, self._memory, self._keeper)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Forget what has ended. A fault of ours in an order is told; the order stays open and is taken up again."""
        self._tasks = {decision: one for decision, one in self._tasks.items() if one is not task}
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error("an order broke off by a fault in quantwatch", order=task.get_name(), fault=repr(fault))


async def _nothing(_: Order) -> None:
    """Nobody waits for orders to end."""
