"""Reads of the store for pages: in threads of their own, a few at a time, so that neither loop nor runs wait."""

import asyncio
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from quantwatch.errors import InputError, StoreError
from quantwatch.record.archive import Archive

T = TypeVar("T")

READERS = 2
"""Reads that go on at once; each has a connection of its own, and none takes a lock that a writer would notice."""

MOST_WAITING = 32
"""Reads that may be under way or wait; over this a page says that it is busy."""


@dataclass(frozen=True, slots=True)
class _Open:
    """An archive, and which file it was opened on: a store that was moved aside is not read any longer."""

    archive: Archive
    file: tuple[int, int]


class Reading:
    """Gives pages what is on record. Opened at the first read: while the daemon starts there may be no store yet."""

    def __init__(self, path: Path, *, readers: int = READERS, most: int = MOST_WAITING) -> None:
        self.path = path
        self._executor = ThreadPoolExecutor(readers, thread_name_prefix="page")
        self._idle: queue.SimpleQueue[_Open] = queue.SimpleQueue()
        self._most = most
        self._waiting = 0

    async def __call__(self, what: Callable[[Archive], T]) -> T:
        """Read something. Raises StoreError when the store cannot be read, and whatever `what` raises."""
        if self._waiting >= self._most:
            raise StoreError("so many pages are being read that this one would wait too long; try again in a moment")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, self._read, what)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Let reads under way end, and close what is open."""
        await asyncio.to_thread(self._executor.shutdown, cancel_futures=True)
        while (one := self._taken()) is not None:
            one.archive.close()

    def _read(self, what: Callable[[Archive], T]) -> T:
        one, sound = self._opened(), True
        try:
            return what(one.archive)
        except StoreError:
            sound = False
            raise
        finally:
            if sound:
                self._idle.put(one)
            else:
                one.archive.close()

    def _opened(self) -> _Open:
        """A connection to the file that is there now."""
        try:
            stat = self.path.stat()
        except OSError as exc:
            raise StoreError(f"{self.path}: {exc.strerror or exc}") from exc
        file = (stat.st_dev, stat.st_ino)
        while (one := self._taken()) is not None:
            if one.file == file:
                return one
            one.archive.close()
        try:
            return _Open(Archive.open(self.path), file)
        except InputError as exc:
            raise StoreError(str(exc)) from exc

    def _taken(self) -> _Open | None:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            return None
