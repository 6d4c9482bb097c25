"""The KL of single positions as a histogram that grows over all runs; each cell names the latest run in it."""

import math
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString

from quantwatch.expose import metrics as m
from quantwatch.flow.divergence import KL_BOUNDS, Spread
from quantwatch.flow.run import RunRecord

CELLS = len(KL_BOUNDS) + 1
_BOUNDS = [*map(floatToGoString, KL_BOUNDS), "+Inf"]
_ODD = re.compile(r"[^A-Za-z0-9._-]")


def run_label(record: RunRecord) -> dict[str, str]:
    """The labels of an exemplar: which run. OpenMetrics allows 128 characters in all."""
    return {"run_id": _ODD.sub("_", record.id)[:100]}


@dataclass(slots=True)
class _Counted:
    """Positions so far in each cell, the sum of their KL, and each cell's exemplar."""

    counts: list[int] = field(default_factory=lambda: [0] * CELLS)
    total: float = 0.0
    exemplars: list[Exemplar | None] = field(default_factory=lambda: [None] * CELLS)


class TokenKl(Collector):
    """Counts positions by target and task set. shown: whether there is a histogram at all; its series are the most.

    The client library's own histogram takes one value at a time; a run has thousands, and counts them itself. Pages are
    made in a thread of their own, hence the lock.
    """

    def __init__(self) -> None:
        self.shown = True
        self._counted: dict[tuple[str, str], _Counted] = {}
        self._lock = threading.Lock()

    def expect(self, target: str, task_set: str) -> None:
        """Start at 0, so that the first run is an increase."""
        with self._lock:
            self._counted.setdefault((target, task_set), _Counted())

    def forget(self, name: str, value: str) -> None:
        """Drop what has left. name: `target` or `task_set`; any other label drops nothing."""
        if name in m.TOKEN_KL.labels:
            place = m.TOKEN_KL.labels.index(name)
            with self._lock:
                self._counted = {pair: one for pair, one in self._counted.items() if pair[place] != value}

    def add(self, record: RunRecord, spread: Spread) -> None:
        """Count the positions of a run; one whose sum is not finite would spoil the histogram for ever."""
        if not math.isfinite(spread.total):
            return
        ended = record.started.timestamp() + record.seconds
        with self._lock:
            counted = self._counted.setdefault((record.target, record.task_set), _Counted())
            counted.total += max(spread.total, 0.0)
            for cell, (count, largest) in enumerate(zip(spread.counts, spread.largest, strict=True)):
                if count:
                    counted.counts[cell] += count
                    counted.exemplars[cell] = Exemplar(run_label(record), largest, ended)

    def collect(self) -> Iterable[Family]:
        """One family, or none where it is not shown."""
        if self.shown:
            name, series = m.PREFIX + m.TOKEN_KL.name, m.TOKEN_KL
            family = HistogramMetricFamily(name, series.help, labels=series.labels, unit=series.unit)
            with self._lock:
                for pair, one in self._counted.items():
                    family.add_metric([*map(m.label, pair)], _buckets(one), sum_value=one.total)
            yield family


def _buckets(one: _Counted) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
    """Upper bounds with the number of positions up to each, and an exemplar where there is one."""
    buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
    below = 0
    for bound, count, exemplar in zip(_BOUNDS, one.counts, one.exemplars, strict=True):
        below += count
        buckets.append((bound, float(below)) if exemplar is None else (bound, float(below), exemplar))
    return buckets
