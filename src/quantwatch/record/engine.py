"""Connections to a SQLite file, and what their errors mean."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from quantwatch.errors import StoreError

RECOVER = "stop the daemon and run `quantwatch store recover`"

_MEANING = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_BUSY: "another process holds it locked",
    sqlite3.SQLITE_LOCKED: "another process holds it locked",
    sqlite3.SQLITE_READONLY: "it or its folder is read-only",
    sqlite3.SQLITE_PERM: "it may not be accessed by this user",
    sqlite3.SQLITE_CANTOPEN: "it or a file beside it cannot be opened by this user",
    sqlite3.SQLITE_IOERR: "the disk gives errors, or its limit is reached",
    sqlite3.SQLITE_CORRUPT: f"it is damaged; {RECOVER}",
    sqlite3.SQLITE_NOTADB: f"it is no SQLite file; {RECOVER}",
}
DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


@dataclass(frozen=True, slots=True)
class Pragmas:
    """How the writer's connection behaves.

    busy_seconds: patience with a lock. max_pages: a limit on the file, in pages of 4 KiB.
    """

    busy_seconds: float = 5.0
    max_pages: int | None = None


def code_of(exc: sqlite3.Error | SQLAlchemyError) -> int:
    """SQLite's primary result code, 0 where there is none."""
    cause = exc.orig if isinstance(exc, DBAPIError) else exc
    return int(getattr(cause, "sqlite_errorcode", 0) or 0) & 0xFF


@contextlib.contextmanager
def said_plainly(path: Path, doing: str) -> Iterator[None]:
    """Turn every error of SQLite and SQLAlchemy into a StoreError. doing: `written` or `read`."""
    try:
        yield
    except (sqlite3.Error, SQLAlchemyError) as exc:
        cause = exc.orig if isinstance(exc, DBAPIError) else exc
        meaning = _MEANING.get(code_of(exc), str(cause))
        raise StoreError(f"{path}: cannot be {doing}: {meaning}") from exc


def writer(path: Path, pragmas: Pragmas) -> Engine:
    """The one connection that writes: WAL, synchronous FULL, foreign keys, BEGIN IMMEDIATE for writes.

    Every commit is on the disk when it returns. The connection may be used from another thread than the one that opened
    it, from one thread at a time.
    """

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            path, timeout=pragmas.busy_seconds, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            for pragma in _pragmas(pragmas):
                connection.execute(f"PRAGMA {pragma}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    return _engine(connect)


def _pragmas(pragmas: Pragmas) -> Iterator[str]:
    yield "journal_mode = WAL"
    yield "synchronous = FULL"
    yield "foreign_keys = ON"
    yield f"journal_size_limit = {64 * 1024**2}"
    if pragmas.max_pages is not None:
        yield f"max_page_count = {pragmas.max_pages}"


def reader(path: Path) -> Engine:
    """A connection that cannot write and takes no lock that a writer would notice."""
    return _engine(lambda: read_only(path))


def read_only(path: Path) -> sqlite3.Connection:
    """Open a file for reading, also one whose folder this user may not write. Raises sqlite3.Error."""
    try:
        return _read_only(path, "")
    except sqlite3.OperationalError:
        if path.with_name(f"{path.name}-wal").exists():
            raise
        # Without a log there is no writer, and SQLite need not create the files beside it that this user may not.
        return _read_only(path, "&immutable=1")


def _read_only(path: Path, more: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?mode=ro{more}"
    connection = sqlite3.connect(uri, uri=True, timeout=5.0, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _engine(connect: Callable[[], sqlite3.Connection]) -> Engine:
    engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=StaticPool, hide_parameters=True)
    event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    """Take the write lock at once: a transaction that reads first and locks later can fail in its middle."""
    writing = connection.get_execution_options().get("writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")
