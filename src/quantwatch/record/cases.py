"""What happened around a run and within a period: the reader's side for incident reports."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, Table, func, select

from quantwatch.flow.decision import DONE
from quantwatch.flow.notice import Notice
from quantwatch.flow.state import Transition
from quantwatch.flow.verdict import BREACHES, Metric, Quality
from quantwatch.record.archive import Archive, runs_wanted
from quantwatch.record.decisions import StoredDecision, stored_decisions, transitions_wanted
from quantwatch.record.documents import StoredRun
from quantwatch.record.notices import kept_notices
from quantwatch.record.tables import DECISIONS, INTENTS, NUMBERS, RUNS, TRANSITIONS


@dataclass(frozen=True, slots=True)
class Point:
    """A run as a chart and a list need it. kl: mean KL in nats, with the ends of its interval; None without numbers.

    warn, critical: the limits on mean KL that judged it, None where that level is off or nothing was measured.
    """

    id: str
    target: str
    task_set: str
    started: datetime
    quality: Quality
    reason: str
    kl: float | None = None
    low: float | None = None
    high: float | None = None
    warn: float | None = None
    critical: float | None = None


@dataclass(frozen=True, slots=True)
class PairCount:
    """One target on one task set within a period. runs: by quality. worst: the largest mean KL in nats, and its run."""

    target: str
    task_set: str
    runs: tuple[tuple[Quality, int], ...]
    worst: Point | None

    @property
    def total(self) -> int:
        """All runs."""
        return sum(count for _, count in self.runs)

    @property
    def breaches(self) -> int:
        """Runs that breached, confirmed or not."""
        return sum(count for quality, count in self.runs if quality in BREACHES)


@dataclass(frozen=True, slots=True)
class OrderCount:
    """What came of the decisions of a period. done, failed: orders by how they ended. open: not settled yet.

    decisions: all of them, also those that no order followed from.
    """

    decisions: int = 0
    done: int = 0
    failed: int = 0
    open: int = 0


class Casebook:
    """Reads of an archive what happened around a run, and within a period. Moments: since <= at < until."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def course(self, run: StoredRun, *, before: int, after: int) -> list[Point]:
        """The runs of the same target and task set around a run, itself included, oldest first."""
        same = (RUNS.c.target == run.target, RUNS.c.task_set == run.task_set)
        earlier = _points().where(*same, RUNS.c.started <= run.started).order_by(RUNS.c.started.desc())
        later = _points().where(*same, RUNS.c.started > run.started).order_by(RUNS.c.started)
        with self._archive.reading() as connection:
            past = connection.execute(earlier.limit(before + 1)).mappings().all()
            coming = connection.execute(later.limit(after)).mappings().all()
        return [*(Point(**row) for row in reversed(past)), *(Point(**row) for row in coming)]

    def run(self, key: str) -> StoredRun | None:
        """A run by its whole id; None where there is none, or it is forgotten."""
        with self._archive.reading() as connection:
            row = connection.execute(runs_wanted().where(RUNS.c.id == key)).mappings().first()
        return None if row is None else StoredRun(**row)

    def sound_before(self, run: StoredRun) -> StoredRun | None:
        """The newest run of the same target and task set before this one that was OK and gave numbers."""
        wanted = runs_wanted().where(
            *(RUNS.c.target == run.target, RUNS.c.task_set == run.task_set, RUNS.c.started < run.started),
            *(RUNS.c.quality == Quality.OK, RUNS.c.measured),
        )
        with self._archive.reading() as connection:
            row = connection.execute(wanted.order_by(RUNS.c.started.desc()).limit(1)).mappings().first()
        return None if row is None else StoredRun(**row)

    def decisions_within(
        self, since: datetime, until: datetime, *, target: str | None = None, limit: int
    ) -> list[StoredDecision]:
        """The newest decisions with what came of them, so many at most; oldest first."""
        wanted = select(DECISIONS).where(*_within(DECISIONS, since, until, target=target))
        newest = wanted.order_by(DECISIONS.c.at.desc(), DECISIONS.c.id.desc()).limit(limit)
        with self._archive.reading() as connection:
            rows = connection.execute(newest).mappings().all()
            return stored_decisions(connection, reversed(rows))

    def changes_within(
        self, since: datetime, until: datetime, *, target: str | None = None, limit: int
    ) -> list[Transition]:
        """The newest changes on all axes, so many at most; oldest first."""
        wanted = transitions_wanted().where(*_within(TRANSITIONS, since, until, target=target))
        newest = wanted.order_by(TRANSITIONS.c.at.desc(), TRANSITIONS.c.number.desc()).limit(limit)
        with self._archive.reading() as connection:
            rows = connection.execute(newest).mappings().all()
        return [Transition(**row) for row in reversed(rows)]

    def breaches_within(self, since: datetime, until: datetime, *, limit: int) -> list[Point]:
        """The newest runs that breached, so many at most; oldest first."""
        wanted = _points().where(*_within(RUNS, since, until), RUNS.c.quality.in_(BREACHES))
        newest = wanted.order_by(RUNS.c.started.desc(), RUNS.c.id.desc()).limit(limit)
        with self._archive.reading() as connection:
            rows = connection.execute(newest).mappings().all()
        return [Point(**row) for row in reversed(rows)]

    def how_many(
        self,
        what: Literal["runs", "decisions", "changes"],
        since: datetime,
        until: datetime,
        *,
        target: str | None = None,
        task_set: str | None = None,
    ) -> int:
        """How many there are in a period, whether a list of them is cut or not."""
        table = {"runs": RUNS, "decisions": DECISIONS, "changes": TRANSITIONS}[what]
        within = _within(table, since, until, target=target, task_set=task_set)
        with self._archive.reading() as connection:
            return connection.execute(select(func.count()).select_from(table).where(*within)).scalar_one()

    def counts_within(self, since: datetime, until: datetime) -> list[PairCount]:
        """How many runs each target had on each task set, by quality, and the worst of them."""
        within = (RUNS.c.started >= since, RUNS.c.started < until)
        names = (RUNS.c.target, RUNS.c.task_set)
        counted = select(*names, RUNS.c.quality, func.count()).where(*within).group_by(*names, RUNS.c.quality)
        # SQLite takes the other columns from the row of the largest value.
        largest = func.max(NUMBERS.c.value).label("kl")
        worst = (
            select(RUNS.c.id, largest)
            .join(NUMBERS, (NUMBERS.c.run == RUNS.c.id) & (NUMBERS.c.metric == Metric.KL_MEAN.value))
            .where(*within)
            .group_by(*names)
        ).subquery()
        with self._archive.reading() as connection:
            rows = connection.execute(counted.order_by(*names, RUNS.c.quality)).all()
            found = connection.execute(_points().join(worst, worst.c.id == RUNS.c.id)).mappings().all()
        best = {(row["target"], row["task_set"]): Point(**row) for row in found}
        pairs: dict[tuple[str, str], list[tuple[Quality, int]]] = {}
        for target, task_set, quality, count in rows:
            pairs.setdefault((target, task_set), []).append((quality, count))
        return [PairCount(*pair, tuple(runs), best.get(pair)) for pair, runs in pairs.items()]

    def orders_within(self, since: datetime, until: datetime) -> OrderCount:
        """What came of the decisions of a period."""
        sent = INTENTS.c.decision.is_not(None)
        wanted = select(sent, INTENTS.c.result, func.count()).select_from(
            DECISIONS.outerjoin(INTENTS, INTENTS.c.decision == DECISIONS.c.id)
        )
        within = (DECISIONS.c.at >= since, DECISIONS.c.at < until)
        with self._archive.reading() as connection:
            rows = connection.execute(wanted.where(*within).group_by(sent, INTENTS.c.result)).all()
        return OrderCount(
            decisions=sum(count for *_, count in rows),
            done=sum(count for _, result, count in rows if result in DONE),
            failed=sum(count for _, result, count in rows if result is not None and result not in DONE),
            open=sum(count for ordered, result, count in rows if ordered and result is None),
        )

    def told_of(self, targets: Sequence[str]) -> list[Notice]:
        """What people were last told of these targets, and of the baseline. The store keeps no older words."""
        with self._archive.reading() as connection:
            told = kept_notices(connection).told.values()
        return sorted((one for one in told if one.matter.target in (None, *targets)), key=lambda one: one.since)


def _within(
    table: Table, since: datetime, until: datetime, *, target: str | None = None, task_set: str | None = None
) -> list[ColumnElement[bool]]:
    """Rows of a period, of one target and task set where they are named."""
    at = table.c.started if table is RUNS else table.c.at
    named = {"target": target, "task_set": task_set}
    return [at >= since, at < until, *(table.c[name] == one for name, one in named.items() if one is not None)]


def _points() -> Select[Any]:
    """Runs with their mean KL, where they have one."""
    names = ("id", "target", "task_set", "started", "quality", "reason")
    numbers = (NUMBERS.c.value.label("kl"), *(NUMBERS.c[name] for name in ("low", "high", "warn", "critical")))
    kl = (NUMBERS.c.run == RUNS.c.id) & (NUMBERS.c.metric == Metric.KL_MEAN.value)
    return select(*(RUNS.c[name] for name in names), *numbers).select_from(RUNS.outerjoin(NUMBERS, kl))
