"""Decisions and changes of the store, ready for json.dumps."""

from collections.abc import Sequence
from typing import Any

from quantwatch.flow.state import Transition
from quantwatch.record.decisions import StoredDecision
from quantwatch.record.documents import order_json


def decision_json(one: StoredDecision) -> dict[str, Any]:
    """A decision with its order and outcome, ready for json.dumps."""
    names = ("id", "target", "pool", "reason", "lane", "task_set", "run")
    content: dict[str, Any] = {name: getattr(one, name) for name in names}
    intent, outcome = one.intent, one.intent.outcome if one.intent is not None else None
    return {
        **content,
        "lane": None if one.lane is None else str(one.lane),
        "at": one.at.isoformat(),
        "action": one.action.value,
        "mode": one.mode.value,
        "ruling": one.ruling.value,
        "author": one.author,
        "origin": one.origin.value,
        "proposal": None
        if one.proposal is None
        else {
            "fate": one.proposal.fate.value,
            "opened": one.proposal.opened.isoformat(),
            "expires": one.proposal.expires.isoformat(),
            "closed": None if one.proposal.closed is None else one.proposal.closed.isoformat(),
            "author": one.proposal.author,
            "said": one.proposal.said,
        },
        "objections": [dict(objection) for objection in one.objections],
        "findings": [dict(finding) for finding in one.findings],
        "order": None if intent is None else order_json(intent.order),
        "opened": None if intent is None else intent.opened.isoformat(),
        "attempts": 0 if intent is None else intent.attempts,
        "outcome": None
        if outcome is None
        else {
            "result": outcome.result.value,
            "detail": outcome.detail,
            "at": outcome.at.isoformat(),
            "attempts": outcome.attempts,
            "doubt": outcome.doubt,
        },
        "transitions": changes_json(one.transitions),
    }


def changes_json(changes: Sequence[Transition]) -> list[dict[str, Any]]:
    """Transitions, ready for json.dumps."""
    names = ("target", "old", "new", "reason", "task_set", "run", "decision", "author")
    return [
        {"at": one.at.isoformat(), "axis": one.axis.value, **{name: getattr(one, name) for name in names}}
        for one in changes
    ]
