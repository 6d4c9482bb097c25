"""Tokens of runs on their way into the store: after what the runs led to, so that no order waits for them."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from quantwatch.errors import StoreError
from quantwatch.expose.meters import Meters
from quantwatch.flow.run import RunRecord
from quantwatch.flow.tokens import TokensSeen
from quantwatch.log import logger

log = logger()

MOST_WAITING = 8
"""Runs whose tokens wait for the store; over this the oldest are given up, and a counter and the log say so.

The tokens of one run are 2 MB in memory with eight prompts of 96 tokens, and 5 MB with the longest ones, many times
what they are in the store. So all that wait are 40 MB at most, which a service of a few hundred MB can spare.
"""

PATIENCE = 0.5
"""Seconds that tokens let orders go first. One that takes longer loses nothing to a write of some milliseconds."""


@dataclass(frozen=True, slots=True)
class Late:
    """The tokens of a run. tokenizer: whose ids they are."""

    run: str
    seen: TokensSeen
    tokenizer: str


def late(record: RunRecord, seen: TokensSeen | None) -> list[Late]:
    """What is to be kept of a run: nothing without tokens, or where it is not known whose ids they are."""
    return [] if seen is None or record.baseline is None else [Late(record.id, seen, record.baseline.tokens)]


class LateTokens:
    """Writes tokens, and holds what cannot be written yet.

    keep: writes the tokens of a run, and gives whether there is such a run; may raise StoreError. ready: whether the
    store takes them now, as it works and has the run. patience: seconds that orders may go first.
    """

    def __init__(
        self,
        keep: Callable[[Late], Awaitable[bool]],
        ready: Callable[[str], bool],
        meters: Meters,
        *,
        patience: float = PATIENCE,
    ) -> None:
        self._keep = keep
        self._ready = ready
        self._meters = meters
        self._waiting: deque[Late] = deque()
        self._one_at_a_time = asyncio.Lock()
        self.patience = patience

    @property
    def waiting(self) -> int:
        """How many runs have tokens that wait for the store."""
        return len(self._waiting)

    @contextlib.asynccontextmanager
    async def after(self, calm: Callable[[], Awaitable[object]]) -> AsyncIterator[list[Late]]:
        """Write what a block has put into the list once the block is over, and where it breaks off, later.

        calm: ends when no order is under way. Whoever leaves the block waits for the write, so that no more runs hold
        tokens than there are turns, and those of MOST_WAITING besides.
        """
        own: list[Late] = []
        try:
            yield own
            if own:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.patience):
                        await calm()
                async with self._one_at_a_time:
                    await self._write_waiting()
                    while own and self._ready(own[0].run):
                        await self._write(own.pop(0))
        finally:
            for one in own:
                self._wait(one)

    async def flush(self) -> None:
        """Write what waits, the oldest first, as far as the store takes it. Raises nothing."""
        async with self._one_at_a_time:
            await self._write_waiting()

    def give_up(self, why: str) -> None:
        """Take what still waits for lost, in plain sight: nobody will write it."""
        while self._waiting:
            self._lose(self._waiting.popleft(), why)

    async def _write_waiting(self) -> None:
        while self._waiting and self._ready(self._waiting[0].run):
            await self._write(self._waiting.popleft())

    async def _write(self, one: Late) -> None:
        """Write tokens if they can be: a run is safe without them, so they are no reason to distrust the store."""
        try:
            kept = await self._keep(one)
        except StoreError as exc:
            self._meters.store_error()
            self._lose(one, str(exc))
            return
        except Exception:
            # One of the few broad handlers: what people may look at later must cost neither a turn nor the daemon.
            self._meters.tokens_lost()
            log.exception("the tokens of a run could not be kept, by a fault in quantwatch", run_id=one.run)
            return
        if not kept:
            self._lose(one, "the run itself is not in the store")

    def _wait(self, one: Late) -> None:
        self._waiting.append(one)
        if len(self._waiting) > MOST_WAITING:
            self._lose(self._waiting.popleft(), f"more than {MOST_WAITING} runs have tokens that wait for the store")

    def _lose(self, one: Late, why: str) -> None:
        self._meters.tokens_lost()
        log.warning("the tokens of a run are not kept", run_id=one.run, reason=why)
