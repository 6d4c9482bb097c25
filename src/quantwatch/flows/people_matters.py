"""Matters of people: what they have said about targets, and what waits for their word."""

from collections.abc import Iterator

from quantwatch.flow.decision import Action
from quantwatch.flow.notice import Matter, Topic
from quantwatch.flow.proposal import Fate, Proposal
from quantwatch.flow.state import Human, TargetState
from quantwatch.flows.view import View


def of_word(state: TargetState) -> Iterator[Matter]:
    """A person's word about a target, for as long as it holds."""
    said = state.human is not Human.NONE
    until = "somebody frees it" if state.human_until is None else f"{state.human_until:%Y-%m-%d %H:%M} UTC"
    yield Matter(
        Topic.WORD,
        state.target,
        str(state.human),
        f"{state.human_author}: {state.human_reason}" if said else "no person's word holds for it any more",
        standing=said,
        done=f"no verdict changes its routing until {until}" if said else "",
        target=state.target,
        pool=state.pool,
    )


def of_proposals(view: View) -> Iterator[Matter]:
    """What waits for approval, and how the latest of each target ended that does not any more."""
    closed = sorted(view.memory.closed.values(), key=lambda one: one.closed or one.opened)
    latest = {one.target: one for one in closed} | view.memory.proposals
    for one in latest.values():
        yield _waits(one, view) if one.fate is Fate.OPEN else _answered(one)


def _waits(one: Proposal, view: View) -> Matter:
    others = f"; what objects besides: {one.objections}" if one.objections else ""
    ask = f"`quantwatch approve {one.decision}` or `quantwatch reject {one.decision}`"
    return Matter(
        Topic.PROPOSAL,
        one.target,
        one.decision,
        f"{one.action}: {one.reason}{others}",
        done=f"nothing; {ask}, until {one.expires:%Y-%m-%d %H:%M} UTC",
        target=_target(one),
        pool=one.pool,
        run=one.evidence if one.action is Action.ISOLATE else None,
        decision=one.decision,
        evidence=() if one.task_set is None else view.memory.findings(one.target, one.task_set),
    )


def _answered(one: Proposal) -> Matter:
    return Matter(
        Topic.PROPOSAL,
        one.target,
        str(one.fate),
        f"{one.fate} by {one.author}: {one.said}",
        standing=False,
        target=_target(one),
        pool=one.pool,
        decision=one.decision,
    )


def _target(one: Proposal) -> str | None:
    """Whom it is about; None where that is a whole pool."""
    return None if one.of_pool else one.target
