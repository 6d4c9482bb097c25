"""Looks at a file before it is opened for writing: ours, sound, and of a version that we know?"""

import contextlib
import sqlite3
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from quantwatch.errors import StoreError
from quantwatch.record.engine import DAMAGE, code_of, said_plainly
from quantwatch.record.place import BESIDE, move_aside
from quantwatch.record.tables import APPLICATION, SCHEMA


class Damaged(Exception):
    """The file cannot be used as it is; the text says what was seen. Never leaves this room."""


def examine(path: Path, *, version: int) -> int:
    """The schema version of a file, 0 for none and for one without any table.

    version: the newest that we know. Raises Damaged, OSError, and StoreError for a newer version, which an older
    program could spoil, or a file of another program.
    """
    if not path.exists():
        if any(path.with_name(path.name + suffix).exists() for suffix in BESIDE):
            raise Damaged("its main file is gone and parts of it are left")
        return 0
    if path.stat().st_size == 0:
        raise Damaged("it is empty")
    with said_plainly(path, "read"), contextlib.closing(_opened(path)) as connection:
        try:
            found = _examine(connection, path)
        except sqlite3.DatabaseError as exc:
            short = getattr(exc, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHORT_READ
            if code_of(exc) in DAMAGE or short:
                raise Damaged(str(exc)) from exc
            raise
    if found > version:
        raise StoreError(
            f"{path}: has schema version {found}, newer than {version} of this quantwatch; it is left alone"
        )
    missing = sorted(set(SCHEMA.tables) - _names(path)) if found == version else []
    if missing:
        raise Damaged(f"these tables are missing: {', '.join(missing)}")
    return found


def _opened(path: Path) -> sqlite3.Connection:
    # Read-only, so that closing it neither tidies up the log of a damaged file nor touches one that is not ours.
    return sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, isolation_level=None)


def _examine(connection: sqlite3.Connection, path: Path) -> int:
    faults = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
    if faults != ["ok"]:
        raise Damaged("; ".join(faults))
    return schema_version(connection, path)


def schema_version(connection: sqlite3.Connection, path: Path) -> int:
    """The version that a file says it has, 0 without any table. Raises Damaged, StoreError and sqlite3.Error."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        if tables:
            raise StoreError(f"{path}: is a SQLite file of another program; it is left alone")
        return 0
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone() if "meta" in tables else None
    if row is None or not str(row[0]).isdecimal():
        raise Damaged("its schema version is missing")
    return int(row[0])


def _names(path: Path) -> set[str]:
    with said_plainly(path, "read"), contextlib.closing(_opened(path)) as connection:
        return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def set_aside(path: Path, *, at: datetime, version: int) -> tuple[Path | None, str | None]:
    """Move a damaged file aside: where to, and what was seen. None twice where the file is sound or there is none."""
    try:
        examine(path, version=version)
    except Damaged as exc:
        return move_aside(path, at=at), str(exc)
    except OSError as exc:
        raise StoreError(f"{path}: cannot be read: {exc.strerror}") from exc
    return None, None
