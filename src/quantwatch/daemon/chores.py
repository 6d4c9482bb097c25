"""What the daemon does over and over beside the runs."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from quantwatch.clock import Clock
from quantwatch.config.schema import Settings
from quantwatch.daemon.desk import Desk
from quantwatch.errors import StoreError
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory
from quantwatch.flows.upkeep import Retention, end_pauses, prune, retry_store

STORE_RETRY_SECONDS = 5.0
PRUNE_SECONDS = 6 * 3600.0
LEARN_SECONDS = 6.0
"""Time between two times that the meaning of token ids is looked up, where words may be shown."""

LOOK_SECONDS = 300.0
"""Time between two looks at how the gateway says that targets stand."""

REPEAT_SECONDS = 60.0
"""Time between two repetitions of what stands, to channels that take it for over otherwise."""


@dataclass(frozen=True, slots=True)
class Chores:
    """Each goes on for ever. settings: of the configuration in force."""

    memory: Memory
    keeper: Keeper
    desk: Desk
    clock: Clock
    settings: Callable[[], Settings]

    async def mend(self) -> None:
        """Write what waits, take up what broke off, end what is over, and tell people what is new."""
        tend = (await asyncio.to_thread(_import_resume)).tend
        while True:
            await self.clock.sleep(STORE_RETRY_SECONDS)
            end_pauses(self.memory, self.clock)
            await retry_store(self.keeper)
            if self.desk.watch is not None and self.keeper.trouble is None:
                self.desk.watch.revive()
                await tend(self.desk.watch)
                await self.desk.watch.notices.look()

    async def learn(self) -> None:
        """Look up what the ids behind runs mean, where words may be shown."""
        learn = (await asyncio.to_thread(_import_texts)).learn
        while True:
            await self.clock.sleep(LEARN_SECONDS)
            if self.desk.watch is not None:
                await learn(self.desk.watch)

    async def repeat(self) -> None:
        """Say again what stands."""
        while True:
            await self.clock.sleep(REPEAT_SECONDS)
            if self.desk.watch is not None:
                await self.desk.watch.notices.repeat()

    async def look(self) -> None:
        """Hold the record against the gateway."""
        look = (await asyncio.to_thread(_import_resume)).look
        while True:
            await self.clock.sleep(LOOK_SECONDS)
            if self.desk.watch is not None:
                with contextlib.suppress(StoreError):  # the next look finds the same
                    await look(self.desk.watch)

    async def prune(self) -> None:
        """Forget what is old."""
        while True:
            store = self.settings().store
            await prune(self.keeper, Retention(store.keep, store.keep_decisions), self.clock)
            await self.clock.sleep(PRUNE_SECONDS)


def _import_texts() -> ModuleType:
    from quantwatch.flows import texts

    return texts


def _import_resume() -> ModuleType:
    from quantwatch.flows import resume

    return resume
