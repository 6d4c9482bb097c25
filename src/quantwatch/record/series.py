"""Numbers of one target on one task set over time, thinned out in SQL so that extremes stay; and pages of its runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Float, Integer, Select, String, cast, func, select, tuple_

from quantwatch.flow.run import Trigger
from quantwatch.flow.verdict import Quality
from quantwatch.record.tables import NUMBERS, RUNS, TRANSITIONS

LATENCY = "latency"
"""Names the mean time of one probe at the node in seconds; the others are metrics, see flow/verdict.Metric."""

MOST_POINTS = 500


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is looked at: one target on one task set from `since` on, before `until`."""

    target: str
    task_set: str
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Point:
    """One number of one run. low, high: its interval. warn, critical: the limits that judged it; None without."""

    at: datetime
    value: float
    run: str
    quality: Quality
    low: float | None = None
    high: float | None = None
    warn: float | None = None
    critical: float | None = None


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run as one line of a list. numbers: by metric; empty where it gave none. probe_seconds: as LATENCY."""

    id: str
    target: str
    task_set: str
    trigger: Trigger
    started: datetime
    seconds: float | None
    quality: Quality
    reason: str
    probe_seconds: float | None
    numbers: dict[str, float | None]


_PROBE_SECONDS = func.json_extract(RUNS.c.document, "$.report.probe_seconds_node", type_=Float)
_LIMITS = ("low", "high", "warn", "critical")


def series(connection: Connection, stretch: Stretch, name: str, *, most: int = MOST_POINTS) -> list[Point]:
    """A number over time, oldest first: every run, or at most `most` of them when there are more.

    Where runs are left out, time is cut into equal parts, and of each its least and its greatest value stay; so does
    the latest run.
    """
    every = _every(stretch, name).subquery()
    whole = select(func.count(), func.min(every.c.at), func.max(every.c.at)).select_from(every)
    count, first, last = connection.execute(whole).one()
    if count <= most:
        return _points(connection, select(every).order_by(every.c.at))
    parts = max(1, (most - 3) // 2)
    seconds = cast(func.strftime("%s", cast(every.c.at, String)), Float)
    width = max(1.0, (last - first).total_seconds() / parts)
    part = cast((seconds - int(first.timestamp())) / width, Integer)
    chosen = {one.run: one for extreme in (func.min, func.max) for one in _extremes(connection, every, extreme, part)}
    latest = _points(connection, select(every).order_by(every.c.at.desc()).limit(1))
    chosen |= {one.run: one for one in latest}
    return sorted(chosen.values(), key=lambda one: (one.at, one.run))


def _extremes(connection: Connection, every: Any, extreme: Any, part: ColumnElement[int]) -> list[Point]:
    """Of each part the row of its extreme: with one min or max in a query, SQLite takes the others from that row."""
    others = [column for column in every.c if column.name != "value"]
    return _points(connection, select(extreme(every.c.value).label("value"), *others).group_by(part))


def _every(stretch: Stretch, name: str) -> Select[Any]:
    within = (
        RUNS.c.target == stretch.target,
        RUNS.c.task_set == stretch.task_set,
        RUNS.c.started >= stretch.since,
        RUNS.c.started < stretch.until,
    )
    about = (RUNS.c.started.label("at"), RUNS.c.id.label("run"), RUNS.c.quality.label("quality"))
    if name == LATENCY:
        timed = _PROBE_SECONDS.label("value")
        return select(timed, *about).where(*within, RUNS.c.measured, _PROBE_SECONDS.is_not(None))
    held = NUMBERS.join(RUNS, NUMBERS.c.run == RUNS.c.id)
    numbers = (NUMBERS.c.value, *(NUMBERS.c[one] for one in _LIMITS))
    wanted = (NUMBERS.c.metric == name, NUMBERS.c.value.is_not(None))
    return select(*numbers, *about).select_from(held).where(*within, *wanted)


def _points(connection: Connection, wanted: Select[Any]) -> list[Point]:
    return [Point(**row) for row in connection.execute(wanted).mappings()]


def run_lines(
    connection: Connection,
    *,
    target: str | None = None,
    task_set: str | None = None,
    before: str | None = None,
    limit: int = 20,
) -> list[RunLine]:
    """Runs, newest first, without their documents. before: the id of the run after which the list goes on.

    Where that run is not on record any more, the list begins with the newest.
    """
    kept = ("id", "target", "task_set", "trigger", "started", "seconds", "quality", "reason")
    wanted = select(*(RUNS.c[name] for name in kept), _PROBE_SECONDS.label("probe_seconds"))
    for column, value in ((RUNS.c.target, target), (RUNS.c.task_set, task_set)):
        wanted = wanted if value is None else wanted.where(column == value)
    last = select(RUNS.c.started, RUNS.c.id).where(RUNS.c.id == before)
    if before is not None and connection.execute(last).first() is not None:
        wanted = wanted.where(tuple_(RUNS.c.started, RUNS.c.id) < last.scalar_subquery())
    rows = connection.execute(wanted.order_by(RUNS.c.started.desc(), RUNS.c.id.desc()).limit(limit)).mappings().all()
    numbers = _numbers_of(connection, [row["id"] for row in rows])
    return [RunLine(**row, numbers=numbers.get(row["id"], {})) for row in rows]


def _numbers_of(connection: Connection, runs: Sequence[str]) -> dict[str, dict[str, float | None]]:
    found: dict[str, dict[str, float | None]] = {}
    for row in connection.execute(
        select(NUMBERS.c.run, NUMBERS.c.metric, NUMBERS.c.value).where(NUMBERS.c.run.in_(runs))
    ):
        found.setdefault(row.run, {})[row.metric] = row.value
    return found


def run_count(connection: Connection, *, target: str, task_set: str | None = None) -> int:
    """How many runs of a target are on record."""
    wanted = select(func.count()).select_from(RUNS).where(RUNS.c.target == target)
    return connection.execute(wanted if task_set is None else wanted.where(RUNS.c.task_set == task_set)).scalar_one()


def marks_where(stretch: Stretch) -> tuple[ColumnElement[bool], ...]:
    """Which transitions belong to a stretch: of the target as a whole, and of this task set."""
    return (
        TRANSITIONS.c.target == stretch.target,
        TRANSITIONS.c.at >= stretch.since,
        TRANSITIONS.c.at < stretch.until,
        (TRANSITIONS.c.task_set.is_(None)) | (TRANSITIONS.c.task_set == stretch.task_set),
    )
