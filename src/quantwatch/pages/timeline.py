"""One timeline out of runs, changes, decisions, orders and notices, oldest first."""

from collections.abc import Iterator, Sequence

from quantwatch.flow.decision import DONE, Action, Ruling
from quantwatch.flow.notice import Notice
from quantwatch.flow.state import Transition
from quantwatch.log import without_secrets
from quantwatch.pages.incident import Event, Kind, Tone, tone_of
from quantwatch.record.cases import Point
from quantwatch.record.decisions import StoredDecision

_RANK = {kind: rank for rank, kind in enumerate(Kind)}
_BY_ORDER = _RANK[Kind.OUTCOME] + 0.5
"""The place of a change that a decision has made: after all that led to it."""


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


def _run(one: Point) -> Event:
    said = f"{one.task_set}: {one.quality}: {one.reason}"
    return Event(one.started, Kind.RUN, said, tone_of(one.quality), run=one.id)


def _change(one: Transition) -> Event:
    about = one.axis if one.task_set is None else f"{one.axis} on {one.task_set}"
    said = f"{one.target}: {about}: {one.old} -> {one.new}: {one.reason}"
    return Event(one.at, Kind.CHANGE, said, Tone.PLAIN, one.author, one.run, one.decision)


def _notice(one: Notice) -> Event:
    over = "" if one.matter.standing else ", over"
    said = f"told: {one.matter.topic} {one.matter.state}{over}: {one.matter.reason}"
    return Event(one.at, Kind.NOTICE, said, run=one.matter.run, decision=one.matter.decision)


def _decision(one: StoredDecision) -> Iterator[Event]:
    against = "; ".join(f"{objection['brake']}: {objection['reason']}" for objection in one.objections)
    held = f" (objections: {against})" if against else ""
    said = f"{one.action} {one.target}: ruled {one.ruling}: {one.reason}{held}"
    acted = one.ruling is Ruling.ACT
    done = one.intent is not None and one.intent.outcome is not None and one.intent.outcome.result in DONE
    back = Tone.GOOD if done else Tone.WARN
    tone = Tone.WARN if not acted else back if one.action is Action.RELEASE else Tone.BAD
    yield Event(one.at, Kind.DECISION, said, tone, one.author, one.run, one.id, acted=acted)
    if one.proposal is not None and one.proposal.closed is not None:
        closed = f"proposal {one.proposal.fate}: {one.proposal.said or ''}".rstrip(": ")
        yield Event(one.proposal.closed, Kind.PROPOSAL, closed, by=one.proposal.author or "quantwatch", decision=one.id)
    if one.intent is None:
        return
    order = one.intent.order
    sent = f"order to the gateway: {order.action} {without_secrets(order.node)} through {order.driver}"
    yield Event(one.intent.opened, Kind.ORDER, sent, decision=one.id)
    outcome = one.intent.outcome
    if outcome is not None:
        tone = Tone.GOOD if outcome.result in DONE else Tone.BAD
        ended = f"{order.action} {order.target}: {outcome.result}: {without_secrets(outcome.detail)}"
        yield Event(outcome.at, Kind.OUTCOME, ended, tone, decision=one.id)
