"""One worker a target: its due task sets run one after another, and nothing is ever due twice."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from quantwatch.clock import Clock
from quantwatch.flow.run import Trigger

Turn = Callable[[str, Trigger], Awaitable[None]]


class Due(NamedTuple):
    """A run that waits. since: by the monotonic clock."""

    task_set: str
    trigger: Trigger
    since: float


class Worker:
    """Makes the runs of one target. running: the task set under way. turn: makes one run and never raises.

    waited: hears how many seconds a run that starts has waited since it was due. heeded: when a run was last queued for
    what the target counts of its own numbers, by the monotonic clock; None where none was.
    """

    def __init__(
        self,
        name: str,
        turn: Turn,
        clock: Clock,
        *,
        skipped: Callable[[str, str], None],
        waited: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.running: str | None = None
        self.heeded: float | None = None
        self._turn = turn
        self._clock = clock
        self._skipped = skipped
        self._waited = waited
        self._due: deque[Due] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    @property
    def queued(self) -> int:
        """Task sets that wait for their turn."""
        return len(self._due)

    def due(self, task_set: str, trigger: Trigger = Trigger.SCHEDULE) -> bool:
        """Queue a run; False, and counted as skipped, when the same one waits already or nothing is taken any more.

        A confirming run decides about an isolation: it goes first, also where the schedule has the same set waiting.
        """
        if self._closed:
            self._skipped(task_set, "draining")
            return False
        waiting = next((one for one in self._due if one.task_set == task_set), None)
        if waiting is not None and (trigger is not Trigger.CONFIRM or waiting.trigger is Trigger.CONFIRM):
            self._skipped(task_set, "overlap")
            return False
        new = Due(task_set, trigger, self._clock.monotonic())
        if trigger is Trigger.CONFIRM:
            if waiting is not None:
                self._due.remove(waiting)  # its place is taken, by a run that asks more thoroughly
            self._due.appendleft(new)
        else:
            self._due.append(new)
        self._idle.clear()
        self._wake.set()
        return True

    async def work(self) -> None:
        """Run what is due, for as long as the worker lives."""
        while True:
            while self._due:
                one = self._due.popleft()
                self.running = one.task_set
                self._waited(self._clock.monotonic() - one.since)
                try:
                    await self._turn(one.task_set, one.trigger)
                finally:
                    self.running = None
            self._idle.set()
            self._wake.clear()
            await self._wake.wait()

    def close(self) -> None:
        """Take nothing more and forget what only waits."""
        self._closed = True
        for one in self._due:
            self._skipped(one.task_set, "draining")
        self._due.clear()
        if self.running is None:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until nothing runs and nothing is due."""
        await self._idle.wait()
