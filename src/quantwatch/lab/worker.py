"""One thread that computes for all requests, a step of each in turn, as a batching engine would let them share it."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 16
"""Requests that take turns; more of them wait."""


@dataclass(frozen=True, slots=True, eq=False)
class Size:
    """How large a request is: prompts, and tokens that they may come to hold. No two are equal: each is a request's."""

    prompts: int
    tokens: int


Moved = Callable[[int, int, int], None]


class Worker:
    """Runs steps of requests. moved: hears of prompts running, prompts waiting, and tokens held, at every change."""

    def __init__(self, moved: Moved = lambda *_: None, *, at_once: int = AT_ONCE) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._slots = asyncio.Semaphore(at_once)
        self._moved = moved
        self._waiting: list[Size] = []
        self._running: list[Size] = []

    async def do(
        self, steps: Generator[None, None, T], size: Size, *, delay: Callable[[], Awaitable[None]] | None = None
    ) -> T:
        """Take a request through its steps and return its value; a cancelled one stops after the step under way.

        delay: waited for before the first step, while the request counts as running.
        """
        self._move(size, to=self._waiting)
        try:
            async with self._slots:
                self._move(size, off=self._waiting, to=self._running)
                if delay is not None:
                    await delay()
                return await self._through(steps)
        finally:
            self._move(size, off=self._running if size in self._running else self._waiting)

    def close(self) -> None:
        """End the thread once the step under way is done."""
        self._pool.shutdown(wait=True)

    async def _through(self, steps: Generator[None, None, T]) -> T:
        loop = asyncio.get_running_loop()
        while True:
            ended = await loop.run_in_executor(self._pool, _step, steps)
            if ended:
                return ended[0]

    def _move(self, size: Size, *, off: list[Size] | None = None, to: list[Size] | None = None) -> None:
        if off is not None:
            off.remove(size)
        if to is not None:
            to.append(size)
        running, waiting = (sum(one.prompts for one in group) for group in (self._running, self._waiting))
        self._moved(running, waiting, sum(one.tokens for one in self._running))


def _step(steps: Generator[None, None, T]) -> list[T]:
    """One step; the value in a list when it was the last."""
    try:
        next(steps)
    except StopIteration as end:  # it cannot pass through a future
        return [end.value]
    return []
