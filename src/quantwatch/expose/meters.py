"""What is counted as it happens: counters and histograms of one daemon."""

import re
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, PlatformCollector, ProcessCollector

from quantwatch.expose import metrics as m
from quantwatch.expose.token_kl import TokenKl, run_label
from quantwatch.flow.decision import Action, Brake, Result, Ruling
from quantwatch.flow.pool import PoolState, whole
from quantwatch.flow.proposal import Fate
from quantwatch.flow.report import SetReport
from quantwatch.flow.run import RunRecord
from quantwatch.flow.state import Axis, Human, Routing, Transition
from quantwatch.flow.verdict import BREACHES, CANNOT_TELL, Quality

SKIPS = ("overlap", "draining", "crashed")
"""Why a run that was due was not made."""

CALL_FAILURES = ("unavailable", "refused")
"""How a call to the gateway can fail (act/carry_out.Attempt)."""

FATES = tuple(one for one in Fate if one is not Fate.OPEN)
"""How a proposal can end."""

LEVELS = ("warn", "critical")
"""Which limit a run was over."""

OWN_PAUSES = ("approvals", "gateway", "store", "store_lost")
"""What leads to a pause of our own."""

ADMIN_REFUSALS = ("unauthorized", "forbidden", "slowed", "origin", "not_local", "session", "csrf", "replay")
"""Why the admin listener refuses a request."""

OTHER = "other"
STATES: dict[Axis, type[Quality] | type[Routing] | type[Human] | type[PoolState]] = {
    Axis.QUALITY: Quality,
    Axis.ROUTING: Routing,
    Axis.HUMAN: Human,
    Axis.POOL: PoolState,
}

COUNTERS = (
    m.RUNS,
    m.RUN_FAILURES,
    m.RUNS_SKIPPED,
    m.LIMIT_BREACHES,
    m.POSITIONS,
    m.PROMPTS_DRAWN,
    m.PROMPTS_MISSING,
    m.SUPPRESSED,
    m.DECISIONS,
    m.PROPOSALS,
    m.TRANSITIONS,
    m.GATEWAY_CALLS,
    m.GATEWAY_FAILURES,
    m.ORDERS,
    m.UPSTREAM_CALLS,
    m.UPSTREAM_FAILURES,
    m.PROBE_TOKENS,
    m.PROBE_RESTARTS,
    m.NOTICES,
    m.NOTICE_FAILURES,
    m.OWN_PAUSES,
    m.ADMIN_CALLS,
    m.ADMIN_REFUSED,
    m.STORE_ERRORS,
    m.RUNS_LOST,
    m.TOKENS_LOST,
    m.CLOCK_JUMPS,
    m.JOBS_MISSED,
    m.VERDICTS_ASKED,
    m.VERDICTS_UNKNOWN,
)
BUCKETS = {
    m.RUN_DELAY: (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000),
    m.RUN_SECONDS: (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
    m.GATEWAY_SECONDS: (0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
    m.UPSTREAM_SECONDS: (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
    m.LAG_SECONDS: (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
}
"""Upper bounds in seconds, each a like factor over the one before."""

_REASON = re.compile(r"[a-z][a-z0-9_]{0,39}")


class Meters:
    """Counters and histograms in a registry of their own, with those of the process and of Python."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.token_kl = TokenKl()
        self.registry.register(self.token_kl)
        self._counters = {one: _counter(one, self.registry) for one in COUNTERS}
        self._histograms = {one: _histogram(one, self.registry) for one in BUCKETS}
        for reason in OWN_PAUSES:
            self._count(m.OWN_PAUSES, reason, by=0)
        for reason in ADMIN_REFUSALS:
            self._count(m.ADMIN_REFUSED, reason, by=0)

    def expect(self, target: str, task_sets: Iterable[str]) -> None:
        """Start the series of a configured target at 0, so that the first event is an increase."""
        self._count(m.VERDICTS_ASKED, target, by=0)
        for role, name in (("target", target), ("baseline", "baseline")):
            self._count(m.PROBE_TOKENS, role, name, by=0)
            self._count(m.PROBE_RESTARTS, role, name, by=0)
        for axis, states in STATES.items():
            for state in states:
                self._count(m.TRANSITIONS, target, axis.value, state.value, by=0)
        for name in task_sets:
            for series in (m.RUNS, m.POSITIONS, m.PROMPTS_DRAWN, m.PROMPTS_MISSING):
                self._count(series, target, name, by=0)
            for level in LEVELS:
                self._count(m.LIMIT_BREACHES, target, name, level, by=0)
            self.token_kl.expect(target, name)
            for quality in sorted(CANNOT_TELL):
                self._count(m.RUN_FAILURES, target, name, quality.value, by=0)
            for reason in SKIPS:
                self._count(m.RUNS_SKIPPED, target, name, reason, by=0)

    def expect_pool(self, pool: str) -> None:
        """Start the series of a configured pool at 0."""
        for brake in Brake:
            self._count(m.SUPPRESSED, pool, brake.value, by=0)
        for action in Action:
            for ruling in Ruling:
                self._count(m.DECISIONS, pool, action.value, ruling.value, by=0)
            for fate in FATES:
                self._count(m.PROPOSALS, pool, action.value, fate.value, by=0)

    def expect_driver(self, driver: str) -> None:
        """Start the series of the configured driver at 0."""
        for action in Action:
            at = (_word(driver), action.value)
            self._count(m.GATEWAY_CALLS, *at, by=0)
            for reason in CALL_FAILURES:
                self._count(m.GATEWAY_FAILURES, *at, reason, by=0)
            for result in Result:
                self._count(m.ORDERS, *at, result.value, by=0)

    def expect_channel(self, channel: str) -> None:
        """Start the series of a configured channel at 0."""
        self._count(m.NOTICES, channel, by=0)
        self._count(m.NOTICE_FAILURES, channel, by=0)

    def forget(self, target: str) -> None:
        """Drop every series of a target that has left."""
        self._forget("target", target)

    def forget_pool(self, pool: str) -> None:
        """Drop every series of a pool that has left."""
        self._forget("pool", pool)
        self._forget("target", whole(pool))

    def forget_set(self, task_set: str) -> None:
        """Drop every series of a task set that has left."""
        self._forget("task_set", task_set)

    def forget_channel(self, channel: str) -> None:
        """Drop every series of a channel that has left."""
        self._forget("channel", channel)

    def run_finished(self, record: RunRecord) -> None:
        """Count a run that ended, whatever it found."""
        at = (record.target, record.task_set)
        self._count(m.RUNS, *at)
        if record.quality in CANNOT_TELL:
            self._count(m.RUN_FAILURES, *at, record.quality.value)
        if record.quality is Quality.WARN or record.quality in BREACHES:
            self._count(m.LIMIT_BREACHES, *at, "warn" if record.quality is Quality.WARN else "critical")
        self._observe(m.RUN_SECONDS, record.seconds, record.task_set, exemplar=run_label(record))
        if record.report is not None:
            self._measured(record, record.report)

    def _measured(self, record: RunRecord, report: SetReport) -> None:
        at, seen, found = (record.target, record.task_set), report.observation, report.divergence
        self._count(m.PROMPTS_DRAWN, *at, by=seen.drawn)
        self._count(m.PROMPTS_MISSING, *at, by=max(seen.drawn - seen.measured, 0))
        if found is not None:
            self._count(m.POSITIONS, *at, by=found.positions)
            if found.spread is not None:
                self.token_kl.add(record, found.spread)

    def run_waited(self, seconds: float) -> None:
        """Note how long a run that starts has waited since it was due."""
        self._observe(m.RUN_DELAY, seconds)

    def run_skipped(self, target: str, task_set: str, reason: str) -> None:
        """Count a run that was due and not made; reason: one of SKIPS."""
        self._count(m.RUNS_SKIPPED, target, task_set, reason if reason in SKIPS else OTHER)

    def suppressed(self, pool: str, brake: Brake) -> None:
        """Count an objection to an action."""
        self._count(m.SUPPRESSED, pool, brake.value)

    def decided(self, pool: str, action: Action, ruling: Ruling) -> None:
        """Count a decision."""
        self._count(m.DECISIONS, pool, action.value, ruling.value)

    def proposal_closed(self, pool: str, action: Action, fate: Fate) -> None:
        """Count a proposal that no longer waits."""
        self._count(m.PROPOSALS, pool, action.value, fate.value)

    def transition(self, change: Transition) -> None:
        """Count a change of a target's state, or of a pool's."""
        known = {state.value for state in STATES[change.axis]}
        self._count(m.TRANSITIONS, change.target, change.axis.value, change.new if change.new in known else OTHER)

    def gateway_called(self, driver: str, action: Action, *, seconds: float, failure: str | None = None) -> None:
        """Count a call to the gateway. failure: why it failed, as one word; None when it worked."""
        at = (_word(driver), action.value)
        self._count(m.GATEWAY_CALLS, *at)
        if failure is not None:
            self._count(m.GATEWAY_FAILURES, *at, _word(failure))
        self._observe(m.GATEWAY_SECONDS, seconds, *at)

    def settled(self, driver: str, action: Action, result: Result) -> None:
        """Count an order that has come to its end."""
        self._count(m.ORDERS, _word(driver), action.value, result.value)

    def upstream_called(self, role: str, target: str, *, seconds: float, failure: str | None = None) -> None:
        """Count a request to a target or the baseline. role: `baseline` or `target`."""
        at = (_word(role), target)
        self._count(m.UPSTREAM_CALLS, *at)
        if failure is not None:
            self._count(m.UPSTREAM_FAILURES, *at, _word(failure))
        self._observe(m.UPSTREAM_SECONDS, seconds, at[0])

    def probe_sent(self, role: str, target: str, tokens: int) -> None:
        """Count the tokens of a probe that is sent. role: `baseline` or `target`."""
        self._count(m.PROBE_TOKENS, _word(role), target, by=tokens)

    def probe_restarted(self, role: str, target: str) -> None:
        """Count a server that restarted while it was probed. role: `baseline` or `target`."""
        self._count(m.PROBE_RESTARTS, _word(role), target)

    def notice_told(self, channel: str) -> None:
        """Count a notice that a channel has taken."""
        self._count(m.NOTICES, channel)

    def notice_failed(self, channel: str) -> None:
        """Count a notice that a channel was never told."""
        self._count(m.NOTICE_FAILURES, channel)

    def paused_itself(self, reason: str) -> None:
        """Count a pause that quantwatch made itself; reason: one of OWN_PAUSES."""
        self._count(m.OWN_PAUSES, reason if reason in OWN_PAUSES else OTHER)

    def admin_called(self, call: str, role: str) -> None:
        """Count a call to the admin listener that was let in and changes something."""
        self._count(m.ADMIN_CALLS, _word(call), _word(role))

    def admin_refused(self, reason: str) -> None:
        """Count a request that the admin listener refused; reason: one of ADMIN_REFUSALS."""
        self._count(m.ADMIN_REFUSED, reason if reason in ADMIN_REFUSALS else OTHER)

    def store_error(self) -> None:
        """Count a read or write of the store that failed."""
        self._count(m.STORE_ERRORS)

    def run_lost(self) -> None:
        """Count a run that was given up before it could be written."""
        self._count(m.RUNS_LOST)

    def tokens_lost(self) -> None:
        """Count a run whose tokens were given up before they could be written."""
        self._count(m.TOKENS_LOST)

    def clock_jumped(self) -> None:
        """Count a jump of the wall clock."""
        self._count(m.CLOCK_JUMPS)

    def loop_lag(self, seconds: float) -> None:
        """Note how late the event loop was."""
        self._observe(m.LAG_SECONDS, seconds)

    def job_missed(self, reason: str) -> None:
        """Count a tick of the schedule that started nothing."""
        self._count(m.JOBS_MISSED, _word(reason))

    def verdict_asked(self, target: str, *, known: bool) -> None:
        """Count a question to /verdict; anybody can ask for any name, so unknown ones share one series."""
        if known:
            self._count(m.VERDICTS_ASKED, target)
        else:
            self._count(m.VERDICTS_UNKNOWN)

    def _count(self, series: m.Series, *labels: str, by: float = 1) -> None:
        counter = self._counters[series]
        (counter.labels(*map(m.label, labels)) if labels else counter).inc(by)

    def _observe(self, series: m.Series, seconds: float, *labels: str, exemplar: dict[str, str] | None = None) -> None:
        histogram = self._histograms[series]
        (histogram.labels(*map(m.label, labels)) if labels else histogram).observe(seconds, exemplar)

    def _forget(self, name: str, value: str) -> None:
        self.token_kl.forget(name, value)
        for series, meter in (*self._counters.items(), *self._histograms.items()):
            if name in series.labels:
                samples = [sample.labels for family in meter.collect() for sample in family.samples]
                gone = {tuple(one[part] for part in series.labels) for one in samples if one[name] == m.label(value)}
                for labels in gone:
                    meter.remove(*labels)


def _counter(series: m.Series, registry: CollectorRegistry) -> Counter:
    return Counter(m.PREFIX + series.name, series.help, series.labels, registry=registry)


def _histogram(series: m.Series, registry: CollectorRegistry) -> Histogram:
    buckets = BUCKETS[series]
    return Histogram(m.PREFIX + series.name, series.help, series.labels, registry=registry, buckets=buckets)


def _word(text: str) -> str:
    """A label's value from a closed set; a sentence, which would make a new series each time, becomes `other`."""
    return text if _REASON.fullmatch(text) else OTHER
