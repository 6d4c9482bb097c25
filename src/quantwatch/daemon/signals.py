"""What signals do: TERM and INT end in order, a second one at once; HUP reloads; USR1 dumps every stack."""

import asyncio
import contextlib
import faulthandler
import os
import signal
import sys
from collections.abc import Awaitable, Callable

from quantwatch.log import logger

log = logger()

KILLED = 130
"""Exit code of an immediate end, as shells give it for an interrupted program."""


class Signals:
    """Handlers on the running loop. stop: set once the daemon is to end."""

    def __init__(self, *, reload: Callable[[], Awaitable[object]]) -> None:
        self.stop = asyncio.Event()
        self._reload = reload
        self._reloads: set[asyncio.Task[object]] = set()

    def install(self, stack: contextlib.AsyncExitStack) -> None:
        """Take the signals until the stack ends."""
        loop = asyncio.get_running_loop()
        handlers = {
            signal.SIGTERM: self._stop,
            signal.SIGINT: self._stop,
            signal.SIGHUP: self._hang_up,
            signal.SIGUSR1: self._tasks,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
            stack.callback(loop.remove_signal_handler, number)
        # Threads are dumped by a handler in C, which also works while the loop hangs; it calls ours for the tasks.
        faulthandler.register(signal.SIGUSR1, file=sys.__stderr__ or sys.stderr, all_threads=True, chain=True)
        stack.callback(faulthandler.unregister, signal.SIGUSR1)

    def _stop(self) -> None:
        if self.stop.is_set():
            log.warning("ending at once: a second signal")
            os._exit(KILLED)
        self.stop.set()

    def _hang_up(self) -> None:
        async def reload() -> object:
            return await self._reload()

        task: asyncio.Task[object] = asyncio.create_task(reload(), name="reload")
        self._reloads.add(task)
        task.add_done_callback(self._reloaded)

    def _reloaded(self, task: asyncio.Task[object]) -> None:
        """Tell a fault of ours: nobody else waits for this task."""
        self._reloads.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error("the reload broke off by a fault in quantwatch; the old configuration stays", fault=repr(fault))

    def _tasks(self) -> None:
        for task in asyncio.all_tasks():
            task.print_stack(file=sys.stderr)
