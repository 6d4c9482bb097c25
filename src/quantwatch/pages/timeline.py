"""One timeline out of runs, changes, decisions, orders and notices, oldest first."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from quantwatch.flow.decision import DONE, Action, Intent, Origin, Ruling
from quantwatch.flow.notice import Notice, Topic
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.state import Axis, Transition
from quantwatch.log import without_secrets
from quantwatch.pages.incident import Event, Kind, Phrase, Tone, tone_of
from quantwatch.pages.words import phrased
from quantwatch.record.cases import Point
from quantwatch.record.decisions import StoredDecision

_RANK = {kind: rank for rank, kind in enumerate(Kind)}
_BY_ORDER = _RANK[Kind.OUTCOME] + 0.5
"""The place of a change that a decision has made: after all that led to it."""

OURSELVES = "quantwatch"
"""The author of what no person has done."""

STATES = {
    Topic.QUALITY: "quality.",
    Topic.ROUTING: "routing.",
    Topic.CONTRADICTED: "routing.",
    Topic.STORM: "pool.",
    Topic.WORD: "human.",
    Topic.ORDER: "result.",
    Topic.REFERENCE: "reference.",
}
"""Topics whose state is a code that has a word, and where those words begin."""

BRAKED = (Topic.HELD_BACK, Topic.WOULD_HAVE)
"""Topics whose state lists the brakes that object."""


def events(
    *,
    runs: Sequence[Point] = (),
    changes: Sequence[Transition] = (),
    decisions: Sequence[StoredDecision] = (),
    notices: Sequence[Notice] = (),
) -> tuple[Event, ...]:
    """Everything in the order of time; what happened at one moment stands cause before effect."""
    found = [*map(_run, runs), *map(_change, changes), *map(_notice, notices)]
    for one in decisions:
        found += _decision(one)
    return tuple(sorted(found, key=lambda event: (event.at, _rank(event))))


def _rank(one: Event) -> float:
    return _BY_ORDER if one.kind is Kind.CHANGE and one.decision is not None else _RANK[one.kind]


def _event(at: datetime, kind: Kind, *phrases: Phrase, **more: Any) -> Event:
    said = "; ".join(f"{phrased(one, 'en')}: {one.detail}" if one.detail else phrased(one, "en") for one in phrases)
    return Event(at, kind, said, phrases=phrases, **more)


def _run(one: Point) -> Event:
    terms = {"quality": ("quality.", one.quality.value)}
    told = Phrase("timeline.run", {"task_set": one.task_set}, terms, one.reason)
    return _event(one.started, Kind.RUN, told, tone=tone_of(one.quality), run=one.id)


def _change(one: Transition) -> Event:
    about = "timeline.change" if one.task_set is None else "timeline.change.set"
    values = {"target": one.target, "task_set": one.task_set or ""}
    begin = f"{one.axis}."
    terms = {"axis": ("axis.", one.axis.value), "old": (begin, one.old), "new": (begin, one.new)}
    spoken = one.axis is Axis.HUMAN and one.author != OURSELVES
    told = Phrase(about, values, terms, one.reason, spoken)
    return _event(one.at, Kind.CHANGE, told, by=one.author, run=one.run, decision=one.decision)


def _notice(one: Notice) -> Event:
    matter = one.matter
    key = "timeline.notice" if matter.standing else "timeline.notice.over"
    terms = {"topic": ("topic.", matter.topic.value)}
    if matter.topic in STATES:
        key, terms = f"{key}.state", {**terms, "state": (STATES[matter.topic], matter.state)}
    brakes = matter.state.split(", ") if matter.topic in BRAKED and matter.standing else ()
    told = Phrase(key, {}, terms, matter.reason, spoken=matter.topic is Topic.WORD and matter.standing)
    held = (Phrase("timeline.brake", {}, {"brake": ("brake.", brake)}) for brake in brakes)
    return _event(one.at, Kind.NOTICE, told, *held, run=matter.run, decision=matter.decision)


def _decision(one: StoredDecision) -> Iterator[Event]:
    acted = one.ruling is Ruling.ACT
    done = one.intent is not None and one.intent.outcome is not None and one.intent.outcome.result in DONE
    back = Tone.GOOD if done else Tone.WARN
    tone = Tone.WARN if not acted else back if one.action is Action.RELEASE else Tone.BAD
    about = {"by": one.author, "run": one.run, "decision": one.id}
    yield _event(one.at, Kind.DECISION, *_ruled(one), tone=tone, acted=acted, **about)
    if one.proposal is not None and one.proposal.closed is not None:
        yield _answered(one.proposal, one.proposal.closed)
    if one.intent is not None:
        yield from _ordered(one.intent, one.id)


def _ruled(one: StoredDecision) -> Iterator[Phrase]:
    """What was wished and became of it, and what objected."""
    terms = {"action": ("action.", one.action.value), "ruling": ("ruling.", one.ruling.value)}
    yield Phrase("timeline.decision", {"target": one.target}, terms, one.reason, one.origin is Origin.PERSON)
    for each in one.objections:
        yield Phrase("timeline.brake", {}, {"brake": ("brake.", each["brake"])}, each["reason"])


def _answered(one: Proposal, closed: datetime) -> Event:
    by = one.author or OURSELVES
    terms = {"fate": ("timeline.fate.", one.fate.value)}
    told = Phrase("timeline.proposal", {}, terms, one.said or "", by != OURSELVES)
    return _event(closed, Kind.PROPOSAL, told, by=by, decision=one.decision)


def _ordered(one: Intent, decision: str) -> Iterator[Event]:
    order, outcome = one.order, one.outcome
    action = ("action.", order.action.value)
    sent = {"node": without_secrets(order.node), "driver": order.driver}
    yield _event(one.opened, Kind.ORDER, Phrase("timeline.order", sent, {"action": action}), decision=decision)
    if outcome is not None:
        tone = Tone.GOOD if outcome.result in DONE else Tone.BAD
        terms = {"action": action, "result": ("result.", outcome.result.value)}
        told = Phrase("timeline.outcome", {"target": order.target}, terms, without_secrets(outcome.detail))
        yield _event(outcome.at, Kind.OUTCOME, told, tone=tone, decision=decision)
