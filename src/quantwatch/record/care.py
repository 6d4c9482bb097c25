"""Care of a store from outside the daemon: backup, check, recover. Nothing here ever deletes a store."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from quantwatch.clock import Clock
from quantwatch.errors import InputError, StoreError
from quantwatch.flow.tokens_json import UNREADABLE, prompt_of
from quantwatch.record.archive import known_store
from quantwatch.record.columns import moment_text, unpacked
from quantwatch.record.engine import DAMAGE, code_of, read_only, said_plainly
from quantwatch.record.examine import Damaged, examine
from quantwatch.record.place import BESIDE, move_aside, only_writer, sync_folder
from quantwatch.record.salvage import Count, salvage
from quantwatch.record.steps import version_of
from quantwatch.record.store import Store

LONG_OPEN = timedelta(days=1)
"""An order that is older has been given up by everyone but the store."""


def backup(path: Path, to: Path, *, at: datetime) -> Path:
    """Copy a store, also one that a daemon writes to; where the copy lies. It is one file and complete, or not there.

    to: a new file, or a folder for a file with the moment in its name. Raises InputError, StoreError.
    """
    known_store(path)
    place = to / f"{path.stem}-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}{path.suffix}" if to.is_dir() else to
    if place.exists():
        raise InputError(f"{place}: exists already; a backup never replaces a file")
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        with said_plainly(place, "written"):
            _copy(path, part)
        _name(part, place)
    except OSError as exc:
        raise InputError(f"{place}: cannot be written: {exc.strerror}") from exc
    finally:
        for suffix in ("", "-journal"):
            part.with_name(part.name + suffix).unlink(missing_ok=True)
    return place


def _copy(path: Path, part: Path) -> None:
    with contextlib.closing(read_only(path)) as source, contextlib.closing(sqlite3.connect(part)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # so that the copy needs no files beside it
        faults = [row[0] for row in copy.execute("PRAGMA quick_check(3)")]
    if faults != ["ok"]:
        raise StoreError(f"{path}: is damaged, so it is not backed up: {'; '.join(faults)}")
    with part.open("rb") as written:
        os.fsync(written.fileno())


def _name(part: Path, place: Path) -> None:
    """Give a complete copy its name. Raises OSError, also where a file has come up meanwhile."""
    try:
        os.link(part, place)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links, as on many a backup disk
        part.rename(place)
    with contextlib.suppress(OSError):
        sync_folder(place.parent)


def check(path: Path, *, now: datetime) -> list[str]:
    """Every fault of a store as a sentence, none for a sound one. Raises InputError where there is no store of ours."""
    try:
        known_store(path)
        with said_plainly(path, "read"), contextlib.closing(read_only(path)) as connection:
            return [*_structure(connection), *_sense(connection, now)]
    except StoreError as exc:
        return [str(exc)]


def _structure(connection: sqlite3.Connection) -> Iterator[str]:
    faults = [row[0] for row in connection.execute("PRAGMA integrity_check(20)")]
    yield from (f"damaged: {fault}" for fault in faults if fault != "ok")
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield f"{table} row {row} belongs to nothing in {parent}"


def _sense(connection: sqlite3.Connection, now: datetime) -> Iterator[str]:
    query = "SELECT decision, target, opened FROM intents WHERE result IS NULL AND opened < ? ORDER BY opened"
    for decision, target, opened in connection.execute(query, (moment_text(now - LONG_OPEN),)):
        yield f"the order {decision} for {target} is open since {opened}, longer than a day"
    query = "SELECT target, owner FROM target_states WHERE owner NOT IN (SELECT id FROM decisions) ORDER BY target"
    for target, owner in connection.execute(query):
        yield f"{target} is held by {owner}, which is no decision in this store"
    query = "SELECT id, action FROM decisions WHERE ruling = 'act' AND id NOT IN (SELECT decision FROM intents)"
    for decision, action in connection.execute(query):
        yield f"the decision {decision} ({action}) was to be carried out and has no order"
    for run, prompt, document in connection.execute("SELECT run, prompt_id, document FROM token_evidence"):
        try:
            prompt_of(unpacked(document))
        except UNREADABLE:
            yield f"the tokens of {prompt} in the run {run} cannot be read"


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery did. source: the damaged file, kept. damage: what was seen. counts: rows by table."""

    source: Path
    damage: str
    counts: dict[str, Count]


def recover(path: Path, *, clock: Clock, source: Path | None = None) -> Recovered | None:
    """Save what can be read of a damaged store into a new one, row by row; None when the store is sound.

    source: a file that was moved aside before, whose rows are added to the store at path; rows that are there already
    stay as they are. Raises InputError, and StoreError while a daemon runs.
    """
    if source is not None:
        return _recover_from(path, source, clock)
    if not path.is_file():
        beside = ", ".join(map(str, moved_aside(path)))
        raise InputError(f"{path}: no store here" + (f"; damaged ones, for --from: {beside}" if beside else ""))
    with only_writer(path):
        try:
            examine(path, version=version_of())
            faults = _all_faults(path)
            if not faults:
                return None
            damage = "; ".join(faults)
        except Damaged as exc:
            damage = str(exc)
        aside = move_aside(path, at=clock.now())
    return _filled(path, aside, clock=clock, damage=damage)


def moved_aside(path: Path) -> list[Path]:
    """Damaged stores beside this one, oldest first."""
    return sorted(one for one in path.parent.glob(f"{path.name}.corrupt-*") if not one.name.endswith(BESIDE))


def _recover_from(path: Path, source: Path, clock: Clock) -> Recovered:
    if not source.is_file():
        raise InputError(f"{source}: no file here")
    if path.exists() and source.samefile(path):
        raise InputError(f"{source}: is the store itself; leave --from out")
    return _filled(path, source, clock=clock, damage="moved aside before")


def _all_faults(path: Path) -> list[str]:
    """The thorough check: also indexes that disagree with their tables."""
    try:
        with said_plainly(path, "read"), contextlib.closing(read_only(path)) as connection:
            return list(_structure(connection))
    except StoreError as exc:
        if isinstance(exc.__cause__, sqlite3.Error) and code_of(exc.__cause__) in DAMAGE:
            return [str(exc)]
        raise


def _filled(path: Path, source: Path, *, clock: Clock, damage: str) -> Recovered:
    with Store.open(path, clock=clock), said_plainly(path, "written"):
        counts = salvage(source, path)
    return Recovered(source, damage, counts)
