"""The store, opened, used and closed in a thread of its own, so that a slow disk never holds the loop."""

import asyncio
import contextlib
import functools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from quantwatch.clock import Clock
from quantwatch.expose.meters import Meters
from quantwatch.flow.run import stamp
from quantwatch.flow.state import Pause
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory
from quantwatch.log import logger
from quantwatch.record.store import Store

log = logger()


async def opened(
    path: Path, memory: Memory, *, clock: Clock, meters: Meters, stack: contextlib.AsyncExitStack
) -> Keeper:
    """Open the store for as long as the stack lives and read it into memory. Raises StoreError."""
    executor, loop = ThreadPoolExecutor(1, thread_name_prefix="store"), asyncio.get_running_loop()
    stack.callback(executor.shutdown)
    store = await loop.run_in_executor(executor, functools.partial(Store.open, path, clock=clock))

    async def close() -> None:
        await loop.run_in_executor(executor, store.close)

    stack.push_async_callback(close)
    if store.recovered_from is not None:
        moved = str(store.recovered_from)
        log.error("the store was corrupt and was moved aside; a new one was begun", moved_to=moved, damage=store.damage)
    keeper = Keeper(store, executor, meters)
    await keeper.write(lambda one: memory.restore(one, clock.now()))
    if store.recovered_from is not None:
        await _rest(keeper, memory, clock, moved_to=store.recovered_from)
        meters.paused_itself("store_lost")
    return keeper


async def _rest(keeper: Keeper, memory: Memory, clock: Clock, *, moved_to: Path) -> None:
    """With the store its isolations are forgotten, so nothing acts until a person has looked."""
    now = clock.now()
    said = f"the store was corrupt and is now {moved_to.name}: which nodes are isolated is not known"
    pause = Pause(stamp("p", now, "000000"), "all", said, "quantwatch", now)
    await keeper.write(lambda one: one.add_pause(pause))
    memory.pauses.append(pause)
