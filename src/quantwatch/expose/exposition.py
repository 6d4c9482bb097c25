"""The page that Prometheus reads, in the format that it asks for."""

from collections.abc import Iterable

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from quantwatch.expose.collector import BoardCollector
from quantwatch.expose.meters import Meters
from quantwatch.flow.board import Board

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class _Both(Collector):
    """A board and the meters as one; without `_created`, a second series for each counter that nobody reads."""

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors

    def collect(self) -> Iterable[Family]:
        for collector in self._collectors:
            for family in collector.collect():
                family.samples = [one for one in family.samples if not one.name.endswith("_created")]
                yield family


def exposition(board: Board, meters: Meters, *, accept: str = "") -> tuple[bytes, str]:
    """The page and its content type: OpenMetrics, with exemplars, where `accept` names it, else the text format."""
    everything = _Both(BoardCollector(lambda: board), meters.registry)
    if "application/openmetrics-text" in accept.lower():
        page: bytes = openmetrics.generate_latest(everything)  # type: ignore[no-untyped-call]
        return page, OPENMETRICS
    return generate_latest(everything), TEXT
