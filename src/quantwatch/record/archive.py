"""The reader's side of a store: what commands show, also while a daemon writes."""

import contextlib
import dataclasses
import sqlite3
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection, Engine, Select, Table, or_, select

from quantwatch.errors import InputError, StoreError
from quantwatch.flow.state import TargetState, Transition
from quantwatch.flow.tokens import PromptsShown, TokensSeen
from quantwatch.record.decisions import (
    DecisionLine,
    StoredDecision,
    decision_lines,
    stored_decisions,
    transitions_wanted,
)
from quantwatch.record.documents import StoredRun
from quantwatch.record.engine import read_only, reader, said_plainly
from quantwatch.record.evidence import tokens_kept
from quantwatch.record.examine import Damaged, schema_version
from quantwatch.record.references import StoredAnswer, kept
from quantwatch.record.series import MOST_POINTS, Point, RunLine, Stretch, marks_where, run_count, run_lines, series
from quantwatch.record.steps import version_of
from quantwatch.record.tables import DECISIONS, NUMBERS, RUNS, TARGET_STATES, TRANSITIONS

SHOWN = 5
"""How many ids a message about an ambiguous one names."""


class Archive:
    """Reads a store and never writes it. Use it as a context manager."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self.path = path
        self._engine = engine

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open for reading. Raises InputError for no store of ours, StoreError for one that cannot be read."""
        known_store(path)
        return cls(path, reader(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._engine.dispose()

    def standing(self, target: str) -> TargetState | None:
        """Where a target stands by the record, None for one that was never kept."""
        with self.reading() as connection:
            rows = connection.execute(select(TARGET_STATES).where(TARGET_STATES.c.target == target))
            row = rows.mappings().first()
            return None if row is None else TargetState(**row)

    def history(
        self,
        *,
        target: str | None = None,
        task_set: str | None = None,
        since: datetime | None = None,
        limit: int | None = 20,
    ) -> list[StoredRun]:
        """Runs, newest first."""
        wanted = _narrowed(runs_wanted(), RUNS, target=target, task_set=task_set)
        if since is not None:
            wanted = wanted.where(RUNS.c.started >= since)
        with self.reading() as connection:
            rows = connection.execute(wanted.order_by(RUNS.c.started.desc(), RUNS.c.id.desc()).limit(limit))
            return [StoredRun(**row) for row in rows.mappings()]

    def decisions(
        self,
        *,
        target: str | None = None,
        task_set: str | None = None,
        since: datetime | None = None,
        limit: int | None = 20,
    ) -> list[StoredDecision]:
        """Decisions with what came of them, newest first."""
        wanted = _narrowed(select(DECISIONS), DECISIONS, target=target, task_set=task_set)
        if since is not None:
            wanted = wanted.where(DECISIONS.c.at >= since)
        with self.reading() as connection:
            rows = connection.execute(wanted.order_by(DECISIONS.c.at.desc(), DECISIONS.c.id.desc()).limit(limit))
            return stored_decisions(connection, rows.mappings().all())

    def decision_lines(self, target: str, *, limit: int) -> list[DecisionLine]:
        """Decisions about a target as lines of a list, newest first."""
        with self.reading() as connection:
            return decision_lines(connection, target=target, limit=limit)

    def timeline(self, *, target: str | None = None, limit: int | None = 100) -> list[Transition]:
        """Changes on all axes, newest first as they were written: a wall clock can be set back."""
        wanted = _narrowed(transitions_wanted(), TRANSITIONS, target=target)
        with self.reading() as connection:
            rows = connection.execute(wanted.order_by(TRANSITIONS.c.number.desc()).limit(limit))
            return [Transition(**row) for row in rows.mappings()]

    def series(self, stretch: Stretch, name: str, *, most: int = MOST_POINTS) -> list[Point]:
        """A number of one target on one task set over time, oldest first and thinned out; see record/series.py."""
        with self.reading() as connection:
            return series(connection, stretch, name, most=most)

    def marks(self, stretch: Stretch, *, limit: int = 200) -> list[Transition]:
        """What changed for a target and a task set in a stretch of time, newest first."""
        wanted = transitions_wanted().where(*marks_where(stretch)).order_by(TRANSITIONS.c.number.desc()).limit(limit)
        with self.reading() as connection:
            return [Transition(**row) for row in connection.execute(wanted).mappings()]

    def run_lines(
        self, *, target: str | None = None, task_set: str | None = None, before: str | None = None, limit: int = 20
    ) -> list[RunLine]:
        """Runs as lines of a list, newest first. before: the id of the run after which it goes on."""
        with self.reading() as connection:
            return run_lines(connection, target=target, task_set=task_set, before=before, limit=limit)

    def run_count(self, target: str, task_set: str | None = None) -> int:
        """How many runs of a target are on record."""
        with self.reading() as connection:
            return run_count(connection, target=target, task_set=task_set)

    def run(self, given: str) -> StoredRun:
        """A run by its id, or the beginning or end of it. Raises InputError when it names none or several."""
        found = self.find(given)
        if not isinstance(found, StoredRun):
            raise InputError(f"{found.id} is a decision; a run is wanted")
        return found

    def decision(self, given: str) -> StoredDecision:
        """A decision, by the rules of run."""
        found = self.find(given)
        if isinstance(found, StoredRun):
            raise InputError(f"{found.id} is a run; a decision is wanted")
        return found

    def find(self, given: str) -> StoredRun | StoredDecision:
        """A run or a decision by its id, or the beginning or end of it. Raises InputError for none or several."""
        with self.reading() as connection:
            table, key = self._only(connection, given)
            wanted = (runs_wanted() if table is RUNS else select(DECISIONS)).where(table.c.id == key)
            row = dict(connection.execute(wanted).mappings().one())
            return StoredRun(**row) if table is RUNS else stored_decisions(connection, [row])[0]

    def numbers(self, run: str) -> list[dict[str, Any]]:
        """The numbers of a run with their limits, in the order they were written."""
        with self.reading() as connection:
            rows = connection.execute(select(NUMBERS).where(NUMBERS.c.run == run).order_by(NUMBERS.c.metric))
            return [dict(row) for row in rows.mappings()]

    def tokens(self, run: str, *, shown: PromptsShown) -> TokensSeen | None:
        """The tokens that are kept of a run, by its whole id, with as much as may be shown now; None without any.

        What was recorded under a more generous setting is not given out: no texts under `ids`, nothing under `off`.
        """
        with self.reading() as connection:
            return tokens_kept(connection, run, shown=shown)

    def changes(self, run: str) -> list[Transition]:
        """What a run changed on any axis, oldest first."""
        with self.reading() as connection:
            rows = connection.execute(
                transitions_wanted().where(TRANSITIONS.c.run == run).order_by(TRANSITIONS.c.at, TRANSITIONS.c.number)
            )
            return [Transition(**row) for row in rows.mappings()]

    def decisions_on(self, run: str) -> list[StoredDecision]:
        """Decisions that rest on a run, oldest first."""
        with self.reading() as connection:
            rows = connection.execute(select(DECISIONS).where(DECISIONS.c.run == run).order_by(DECISIONS.c.at))
            return stored_decisions(connection, rows.mappings().all())

    def references(self, fingerprint: str, pool: str) -> list[StoredAnswer]:
        """The baseline's answers that count for this baseline and pool of prompts."""
        with self.reading() as connection:
            return kept(connection, fingerprint=fingerprint, pool=pool)

    def _only(self, connection: Connection, given: str) -> tuple[Table, str]:
        """Where an id stands, and the whole of it. An id given whole is never ambiguous."""
        found: list[tuple[Table, str]] = []
        for table in (RUNS, DECISIONS):
            whole = connection.execute(select(table.c.id).where(table.c.id == given)).scalars().first()
            if whole is not None:
                return table, whole
        for table in (RUNS, DECISIONS):
            like = or_(table.c.id.startswith(given, autoescape=True), table.c.id.endswith(given, autoescape=True))
            ids = connection.execute(select(table.c.id).where(like).order_by(table.c.id.desc()).limit(SHOWN + 1))
            found += [(table, key) for key in ids.scalars()]
        if not given or not found:
            raise InputError(f"{self.path}: no run or decision {given or 'without an id'}; see `quantwatch history`")
        if len(found) > 1:
            more = " and more" if len(found) > SHOWN else ""
            ids_said = ", ".join(key for _, key in found[:SHOWN])
            raise InputError(f"{given} could be {ids_said}{more}; give more of the id")
        return found[0]

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that sees one moment, also for what this room reads elsewhere."""
        with said_plainly(self.path, "read"), self._engine.connect() as connection, connection.begin():
            yield connection


def known_store(path: Path) -> int:
    """The schema version of a store that we can read. Raises InputError, and StoreError for a damaged file."""
    if not path.is_file():
        raise InputError(f"{path}: no store here; name it with --store, or the configuration with --config")
    try:
        with said_plainly(path, "read"), contextlib.closing(read_only(path)) as connection:
            found = schema_version(connection, path)
    except Damaged as exc:
        raise StoreError(f"{path}: cannot be read: {exc}; run `quantwatch store recover`") from exc
    except StoreError as exc:
        no_sqlite = getattr(exc.__cause__, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB
        if no_sqlite or exc.__cause__ is None:
            raise InputError(str(exc)) from exc
        raise
    if found != version_of():
        said = "is empty" if found == 0 else f"has schema version {found}, and this quantwatch reads {version_of()}"
        raise InputError(f"{path}: {said}")
    return found


def runs_wanted() -> Select[Any]:
    """The columns of StoredRun."""
    return select(*(RUNS.c[one.name] for one in dataclasses.fields(StoredRun)))


def _narrowed(wanted: Select[Any], table: Table, **given: str | None) -> Select[Any]:
    for name, value in given.items():
        if value is not None:
            wanted = wanted.where(table.c[name] == value)
    return wanted
