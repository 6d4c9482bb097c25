"""What has been seen of a daemon so far: its latest board, the last values of each number, what changed and when."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from quantwatch.cli.watch_facts import Facts, Said, differences, facts, remarkable
from quantwatch.flow.verdict import Metric

SHOWN = (Metric.KL_MEAN, Metric.PERPLEXITY_RATIO, Metric.TOP1_AGREEMENT)
KEPT_VALUES = 24
KEPT_EVENTS = 200
READ_RUNS = 5_000

Series = dict[Metric, float]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was seen to change. at: when it was seen, which is up to one interval after it came about."""

    at: datetime
    said: str
    style: str = ""


@dataclass(slots=True)
class Past:
    """board: the latest one, None before the first. lost: since when no daemon answers, None while one does.

    why: what stood in the way of the latest answer. values: by target and task set, one entry a run, oldest first.
    """

    board: dict[str, Any] | None = None
    seen: datetime | None = None
    lost: datetime | None = None
    why: str = ""
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    values: dict[tuple[str, str], dict[str, Series]] = field(default_factory=dict)
    _facts: Facts = field(default_factory=dict)

    def take(self, board: dict[str, Any], now: datetime) -> list[Event]:
        """Take in a board; what is to be told of it."""
        said: list[Said] = []
        if self.lost is not None:
            said.append((f"a daemon answers again, after {max(0, (now - self.lost).total_seconds()):.0f} s", "bold"))
        known, restored = facts(board, now), board["own"]["restored"]
        if self.board is not None and not restored:
            # A daemon that has just begun shows no target yet, which says nothing about any.
            known, board = {**self._facts, **known}, {**board, "targets": self.board["targets"]}
        said += differences(self._facts, known) if self.board is not None else remarkable(known)
        self._facts, self.board, self.seen, self.lost, self.why = known, board, now, None, ""
        if restored:
            self._keep(board)
        return self._told(said, now)

    def miss(self, why: str, now: datetime) -> list[Event]:
        """Note that no daemon answered; it is told once, and again only when the cause is another."""
        again = self.lost is not None and why == self.why
        self.lost, self.why = self.lost or now, why
        return [] if again else self._told([(f"no answer: {why}", "bold red")], now)

    def series(self, target: str, task_set: str, metric: Metric) -> list[float]:
        """The last values of a number, oldest first."""
        runs = self.values.get((target, task_set), {})
        return [values[metric] for values in runs.values() if metric in values]

    def remember(self, target: str, task_set: str, *, run: str, numbers: Mapping[str, Any]) -> None:
        """Keep a run's values; a run that is known already counts once."""
        runs = self.values.setdefault((target, task_set), {})
        found = {metric: numbers[metric] for metric in SHOWN if isinstance(numbers.get(metric), int | float)}
        if found and run not in runs:
            runs[run] = found
            while len(runs) > KEPT_VALUES:
                del runs[next(iter(runs))]

    def _keep(self, board: Mapping[str, Any]) -> None:
        shown = {(one["target"], each["task_set"]): each for one in board["targets"] for each in one["task_sets"]}
        for place in set(self.values) - set(shown):
            del self.values[place]  # what left the configuration is not kept for ever
        for (target, task_set), each in shown.items():
            # The numbers are those of the last run that gave any, and that run ended at `success`.
            self.remember(target, task_set, run=each["success"] or "", numbers=each["numbers"])

    def _told(self, said: Sequence[Said], now: datetime) -> list[Event]:
        new = [Event(now, text, style) for text, style in said]
        self.events.extend(new)
        return new


def recorded(store: Path) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Target, task set, when it ended and numbers of the latest runs of a store, oldest first. Raises InputError."""
    from quantwatch.expose.as_json import time_json
    from quantwatch.record.archive import Archive

    with Archive.open(store) as archive:
        for run in reversed(archive.history(limit=READ_RUNS)):
            yield run.target, run.task_set, time_json(run.ended) or "", run.numbers
