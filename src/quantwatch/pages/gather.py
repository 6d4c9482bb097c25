"""Gathers an incident from the store: by a run, by a decision, or all of a period."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from quantwatch import __version__
from quantwatch.flow.decision import Brake
from quantwatch.flow.identity import Identity
from quantwatch.flow.tokens import PromptsShown
from quantwatch.flow.verdict import Metric, Quality
from quantwatch.judge.threshold import LABELS
from quantwatch.log import without_secrets
from quantwatch.pages.causes import advise
from quantwatch.pages.hidden import kept_back
from quantwatch.pages.incident import Event, Exchange, Incident, LeftOut, Number, Part, Period, Yardstick
from quantwatch.pages.standing import around, doubts
from quantwatch.pages.timeline import events
from quantwatch.record.archive import Archive
from quantwatch.record.cases import Casebook, Point
from quantwatch.record.continuations import fingerprint
from quantwatch.record.decisions import StoredDecision
from quantwatch.record.differences import factors
from quantwatch.record.documents import INTERVALS, StoredRun, order_json

BEFORE, AFTER = 60, 20
"""Runs of the pair that a chart shows before and after the one in question."""

RUN_UP = timedelta(hours=1)
LONGEST_RUN_UP = timedelta(days=1)
"""How far back a timeline goes: to the last good run, but never less than one and never more than the other."""

AFTERMATH = timedelta(days=1)
"""How long after a run or decision things still count to it."""

MOST = 500
"""Rows of one kind in a timeline or a period, the newest; a report says how many it leaves out."""

PLAIN = (
    ("kl_median", "median KL"),
    ("kl_max", "largest KL"),
    ("perplexity_baseline", "baseline perplexity"),
    ("perplexity_node", "node perplexity"),
    ("tail_mass", "baseline tail mass"),
    ("tail_mass_node", "node tail mass"),
    ("coverage", "coverage"),
)
"""Numbers without limits, and how people call them."""


def incident_of(archive: Archive, found: StoredRun | StoredDecision, *, now: datetime, shown: PromptsShown) -> Incident:
    """Everything about a run or a decision. Raises StoreError when the store cannot be read.

    shown: how much of golden prompts may be seen.
    """
    incident = _Case(archive, found, now, shown).incident()
    return incident.advised(advise(incident))


def period_of(archive: Archive, since: datetime, until: datetime, *, now: datetime) -> Period:
    """All decisions and breaches between two moments."""
    book = Casebook(archive)
    decisions = book.decisions_within(since, until, limit=MOST)
    breaches = book.breaches_within(since, until, limit=MOST)
    changes = book.changes_within(since, until, limit=MOST)
    pairs, orders = book.counts_within(since, until), book.orders_within(since, until)
    return Period(
        made=now,
        version=__version__,
        since=since,
        until=until,
        pairs=tuple(pairs),
        decisions=tuple(decisions),
        breaches=tuple(breaches),
        timeline=events(changes=changes, decisions=decisions),
        orders=orders,
        left_out=LeftOut(
            breaches=sum(one.breaches for one in pairs) - len(breaches),
            decisions=orders.decisions - len(decisions),
            changes=book.how_many("changes", since, until) - len(changes),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Case:
    archive: Archive
    found: StoredRun | StoredDecision
    now: datetime
    shown: PromptsShown

    def incident(self) -> Incident:
        book = Casebook(self.archive)
        decision = None if isinstance(self.found, StoredRun) else self.found
        run = self._run(book)
        sound = None if run is None else book.sound_before(run)
        course = [] if run is None else book.course(run, before=BEFORE, after=AFTER)
        decisions = self._decisions(run, decision)
        pool = _pool(run, decisions)
        timeline, left_out = self._timeline(book, course, sound, decisions, pool=pool)
        whole = self.found
        return Incident(
            made=self.now,
            version=__version__,
            subject=whole.id,
            target=whole.target,
            task_set=whole.task_set,
            pool=pool,
            quality=None if run is None else run.quality,
            headline=whole.reason,
            run=run,
            decision=decision or next(iter(decisions), None),
            decisions=tuple(decisions),
            timeline=timeline,
            numbers=() if run is None else tuple(numbers_of(run)),
            parts=() if run is None else tuple(parts_of(run)),
            course=tuple(course),
            sound=sound,
            changed=() if run is None or sound is None else tuple(factors(sound.document, run.document)),
            exchanges=tuple(exchanges_of(decisions)),
            yardstick=self._yardstick(book, run, decisions),
            tokens=None if run is None else self.archive.tokens(run.id, shown=self.shown),
            shown=self.shown,
            left_out=left_out,
        )

    def _run(self, book: Casebook) -> StoredRun | None:
        """The run with as much of answers and prompts as may be seen."""
        run = self.found if isinstance(self.found, StoredRun) else book.run(self.found.run or "")
        return None if run is None else replace(run, document=kept_back(run.document, self.shown))

    @property
    def _at(self) -> datetime:
        """When it was known what happened: what a run finds out about the baseline is known at its end."""
        return self.found.ended if isinstance(self.found, StoredRun) else self.found.at

    def _decisions(self, run: StoredRun | None, decision: StoredDecision | None) -> list[StoredDecision]:
        based = [] if run is None else self.archive.decisions_on(run.id)
        if decision is None or decision.id in {one.id for one in based}:
            return based
        return [decision, *based]

    def _timeline(
        self,
        book: Casebook,
        course: Sequence[Point],
        sound: StoredRun | None,
        decisions: Sequence[StoredDecision],
        *,
        pool: str,
    ) -> tuple[tuple[Event, ...], LeftOut]:
        at = self.found.started if isinstance(self.found, StoredRun) else self.found.at
        begins = at - RUN_UP if sound is None else min(sound.started, at - RUN_UP)
        since, until = max(begins, at - LONGEST_RUN_UP), at + AFTERMATH
        target = self.found.target
        near = book.decisions_within(since, until, target=target, limit=MOST)
        runs = [one for one in course if since <= one.started < until]
        newest = book.changes_within(since, until, target=target, limit=MOST)
        own = [each for one in decisions for each in one.transitions if since <= each.at < until]
        changes = [*newest, *(one for one in own if one not in newest)]
        measured = 0 if not course else book.how_many("runs", since, until, target=target, task_set=course[0].task_set)
        left_out = LeftOut(
            runs=measured - len(runs),
            decisions=book.how_many("decisions", since, until, target=target) - len(near),
            changes=book.how_many("changes", since, until, target=target) - len(changes),
        )
        found = events(
            runs=runs,
            changes=changes,
            decisions=[*near, *(one for one in decisions if one.id not in {each.id for each in near})],
            notices=tuple(around(book.told_of([target]), since, until, pool=pool, at=self._at)),
        )
        return found, left_out

    def _yardstick(self, book: Casebook, run: StoredRun | None, decisions: Sequence[StoredDecision]) -> Yardstick:
        against = [
            objection["reason"]
            for one in decisions
            for objection in one.objections
            if objection["brake"] == Brake.YARDSTICK.value
        ]
        against += doubts(book.told_of([]), task_set=self.found.task_set, at=self._at)
        identity = None if run is None else run.document.get("baseline")
        if run is None or not identity or not run.numbers:
            return Yardstick(doubts=tuple(against))
        kept = self.archive.references(fingerprint(Identity(**identity)), run.numbers["pool"])
        made = sorted(one.made for one in kept)
        return Yardstick(len(kept), made[0] if made else None, made[-1] if made else None, tuple(against))


def numbers_of(run: StoredRun) -> Iterator[Number]:
    """The numbers of a run, those with limits first, then limits of parts, then the others."""
    report = run.numbers
    if not report:
        return
    found = report.get("findings") or ()
    held = {one["metric"]: one for one in found if one.get("part") is None}
    for metric, interval in INTERVALS.items():
        low, high = report.get(interval) or (None, None)
        one = held.get(metric.value, {})
        yield _number(metric, report.get(metric.value), (low, high), one)
    for one in found:
        if one.get("part") is not None:
            yield _number(Metric(one["metric"]), one["value"], (None, None), one)
    for name, label in PLAIN:
        yield Number(name, label, report.get(name))


def _number(
    metric: Metric, value: float | None, ends: tuple[float | None, float | None], held: Mapping[str, Any]
) -> Number:
    return Number(
        metric=metric.value,
        label=LABELS[metric],
        value=value,
        low=ends[0],
        high=ends[1],
        warn=held.get("warn"),
        critical=held.get("critical"),
        verdict=Quality(held["verdict"]) if held else None,
        reason=held.get("reason", ""),
        part=held.get("part"),
    )


def parts_of(run: StoredRun) -> list[Part]:
    """The slices of a run, the worst first."""
    whole = run.numbers.get("kl_mean")
    found = [_part(one, whole) for one in run.numbers.get("slices") or ()]
    return sorted(found, key=lambda one: -(one.kl or 0.0))


def _part(one: Mapping[str, Any], whole: float | None) -> Part:
    low, high = one.get("kl_interval") or (None, None)
    kl = one.get("kl_mean")
    return Part(
        dimension=one["dimension"],
        value=one["value"],
        prompts=one["prompts"],
        positions=one["positions"],
        kl=kl,
        low=low,
        high=high,
        perplexity_ratio=one.get("perplexity_ratio"),
        top1=one.get("top1_agreement"),
        times=kl / whole if kl is not None and whole else None,
    )


def exchanges_of(decisions: Sequence[StoredDecision]) -> Iterator[Exchange]:
    """What was sent to the gateway for these decisions, and what came back. Secrets in addresses are masked."""
    for one in decisions:
        if one.intent is None:
            continue
        order, outcome = one.intent.order, one.intent.outcome
        fields = {name: value for name, value in order_json(order).items() if name != "evidence" and value is not None}
        yield Exchange(
            decision=one.id,
            opened=one.intent.opened,
            attempts=one.intent.attempts,
            sent=tuple((name, without_secrets(str(value))) for name, value in fields.items()),
            result=None if outcome is None else outcome.result.value,
            detail=None if outcome is None else without_secrets(outcome.detail),
            settled=None if outcome is None else outcome.at,
            doubt=outcome is not None and outcome.doubt,
        )


def _pool(run: StoredRun | None, decisions: Sequence[StoredDecision]) -> str:
    return str(run.document.get("pool", "")) if run is not None else decisions[0].pool
