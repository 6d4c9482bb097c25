"""Transactions on the store's file: one at a time, and only while it is the file that was opened."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, Engine

from quantwatch.errors import StoreError
from quantwatch.record.engine import said_plainly


class Transactions:
    """What the store's methods run in. Raises StoreError for a file that cannot be used, is closed, or is another."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self.path = path
        self._engine = engine
        self._turn = threading.Lock()
        self._file = (0, 0)
        self._closed = False

    @contextlib.contextmanager
    def _first(self) -> Iterator[Connection]:
        """The transaction that makes the file ready; from its end on no other file is taken for it."""
        with said_plainly(self.path, "written"), _begun(self._engine, writing=True) as connection:
            yield connection
        self._file = _file_id(self.path)

    def _writing(self) -> contextlib.AbstractContextManager[Connection]:
        return self._transaction("written")

    def _reading(self) -> contextlib.AbstractContextManager[Connection]:
        return self._transaction("read")

    @contextlib.contextmanager
    def _transaction(self, doing: str) -> Iterator[Connection]:
        with self._turn, said_plainly(self.path, doing):
            if self._closed:
                raise StoreError(f"{self.path}: is closed")
            if _file_id(self.path) != self._file:
                raise StoreError(f"{self.path}: was moved, replaced or deleted while in use; start quantwatch again")
            with _begun(self._engine, writing=doing == "written") as connection:
                yield connection


@contextlib.contextmanager
def _begun(engine: Engine, *, writing: bool) -> Iterator[Connection]:
    with engine.connect() as connection, connection.execution_options(writing=writing).begin():
        yield connection


def _file_id(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return (-1, -1)
    return (found.st_dev, found.st_ino)
