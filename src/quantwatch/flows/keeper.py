"""The one way to the store: in its own thread, with runs kept waiting while it cannot be written."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from quantwatch.errors import StoreError
from quantwatch.expose.meters import Meters
from quantwatch.flow.run import RunRecord
from quantwatch.flow.state import SetState, Transition
from quantwatch.flows.late_tokens import Late, LateTokens
from quantwatch.record.store import Store

T = TypeVar("T")

MOST_WAITING = 10_000
"""Runs that wait for the store; over this the second oldest is given up each time, and a counter says so."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run that is not written yet, with what it changed."""

    record: RunRecord
    state: SetState
    transitions: tuple[Transition, ...]


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

    failed: hears why, whenever the store fails after it had worked. tokens: the tokens behind runs, which come after.
    """

    def __init__(self, store: Store, executor: ThreadPoolExecutor, meters: Meters, *, most: int = MOST_WAITING) -> None:
        self._store = store
        self._executor = executor
        self._meters = meters
        self._most = most
        self._waiting: deque[Waiting] = deque()
        self._flushing = asyncio.Lock()
        self.tokens = LateTokens(self._keep_tokens, self._has_run, meters)
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

    async def remember(self, record: RunRecord, state: SetState, transitions: Sequence[Transition]) -> bool:
        """Write a run, after those that wait already; whether all are written. Raises nothing."""
        self._waiting.append(Waiting(record, state, tuple(transitions)))
        if len(self._waiting) > self._most:
            del self._waiting[1]  # the first may be on its way into the store just now
            self._meters.run_lost()
        return await self.flush()

    async def flush(self) -> bool:
        """Write the runs that wait, in their order; whether the store can be trusted now."""
        async with self._flushing:
            try:
                while self._waiting:
                    await self.write(partial(_add, self._waiting[0]))
                    self._waiting.popleft()
                if self.trouble is not None:
                    await self.write(lambda store: store.ping())
            except StoreError:
                return False
        self.trouble = None
        return True

    def _has_run(self, run: str) -> bool:
        """Whether the store works, as far as is known, and no run of this id waits for it."""
        return self.trouble is None and all(one.record.id != run for one in self._waiting)

    async def _keep_tokens(self, late: Late) -> bool:
        return await unbroken(self._tokens_kept(late))

    async def _tokens_kept(self, late: Late) -> bool:
        keep = partial(self._store.keep_tokens, late.run, late.seen, tokenizer=late.tokenizer)
        return await asyncio.get_running_loop().run_in_executor(self._executor, keep)


def _add(waiting: Waiting, store: Store) -> None:
    store.add_run(waiting.record, waiting.state, waiting.transitions)
