"""Small things done with rows: is it there, put it, give it back."""

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, func, select

from quantwatch.flow.decision import Intent
from quantwatch.flow.state import Axis, Transition
from quantwatch.record.documents import StoredRun, intent_of
from quantwatch.record.tables import INTENTS, RUNS, TRANSITIONS


def has(connection: Connection, table: Table, key: str) -> bool:
    """Whether a row of this id is there."""
    return connection.execute(select(table.c.id).where(table.c.id == key)).first() is not None


def put(connection: Connection, table: Table, noun: Any) -> None:
    """Write a noun whose fields are the columns, in place of an older one."""
    connection.execute(table.insert().prefix_with("OR REPLACE"), flat(noun))


def add_transitions(connection: Connection, transitions: Sequence[Transition]) -> None:
    """Add what changed, in its order."""
    if transitions:
        connection.execute(TRANSITIONS.insert(), [flat(one) for one in transitions])


def flat(noun: Any) -> dict[str, Any]:
    """The fields of a noun by name."""
    return {one.name: getattr(noun, one.name) for one in dataclasses.fields(noun)}


def newest(connection: Connection, target: str, task_set: str) -> StoredRun | None:
    """The newest run of a pair that gave numbers."""
    names = [one.name for one in dataclasses.fields(StoredRun)]
    wanted = select(*(RUNS.c[name] for name in names)).where(
        RUNS.c.target == target, RUNS.c.task_set == task_set, RUNS.c.measured
    )
    row = connection.execute(wanted.order_by(RUNS.c.started.desc(), RUNS.c.id.desc()).limit(1)).mappings().first()
    return None if row is None else StoredRun(**row)


def latest_changes(connection: Connection) -> dict[tuple[str, str], datetime]:
    """When the quality of each target on each task set changed last."""
    pair = (TRANSITIONS.c.target, TRANSITIONS.c.task_set)
    known = (TRANSITIONS.c.axis == Axis.QUALITY, TRANSITIONS.c.task_set.is_not(None))
    rows = connection.execute(select(*pair, func.max(TRANSITIONS.c.at)).where(*known).group_by(*pair))
    return {(target, task_set): at for target, task_set, at in rows}


def latest_ended(connection: Connection) -> list[Intent]:
    """The newest order of each target that has ended."""
    ended = select(INTENTS.c.target, func.max(INTENTS.c.settled).label("settled")).group_by(INTENTS.c.target).subquery()
    same = (INTENTS.c.target == ended.c.target) & (INTENTS.c.settled == ended.c.settled)
    rows = connection.execute(select(INTENTS).join(ended, same)).mappings().all()
    return [intent_of(dict(row)) for row in rows]
