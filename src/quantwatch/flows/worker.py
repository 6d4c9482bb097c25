"""One worker a target: its due task sets run one after another, and nothing is ever due twice."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from quantwatch.flow.run import Trigger

Turn = Callable[[str, Trigger], Awaitable[None]]


class Worker:
    """Makes the runs of one target. running: the task set under way. turn: makes one run and never raises."""

    def __init__(self, name: str, turn: Turn, *, skipped: Callable[[str, str], None]) -> None:
        self.name = name
        self.running: str | None = None
        self._turn = turn
        self._skipped = skipped
        self._due: deque[tuple[str, Trigger]] = deque()
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
        waiting = next((one for one in self._due if one[0] == task_set), None)
        if waiting is not None and (trigger is not Trigger.CONFIRM or waiting[1] is Trigger.CONFIRM):
            self._skipped(task_set, "overlap")
            return False
        if trigger is Trigger.CONFIRM:
            if waiting is not None:
                self._due.remove(waiting)  # its place is taken, by a run that asks more thoroughly
            self._due.appendleft((task_set, trigger))
        else:
            self._due.append((task_set, trigger))
        self._idle.clear()
        self._wake.set()
        return True

    async def work(self) -> None:
        """Run what is due, for as long as the worker lives."""
        while True:
            while self._due:
                task_set, trigger = self._due.popleft()
                self.running = task_set
                try:
                    await self._turn(task_set, trigger)
                finally:
                    self.running = None
            self._idle.set()
            self._wake.clear()
            await self._wake.wait()

    def close(self) -> None:
        """Take nothing more and forget what only waits."""
        self._closed = True
        for task_set, _ in self._due:
            self._skipped(task_set, "draining")
        self._due.clear()
        if self.running is None:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until nothing runs and nothing is due."""
        await self._idle.wait()
