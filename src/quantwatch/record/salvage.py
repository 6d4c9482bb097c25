"""Reads what can be read of a damaged SQLite file, table by table and row by row."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Column, Table

from quantwatch.record.columns import Choice, Document, Moment, Packed, moment_of, unpacked
from quantwatch.record.tables import META, SCHEMA

Values = tuple[object, ...]
Columns = Sequence[Column[Any]]

LAST = 2**40
"""No table has more rows."""


@dataclass(frozen=True, slots=True)
class Count:
    """Rows of one table. saved: written to the new store. there: in it already. refused: read, but without sense.

    complete: whether the table was read from end to end, so that nothing is lost but what was refused.
    """

    saved: int = 0
    there: int = 0
    refused: int = 0
    complete: bool = True


def salvage(source: Path, store: Path) -> dict[str, Count]:
    """Copy rows of a damaged file into a sound store, in one transaction; counts by table.

    A row is refused where a value cannot be what its column wants, or where what it belongs to is lost. Raises
    sqlite3.Error when the store cannot be written. The damaged file is only read.
    """
    counts: dict[str, Count] = {}
    with _opened(source, "ro") as damaged, _opened(store, "rw") as sound:
        damaged.execute("PRAGMA writable_schema = ON")  # so that a file that was cut off is read as far as it goes
        sound.execute("PRAGMA foreign_keys = ON")
        sound.execute("BEGIN IMMEDIATE")
        for table in SCHEMA.sorted_tables:
            if table is not META:
                counts[table.name] = _table(damaged, sound, table)
        sound.execute("COMMIT")
    return counts


@contextlib.contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        yield connection


def _table(damaged: sqlite3.Connection, sound: sqlite3.Connection, table: Table) -> Count:
    known = _columns_of(damaged, table)  # an older version wrote fewer
    columns = [one for one in table.columns if one.name != "number" and one.name in known]
    if not columns:
        return Count(complete=False)
    reading, insert = _Reading(damaged, table, columns), _insertion(table, columns)
    saved = there = refused = 0
    for values in reading.rows():
        if not _sensible(columns, values):
            refused += 1
            continue
        try:
            written = sound.execute(insert, values).rowcount
        except sqlite3.IntegrityError:
            refused += 1
            continue
        saved, there = saved + written, there + 1 - written
    return Count(saved, there, refused, complete=reading.complete)


def _columns_of(damaged: sqlite3.Connection, table: Table) -> set[str]:
    """The columns that the file has of a table; none where it has no such table or does not tell."""
    with contextlib.suppress(sqlite3.DatabaseError):
        return {row[1] for row in damaged.execute(f"PRAGMA table_info({table.name})")}
    return set()


def _insertion(table: Table, columns: Columns) -> str:
    """A row that is there stays. Where rows are only numbered, the same row is one that is equal in everything."""
    places = ", ".join(f"?{position}" for position in range(1, len(columns) + 1))
    into = f"INSERT OR IGNORE INTO {table.name} ({_names(columns)})"
    if "number" not in table.columns:
        return f"{into} VALUES ({places})"
    equal = " AND ".join(f'"{column.name}" IS ?{position}' for position, column in enumerate(columns, 1))
    return f"{into} SELECT {places} WHERE NOT EXISTS (SELECT 1 FROM {table.name} WHERE {equal})"  # noqa: S608, our names


class _Reading:
    """One pass over a table, which goes on behind every damaged place. complete: whether it met none so far."""

    def __init__(self, connection: sqlite3.Connection, table: Table, columns: Columns) -> None:
        self.complete = True
        self._connection = connection
        self._query = f"SELECT rowid, {_names(columns)} FROM {table.name} NOT INDEXED WHERE rowid > ? ORDER BY rowid"  # noqa: S608, our names

    def rows(self) -> Iterator[Values]:
        """Whole rows, without their number."""
        at: int | None = 0
        while at is not None:
            try:
                for number, *values in self._connection.execute(self._query, (at,)):
                    if number <= at:
                        raise sqlite3.DatabaseError("row numbers that do not rise")  # noqa: TRY301, as SQLite says it
                    at = number
                    yield tuple(values)
            except (sqlite3.DatabaseError, UnicodeDecodeError):
                self.complete = False
                at = self._behind(at)
            else:
                return

    def _behind(self, damaged: int) -> int | None:
        """The least number behind a damaged place from which reading goes on, None where nothing can be read there."""
        low, step = damaged, 1
        while not self._readable(low + step):
            low, step = low + step, step * 2
            if low > LAST:
                return None
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._readable(middle) else (middle, high)
        return high

    def _readable(self, number: int) -> bool:
        try:
            self._connection.execute(f"{self._query} LIMIT 1", (number,)).fetchone()
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            return False
        return True


def _names(columns: Columns) -> str:
    return ", ".join(f'"{column.name}"' for column in columns)


def _sensible(columns: Columns, values: Values) -> bool:
    """Whether each value reads as what its column wants, so that no later reader stumbles over it."""
    try:
        for column, value in zip(columns, values, strict=True):
            if isinstance(column.type, Moment) and value is not None:
                moment_of(str(value))
            elif isinstance(column.type, Choice) and value is not None:
                column.type.kind(str(value))
            elif isinstance(column.type, Document):
                json.loads(str(value))
            elif isinstance(column.type, Packed):
                unpacked(value)
    except (ValueError, RecursionError):
        return False
    return True
