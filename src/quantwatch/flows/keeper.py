"""The one way to the store: in its own thread, with runs kept waiting while it cannot be written."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from quantwatch.errors import StoreError
from quantwatch.expose.meters import Meters
from quantwatch.flow.run import RunRecord
from quantwatch.flow.state import SetState, Transition
from quantwatch.flow.tokens import TokensSeen
from quantwatch.record.store import Store

T = TypeVar("T")

MOST_WAITING = 10_000
"""Runs that wait for the store; over this the second oldest is given up each time, and a counter says so."""


MOST_EVIDENCE = 8
"""Runs that wait with their tokens; over this the oldest go on without them.

The tokens of one run are 2 MB in memory with eight prompts of 96 tokens, and 5 MB with the longest ones, many times
what they are in the store. So all that wait are 40 MB at most, which a service of a few hundred MB can spare.
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run that is not written yet, with what it changed and the tokens behind it."""

    record: RunRecord
    state: SetState
    transitions: tuple[Transition, ...]
    tokens: TokensSeen | None = None


async def unbroken(action: Coroutine[Any, Any, T]) -> T:
    """Bring something to its end even when whoever waits is cancelled: what is written must also be remembered."""
    task = asyncio.ensure_future(action)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


class Keeper:
    """Writes to the store. trouble: why it cannot be written, None while it can. most: runs that may wait.

    failed: hears why, whenever the store fails after it had worked.
    """

    def __init__(self, store: Store, executor: ThreadPoolExecutor, meters: Meters, *, most: int = MOST_WAITING) -> None:
        self._store = store
        self._executor = executor
        self._meters = meters
        self._most = most
        self._waiting: deque[Waiting] = deque()
        self._flushing = asyncio.Lock()
        self.trouble: str | None = None
        self.failed: Callable[[str], None] = lambda _: None

    @property
    def unwritten(self) -> int:
        """How many runs wait for the store."""
        return len(self._waiting)

    async def write(self, action: Callable[[Store], T]) -> T:
        """Do something with the store, be it a read. Raises StoreError, and remembers that it cannot be trusted."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._executor, action, self._store)
        except StoreError as exc:
            # Only flush takes this back, after a durable write: reads go on while a disk is full.
            worked, self.trouble = self.trouble is None, str(exc)
            self._meters.store_error()
            if worked:
                self.failed(str(exc))
            raise

    async def remember(
        self, record: RunRecord, state: SetState, transitions: Sequence[Transition], tokens: TokensSeen | None = None
    ) -> bool:
        """Write a run, after those that wait already; whether all are written. Raises nothing.

        tokens: written after the run, if they can be.
        """
        self._waiting.append(Waiting(record, state, tuple(transitions), tokens))
        if len(self._waiting) > MOST_EVIDENCE:
            self._waiting[-MOST_EVIDENCE - 1] = replace(self._waiting[-MOST_EVIDENCE - 1], tokens=None)
        if len(self._waiting) > self._most:
            del self._waiting[1]  # the first may be on its way into the store just now
            self._meters.run_lost()
        return await self.flush()

    async def flush(self) -> bool:
        """Write what waits, in its order; whether the store can be trusted now."""
        async with self._flushing:
            try:
                while self._waiting:
                    await self._one(self._waiting[0])
                    self._waiting.popleft()
                if self.trouble is not None:
                    await self.write(lambda store: store.ping())
            except StoreError:
                return False
        self.trouble = None
        return True

    async def _one(self, waiting: Waiting) -> None:
        record, tokens = waiting.record, waiting.tokens
        await self.write(lambda store: store.add_run(record, waiting.state, waiting.transitions))
        if tokens is not None and record.baseline is not None:
            await self._keep_tokens(record.id, tokens, record.baseline.tokens)

    async def _keep_tokens(self, run: str, tokens: TokensSeen, tokenizer: str) -> None:
        """Write tokens if they can be: the run is safe without them, so they are no reason to distrust the store."""
        keep = partial(self._store.keep_tokens, run, tokens, tokenizer=tokenizer)
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, keep)
        except StoreError:
            self._meters.store_error()
