"""The board as families of gauges, made afresh at each scrape: what has left the board has left the page."""

import math
import platform
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from enum import StrEnum

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from quantwatch import __version__
from quantwatch.expose import metrics as m
from quantwatch.flow.board import BaselineBoard, Board, PoolBoard, SelfBoard, SetBoard, TargetBoard
from quantwatch.flow.handshake import Handshake
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import CANNOT_TELL, Limit, Metric

NUMBERS = {
    m.KL_MEAN: "kl_mean",
    m.KL_P99: "kl_p99",
    m.KL_MAX: "kl_max",
    m.PERPLEXITY_RATIO: "perplexity_ratio",
    m.TOP1: "top1_agreement",
    m.TOPK_OVERLAP: "topk_overlap",
    m.LOGPROB_DELTA: "logprob_delta",
    m.CORRUPTED: "corrupted_positions",
    m.COVERAGE: "coverage",
    m.TOKENS: "positions",
    m.PROMPTS: "distinct_prompts",
}
BY_ROLE = {
    m.PERPLEXITY: {"baseline": "perplexity_baseline", "target": "perplexity_node"},
    m.OUTSIDE: {"baseline": "tail_mass", "target": "tail_mass_node"},
    m.ENTROPY: {"baseline": "entropy_baseline", "target": "entropy_node"},
    m.PROBE_SECONDS: {"baseline": "probe_seconds_baseline", "target": "probe_seconds_node"},
}
INTERVALS = {
    "kl_interval": (m.KL_LOW, m.KL_HIGH),
    "perplexity_ratio_interval": (m.RATIO_LOW, m.RATIO_HIGH),
}
"""Which number of a run a family shows; the keys are those of flow/as_json.set_json."""

LIMITS = {
    Metric.KL_MEAN: m.KL_MEAN_LIMIT,
    Metric.KL_P99: m.KL_P99_LIMIT,
    Metric.PERPLEXITY_RATIO: m.PERPLEXITY_LIMIT,
    Metric.TOP1_AGREEMENT: m.TOP1_LIMIT,
}


class BoardCollector(Collector):
    """Collects what a board shows; asks for the board at each scrape."""

    def __init__(self, board: Callable[[], Board]) -> None:
        self._board = board

    def collect(self) -> Iterable[Family]:
        """The families of the board as it is now. What is unknown or not finite is left out."""
        return families(self._board())


class _Page:
    """Families by their series, filled one value after another."""

    def __init__(self) -> None:
        self._gauges: dict[m.Series, GaugeMetricFamily] = {}
        self._infos: dict[m.Series, InfoMetricFamily] = {}

    def put(self, series: m.Series, value: object, *labels: str) -> None:
        """Add a value: a time as seconds since 1970, a truth value as 0 or 1. What is no finite number is left out."""
        number = value.timestamp() if isinstance(value, datetime) else value
        if isinstance(number, int | float) and math.isfinite(number):
            if series not in self._gauges:
                name = m.PREFIX + series.name
                self._gauges[series] = GaugeMetricFamily(name, series.help, labels=series.labels, unit=series.unit)
            self._gauges[series].add_metric([m.label(one) for one in labels], float(number))

    def tell(self, series: m.Series, *labels: str) -> None:
        """Add an info: a 1 that carries labels."""
        if series not in self._infos:
            self._infos[series] = InfoMetricFamily(m.PREFIX + series.name.removesuffix("_info"), series.help)
        self._infos[series].add_metric([], dict(zip(series.labels, map(m.label, labels), strict=True)))

    def choose(self, series: m.Series, chosen: StrEnum, *labels: str) -> None:
        """Add a value for each member of an enumeration: 1 for the chosen, 0 for the others."""
        for one in type(chosen):
            self.put(series, one is chosen, *labels, one.value)

    def __iter__(self) -> Iterator[Family]:
        return iter([*self._infos.values(), *self._gauges.values()])


def families(board: Board) -> Iterable[Family]:
    """The families that show a board."""
    page = _Page()
    page.tell(m.BUILD, __version__, platform.python_version())
    page.put(m.READY, board.ready)
    _own(page, board.own)
    _baseline(page, board.baseline)
    for pool in board.pools:
        _pool(page, pool)
        page.put(m.APPROVALS, sum(one.pool == pool.name for one in board.proposals), pool.name)
    for one in board.task_sets:
        asked = (str(one.prompts), str(one.draw), str(one.k), one.mode.value)
        page.tell(m.TASK_SET_INFO, one.name, one.digest[:12], *asked)
    for target in board.targets:
        _target(page, target)
    _pauses(page, board)
    return page


def _own(page: _Page, own: SelfBoard) -> None:
    page.put(m.STARTED, own.started)
    page.put(m.RELOAD_OK, own.reload_ok)
    page.put(m.RELOADED, own.reloaded)
    page.put(m.STORE_UP, own.store_trouble is None)
    page.put(m.UNWRITTEN, own.unwritten)
    page.put(m.INTENTS, own.open_intents)
    page.put(m.GATEWAY_UP, own.gateway_trouble is None)
    page.put(m.RECENT_LAG, own.lag)
    for channel, waiting in own.notices_waiting.items():
        page.put(m.NOTICES_WAITING, waiting, channel)


def _baseline(page: _Page, baseline: BaselineBoard) -> None:
    who = baseline.identity
    if who is not None:
        page.tell(m.BASELINE_INFO, who.name, who.model, who.version or "")
    page.put(m.BASELINE_UP, baseline.up)
    page.put(m.BASELINE_SOUND, baseline.sound)
    page.put(m.BASELINE_CHECKED, baseline.checked)
    page.put(m.BASELINE_DRIFT, baseline.drift)
    page.put(m.BASELINE_REACHABLE, baseline.answers)
    for one in baseline.references:
        page.choose(m.REFERENCE_STATE, one.state, one.task_set)
        page.put(m.REFERENCE_MADE, one.made, one.task_set)
        page.put(m.REFERENCE_CHECKED, one.checked, one.task_set)
        page.put(m.REFERENCE_DRIFT, one.drift, one.task_set)


def _pool(page: _Page, pool: PoolBoard) -> None:
    page.put(m.POOL_TARGETS, pool.targets, pool.name)
    page.put(m.POOL_ISOLATED, pool.isolated, pool.name)
    page.put(m.POOL_ALLOWED, pool.allowed, pool.name)
    page.put(m.POOL_MISSING, None if pool.missing is None else len(pool.missing), pool.name)
    page.put(m.STORM, pool.storm, pool.name)
    page.choose(m.POOL_STATE, pool.stands.state, pool.name)
    page.choose(m.MODE, pool.mode, pool.name)
    for rung in pool.rungs:
        page.put(m.POOL_RUNG, rung == pool.rung, pool.name, rung)


def _pauses(page: _Page, board: Board) -> None:
    """Scopes that can be paused show 0 as well, so that a pause is a change and no new series."""
    known = [
        "all",
        *(f"pool:{one.name}" for one in board.pools),
        *(f"target:{one.state.target}" for one in board.targets),
    ]
    paused = dict.fromkeys(one.scope for one in board.pauses)
    for scope in dict.fromkeys([*known, *paused]):
        page.put(m.PAUSED, scope in paused, scope)
    for scope in paused:
        page.put(m.PAUSE_REVIEW, min(one.review for one in board.pauses if one.scope == scope), scope)


def _target(page: _Page, target: TargetBoard) -> None:
    state, who = target.state, target.identity
    name = state.target
    model, version = ("", "") if who is None else (who.model, who.version or "")
    page.tell(m.TARGET_INFO, name, state.pool, target.scheme, model, version, target.gateway_name)
    page.choose(m.QUALITY, target.quality, name)
    page.choose(m.ROUTING, state.routing, name)
    page.choose(m.HUMAN, state.human, name)
    page.put(m.HUMAN_UNTIL, state.human_until, name)
    _handshake(page, name, target.handshake)
    page.put(m.LEFT, target.left, name)
    page.put(m.ISOLATED_SINCE, state.since if state.routing is Routing.OUT else None, name)
    page.put(m.ISOLATION_VERIFIED, target.verified, name)
    page.put(m.EJECTIONS, state.ejections, name)
    page.put(m.HOLD_UNTIL, target.hold_until, name)
    page.put(m.PROBATION, target.probation_until is not None, name)
    page.put(m.WEIGHT, None if target.weight is None else target.weight / 100, name)
    for counted, value in (target.counts.counted if target.counts is not None else {}).items():
        page.put(m.COUNTED, value, name, counted)
    page.put(m.QUEUE, target.queued, name)
    page.put(m.BUSY, target.running is not None, name)
    for one in target.sets:
        _state(page, one)
        _numbers(page, one)
        _limits(page, one)


def _handshake(page: _Page, name: str, met: Handshake | None) -> None:
    if met is not None:
        page.put(m.HANDSHAKE_OK, met.ok, name)
        for one in met.seen:
            page.put(m.HANDSHAKE_CHECK_OK, one.ok, name, one.point.value)


def _state(page: _Page, one: SetBoard) -> None:
    state = one.state
    at = (state.target, state.task_set)
    page.choose(m.VERDICT, state.quality, *at)
    page.put(m.VERDICT_SINCE, one.since, *at)
    page.put(m.SUCCESS, None if state.run is None else state.last not in CANNOT_TELL, *at)
    page.put(m.LAST_RUN, state.at, *at)
    page.put(m.LAST_SUCCESS, one.success, *at)
    page.put(m.PERIOD, one.period, *at)
    page.put(m.FRESH, one.fresh, *at)
    page.put(m.BREACHES, state.breaches, *at)
    page.put(m.CLEAN, state.clean, *at)
    page.put(m.UNDECIDED, state.undecided, *at)


def _numbers(page: _Page, one: SetBoard) -> None:
    at = (one.state.target, one.state.task_set)
    for series, key in NUMBERS.items():
        page.put(series, one.numbers.get(key), *at)
    for series, roles in BY_ROLE.items():
        for role, key in roles.items():
            page.put(series, one.numbers.get(key), *at, role)
    for key, ends in INTERVALS.items():
        found = one.numbers.get(key)
        for series, value in zip(ends, found if isinstance(found, list) else (), strict=False):
            page.put(series, value, *at)


def _limits(page: _Page, one: SetBoard) -> None:
    for metric, series in LIMITS.items():
        limit = one.limits.get(metric, Limit())
        page.put(series, limit.warn, one.state.target, one.state.task_set, "warn")
        page.put(series, limit.critical, one.state.target, one.state.task_set, "critical")
