"""A store with a long past, written in bulk into its real tables: what months of watching leave behind."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from random import Random
from typing import TypeVar

from sqlalchemy import text

from quantwatch.clock import Clock, SystemClock
from quantwatch.flow.decision import Action, Decision, Outcome, Result
from quantwatch.flow.run import RunRecord, fresh_id
from quantwatch.flow.state import Axis, Transition
from quantwatch.flow.verdict import Quality
from quantwatch.record.documents import decision_row, intent_row, number_rows, run_row
from quantwatch.record.rows import add_transitions, put
from quantwatch.record.store import Store
from quantwatch.record.tables import DECISIONS, INTENTS, NUMBERS, RUNS, SET_STATES
from support.stored import after, decision, divergence, finding, intent, run, set_report

BATCH = 2000
DAILY = 2 * math.pi / 86_400

T = TypeVar("T")

COPY_RUNS = """
WITH copied AS (
  SELECT *, substr(id, 1, 18) || printf('%04x', :number) || substr(id, -3) AS copy FROM runs WHERE target = :model
)
INSERT INTO runs
  (id, target, task_set, pool, trigger, started, seconds, quality, reason, basis, limits, measured, document)
SELECT copy, :name, task_set, pool, trigger, started, seconds, quality, reason, basis, limits, measured,
  json_set(document, '$.target', :name, '$.id', copy)
FROM copied
"""
COPY_NUMBERS = """
INSERT INTO numbers (run, metric, value, low, high, warn, critical, quality)
SELECT substr(run, 1, 18) || printf('%04x', :number) || substr(run, -3),
  metric, value, low, high, warn, critical, numbers.quality
FROM numbers JOIN runs ON runs.id = numbers.run WHERE runs.target = :model
"""


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    """Items in lists of BATCH."""
    rest = iter(items)
    while batch := list(islice(rest, BATCH)):
        yield batch


@dataclass(frozen=True, slots=True)
class Past:
    """One target on one task set. runs: how many, the last at `end`, each `every` after the one before.

    level: mean KL in nats about which the runs lie. bad: how many of the last runs breach.
    """

    target: str
    task_set: str
    pool: str
    runs: int
    end: datetime
    every: timedelta = timedelta(minutes=15)
    level: float = 0.004
    bad: int = 0


def records(past: Past, random: Random) -> Iterator[RunRecord]:
    """The runs of a past, oldest first: a level that breathes with the day, and noise."""
    for number in range(past.runs):
        left = past.runs - 1 - number
        started = past.end - left * past.every
        wave = 1 + 0.15 * math.sin(started.timestamp() * DAILY)
        kl = past.level * wave * random.lognormvariate(0, 0.12) * (12 if left < past.bad else 1)
        quality = Quality.DEGRADED if kl > 0.05 else Quality.WARN if kl > 0.01 else Quality.OK
        found = replace(
            divergence(kl),
            perplexity_ratio=replace(divergence(kl).perplexity_ratio, value=1 + 1.6 * kl),
            top1_agreement=replace(divergence(kl).top1_agreement, value=max(0.5, 0.985 - kl)),
        )
        report = set_report(kl, quality=quality, task_set=past.task_set)
        yield run(
            0,
            id=fresh_id("r", started, random),
            target=past.target,
            task_set=past.task_set,
            pool=past.pool,
            started=started,
            quality=quality,
            reason=f"{past.task_set}: {finding(kl, quality).reason}",
            report=replace(report, divergence=found, seconds_node=0.4 * wave, seconds_baseline=0.9),
        )


def write(store: Store, pasts: Sequence[Past], *, seed: int = 1) -> int:
    """Write every run with its numbers, and where each task set stands after the last; how many runs there are."""
    written = 0
    for past in pasts:
        last: RunRecord | None = None
        for batch in batches(records(past, Random(f"{seed} {past.target} {past.task_set}"))):
            rows = [run_row(one) for one in batch]
            numbers = [number for row in rows for number in number_rows(row["id"], row["document"]["report"])]
            with store._writing() as connection:
                connection.execute(RUNS.insert(), rows)
                connection.execute(NUMBERS.insert(), numbers)
            written, last = written + len(rows), batch[-1]
        if last is not None:
            with store._writing() as connection:
                put(connection, SET_STATES, after(last))
    return written


def clone(store: Store, model: str, names: Sequence[str]) -> None:
    """Give each of at most 65,536 names the runs of a target of which no two began in the same second."""
    with store._writing() as connection:
        for number, name in enumerate(names):
            for statement in (COPY_RUNS, COPY_NUMBERS):
                connection.execute(text(statement), {"number": number, "name": name, "model": model})


def decided(targets: Sequence[str], *, pool: str, each: int, end: datetime) -> Iterator[Decision]:
    """Isolations and releases of each target in turn, in the past before `end`."""
    for number, target in enumerate(targets):
        for turn in range(each):
            action = Action.ISOLATE if (each - turn) % 2 == 0 else Action.RELEASE
            moment = end - timedelta(hours=6 * (each - turn), seconds=number)
            made = decision(f"d-{moment:%Y%m%d-%H%M%S}-{number:04x}{turn:02x}", action=action)
            yield replace(made, at=moment, wish=replace(made.wish, target=target, pool=pool, run=None))


def decide(store: Store, made: Sequence[Decision]) -> None:
    """Write decisions with orders that were carried out, and what each changed."""
    for batch in batches(made):
        intents = [
            replace(
                intent(one),
                attempts=1,
                outcome=Outcome(Result.VERIFIED, "the gateway shows it", one.at + timedelta(seconds=2), 1),
            )
            for one in batch
        ]
        with store._writing() as connection:
            connection.execute(DECISIONS.insert(), [decision_row(one) for one in batch])
            connection.execute(INTENTS.insert(), [intent_row(one) for one in intents])
            add_transitions(connection, [_moved(one) for one in batch])


def _moved(made: Decision) -> Transition:
    out = made.wish.action is Action.ISOLATE
    old, new = ("in", "out") if out else ("out", "in")
    return Transition(made.at, made.wish.target, Axis.ROUTING, old, new, made.wish.reason, decision=made.id)


def opened(path: Path, *, clock: Clock | None = None) -> Store:
    """A store in a file of its own."""
    return Store.open(path, clock=clock or SystemClock())
