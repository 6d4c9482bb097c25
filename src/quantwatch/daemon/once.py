"""Runs of one configuration, once and now: only looking, or acting on what was seen as the daemon would."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from quantwatch import wiring
from quantwatch.clock import Clock, SystemClock
from quantwatch.config.load import store_file
from quantwatch.config.schema import Settings
from quantwatch.daemon.build import Base, Builder, build
from quantwatch.daemon.storing import opened
from quantwatch.errors import InputError
from quantwatch.expose.meters import Meters
from quantwatch.flow.board import SelfBoard
from quantwatch.flow.run import Trigger
from quantwatch.flows.cycle import Ran, run_once
from quantwatch.flows.generation import Generation
from quantwatch.flows.memory import Memory
from quantwatch.flows.plan import Progress
from quantwatch.flows.resume import resume
from quantwatch.flows.shelf import LookingShelf
from quantwatch.flows.texts import learn
from quantwatch.flows.watched import Watchlist
from quantwatch.flows.yardstick import Yardstick

TELLING_SECONDS = 10.0
"""How long people are told of what was done before the command ends, and how long ids are looked up."""


@dataclass(slots=True)
class Once:
    """What is to be run. target, task_set: all of them where None. tell: progress. ran: what was found so far."""

    file: Path
    settings: Settings
    target: str | None = None
    task_set: str | None = None
    cache: Path | None = None
    tell: Callable[[Progress], None] = lambda _: None
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    ran: list[Ran] = field(default_factory=list)

    async def look(self) -> None:
        """Make the runs and change nothing, neither in the store nor at the gateway. Raises InputError."""
        shelf = LookingShelf(store_file(self.settings, folder=self.file.parent))
        builder = Builder(
            Memory(),
            Yardstick(shelf, self.clock),
            self.clock,
            self.random,
            folder=self.file.parent,
            cache=self.cache or wiring.cache_folder(),
        )
        generation = await builder.generation(self.settings)
        try:
            wanted = self._wanted(generation.watchlist)
            await asyncio.gather(
                *(self._target(generation, name, sets, len(wanted)) for name, sets in _by_target(wanted))
            )
        finally:
            await generation.close()

    async def act(self) -> None:
        """Make the runs as the daemon does, confirmations included, and carry out what follows.

        Raises InputError, and StoreError when the store cannot be had: a running daemon holds it.
        """
        async with contextlib.AsyncExitStack() as stack:
            memory, meters = Memory(), Meters()
            path = store_file(self.settings, folder=self.file.parent)
            keeper = await opened(path, memory, clock=self.clock, meters=meters, stack=stack)
            base = Base(
                keeper,
                memory,
                meters,
                self.clock,
                self.random,
                own=lambda: SelfBoard(self.clock.now(), "", reload_ok=True, reloaded=self.clock.now()),
                folder=self.file.parent,
                cache=self.cache,
            )
            watch = (await build(self.settings, base)).watch
            stack.push_async_callback(watch.close)
            stack.push_async_callback(watch.stop, 0)  # also after Ctrl-C: an order under way stays open in the store
            watch.turns = watch.turns.hearing(self._heard)
            wanted = self._wanted(watch.watchlist)
            await resume(watch)
            await watch.adopt()
            for target, task_set in wanted:
                watch.due(target, task_set, Trigger.MANUAL)
            await watch.idle()
            await watch.notices.look()
            with contextlib.suppress(TimeoutError):  # what is not told by then, the daemon tells
                async with asyncio.timeout(TELLING_SECONDS):
                    await watch.notices.post.idle()
            await learn(watch, seconds=TELLING_SECONDS)

    async def _target(self, generation: Generation, name: str, sets: Sequence[str], total: int) -> None:
        target = generation.watchlist.targets[name]
        for one in sets:
            self.tell(Progress(len(self.ran), total, f"{name} {one}"))
            self._heard(await run_once(target, target.sets[one], Trigger.MANUAL, generation.turn))
            self.tell(Progress(len(self.ran), total, f"{name} {one}"))

    def _heard(self, ran: Ran) -> None:
        self.ran.append(ran)

    def _wanted(self, watchlist: Watchlist) -> list[tuple[str, str]]:
        """The runs to make. Raises InputError for a name that is not configured."""
        pairs = [(name, one) for name, target in watchlist.targets.items() for one in target.sets]
        for what, given, known in (
            ("--target", self.target, sorted({target for target, _ in pairs})),
            ("--task-set", self.task_set, sorted({one for _, one in pairs})),
        ):
            if given is not None and given not in known:
                raise InputError(f"{what} {given}: not in the configuration; known: {', '.join(known)}")
        return [(a, b) for a, b in pairs if self.target in (None, a) and self.task_set in (None, b)]


def _by_target(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    targets = dict.fromkeys(target for target, _ in pairs)
    return [(target, [one for name, one in pairs if name == target]) for target in targets]
