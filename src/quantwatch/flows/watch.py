"""The watch: workers of the configuration that runs now, what they share, and how one configuration follows another."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from quantwatch.clock import Clock
from quantwatch.expose.meters import Meters
from quantwatch.flow.board import Board, SelfBoard
from quantwatch.flow.run import Trigger
from quantwatch.flows.case import unwanted
from quantwatch.flows.decide import Decider
from quantwatch.flows.generation import Generation
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory
from quantwatch.flows.notices import Notices
from quantwatch.flows.orders import Orders
from quantwatch.flows.outbox import Outbox
from quantwatch.flows.paint import paint
from quantwatch.flows.proof import Prover, prove
from quantwatch.flows.proposals import Proposals
from quantwatch.flows.self_check import self_check
from quantwatch.flows.shift import Shift
from quantwatch.flows.storms import Storms
from quantwatch.flows.turn import Turns
from quantwatch.flows.waiting import finished
from quantwatch.flows.watched import Watchlist
from quantwatch.flows.worker import Worker
from quantwatch.log import logger

log = logger()


@dataclass(slots=True)
class Watch:
    """Everything that runs. generation: the configuration in force.

    prover: proves the yardstick in a storm. one_at_a_time: held by whoever changes where a target stands.
    """

    generation: Generation
    memory: Memory
    keeper: Keeper
    meters: Meters
    clock: Clock
    random: Random
    own: Callable[[], SelfBoard]
    prover: Prover = prove
    workers: dict[str, Worker] = field(default_factory=dict)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    outbox: Outbox = field(init=False)
    orders: Orders = field(init=False)
    proposals: Proposals = field(init=False)
    turns: Turns = field(init=False)
    shift: Shift = field(init=False)
    notices: Notices = field(init=False)

    def __post_init__(self) -> None:
        self.memory.windows = self.generation.windows  # before an order of an earlier life is taken up
        self.shift = Shift(self.memory, self.keeper, self.clock, self.one_at_a_time, lambda: self.generation)
        self.outbox = Outbox(
            self.memory,
            self.keeper,
            self.meters,
            self.clock,
            one_at_a_time=self.one_at_a_time,
            driver=self.shift.carrying,
            give_up_seconds=lambda: self.generation.give_up_seconds,
            wanted=lambda order: unwanted(order, self.memory, self.watchlist, self.clock.now()),
        )
        self.outbox.after = self.shift.follow
        self.orders = Orders(self.memory, self.keeper, self.outbox, self.meters)
        self.proposals = Proposals(self.memory, self.keeper, self.meters, self.clock, lambda: self.watchlist)
        self.notices = Notices(self.memory, self.keeper, self.meters, self.clock, generation=lambda: self.generation)
        decider = Decider(
            *(self.memory, self.keeper, self.orders, self.proposals, self.meters, self.clock, self.random),
            watchlist=lambda: self.watchlist,
            driver=lambda: self.generation.driver,
            one_at_a_time=self.one_at_a_time,
        )
        storms = Storms(decider, prove=lambda guilty: self.prover(self.generation, self.memory, guilty))
        self.turns = Turns(self.memory, self.keeper, self.meters, storms, again=self.due, wanted=self.watches)

    @property
    def watchlist(self) -> Watchlist:
        """The configuration in force."""
        return self.generation.watchlist

    def board(self) -> Board:
        """The picture that is shown now."""
        return paint(self.memory, self.watchlist, self.workers, own=self.own(), now=self.clock.now())

    def due(self, target: str, task_set: str, trigger: Trigger = Trigger.SCHEDULE) -> bool:
        """Queue a run; False where it waits already or nobody watches that any more."""
        worker = self.workers.get(target)
        return worker is not None and self.watches(target, task_set) and worker.due(task_set, trigger)

    def watches(self, target: str, task_set: str) -> bool:
        """Whether the configuration in force asks a target about a task set."""
        found = self.watchlist.targets.get(target)
        return found is not None and task_set in found.sets

    async def self_check(self) -> None:
        """Hold the baseline against its enrolled answers, if there are any."""
        await self_check(self.generation, self.memory)

    async def adopt(self) -> None:
        """Give every target of the configuration a worker, and end those of targets that left."""
        for name in set(self.workers) - set(self.watchlist.targets):
            self.workers.pop(name).close()
            self.tasks.pop(name).cancel()
            self.meters.forget(name)
        self.meters.expect_driver(self.generation.driver.name)
        for pool in self.watchlist.pools:
            self.meters.expect_pool(pool)
        for name, target in self.watchlist.targets.items():
            self.meters.expect(name, list(target.sets))
            if name not in self.workers:
                skipped = partial(self.meters.run_skipped, name)
                worker = Worker(name, self._turn(name), self.clock, skipped=skipped, waited=self.meters.run_waited)
                self._set_to_work(worker)

    def revive(self) -> None:
        """Begin again with workers and orders that a fault of ours has cut off."""
        for name, worker in self.workers.items():
            if self.tasks[name].done():
                log.error("a worker broke off by a fault in quantwatch and is set to work again", target=name)
                self._set_to_work(worker)
        self.outbox.revive()

    def _set_to_work(self, worker: Worker) -> None:
        self.workers[worker.name] = worker
        self.tasks[worker.name] = asyncio.create_task(worker.work(), name=f"worker {worker.name}")

    async def succeed(self, generation: Generation) -> None:
        """Let another configuration take over; runs of targets that stay end with the old one."""
        old, self.generation = self.generation, generation
        self.memory.windows = generation.windows
        for pool in set(old.watchlist.pools) - set(self.watchlist.pools):
            self.meters.forget_pool(pool)
        for task_set in old.watchlist.task_sets - self.watchlist.task_sets:
            self.meters.forget_set(task_set)
        self.memory.keep({(name, one) for name, target in self.watchlist.targets.items() for one in target.sets})
        await self.adopt()
        await self.outbox.renew()
        await self.notices.renew()
        await old.retire()

    async def idle(self) -> None:
        """Wait until no run is due or under way, and every order has ended."""
        await asyncio.gather(*(worker.idle() for worker in self.workers.values()))
        await self.outbox.idle()

    async def stop(self, seconds: float) -> None:
        """Take nothing new, let runs under way end for so long, then cut off; orders stay open in the store."""
        for worker in self.workers.values():
            worker.close()
        await finished((worker.idle() for worker in self.workers.values()), seconds)
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        await self.outbox.stop()
        await self.notices.stop()

    async def close(self) -> None:
        """End the connections."""
        await self.generation.close()

    def _turn(self, name: str) -> Callable[[str, Trigger], Awaitable[None]]:
        async def turn(task_set: str, trigger: Trigger) -> None:
            generation = self.generation
            target = generation.watchlist.targets[name]
            if task_set not in target.sets:
                return
            generation.users += 1
            try:
                wanted, tools = target.sets[task_set], generation.turn
                await self.turns.take(target, wanted, trigger=trigger, tools=tools)
                await self.shift.tend(target.pool)
                await self.notices.look()
            finally:
                await generation.leave()

        return turn
