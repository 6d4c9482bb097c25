"""Decisions as readers find them: with the order, the proposal and the changes that came of each."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, select

from quantwatch.flow.decision import Action, Intent, Origin, PoolMode, Result, Ruling
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.state import Transition
from quantwatch.record.documents import intent_of
from quantwatch.record.tables import DECISIONS, INTENTS, PROPOSALS, TRANSITIONS

AT_ONCE = 500
"""Decisions that one query is about; SQLite takes 999 values at least."""


@dataclass(frozen=True, slots=True)
class StoredDecision:
    """A decision as the store gives it back, with what came of it.

    objections: {brake, reason}. findings: in the form of documents.finding_json. intent: None when nothing was sent.
    proposal: None when nobody was asked.
    """

    id: str
    at: datetime
    action: Action
    target: str
    pool: str
    reason: str
    lane: str | None
    task_set: str | None
    run: str | None
    mode: PoolMode
    ruling: Ruling
    objections: tuple[Mapping[str, str], ...]
    findings: tuple[Mapping[str, Any], ...]
    author: str = "quantwatch"
    origin: Origin = Origin.VERDICTS
    intent: Intent | None = None
    proposal: Proposal | None = None
    transitions: tuple[Transition, ...] = ()

    @property
    def sent(self) -> bool:
        """Whether there is an order of it."""
        return self.intent is not None

    @property
    def result(self) -> Result | None:
        """How its order ended, None while it is open and where there is none."""
        return None if self.intent is None or self.intent.outcome is None else self.intent.outcome.result


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """A decision as one line of a list. The fields are those of StoredDecision."""

    id: str
    at: datetime
    action: Action
    target: str
    reason: str
    author: str
    origin: Origin
    lane: str | None
    ruling: Ruling
    objections: tuple[Mapping[str, str], ...]
    findings: tuple[Mapping[str, Any], ...]
    sent: bool
    result: Result | None


def decision_lines(connection: Connection, *, target: str, limit: int) -> list[DecisionLine]:
    """The newest decisions about a target, newest first: one query, and no document of an order is read."""
    lists = ("objections", "findings")
    own = ("id", "at", "action", "target", "reason", "author", "origin", "lane", "ruling", *lists)
    sent = INTENTS.c.decision.is_not(None).label("sent")
    wanted = (
        select(*(DECISIONS.c[name] for name in own), sent, INTENTS.c.result)
        .select_from(DECISIONS.outerjoin(INTENTS, INTENTS.c.decision == DECISIONS.c.id))
        .where(DECISIONS.c.target == target)
        .order_by(DECISIONS.c.at.desc(), DECISIONS.c.id.desc())
        .limit(limit)
    )
    rows = connection.execute(wanted).mappings()
    return [DecisionLine(**{**row, **{name: tuple(row[name]) for name in lists}}) for row in rows]


def stored_decisions(connection: Connection, rows: Iterable[Mapping[Any, Any]]) -> list[StoredDecision]:
    """Rows of decisions with what came of them, in their order; a few queries for many of them."""
    whole = list(rows)
    parts = (whole[first : first + AT_ONCE] for first in range(0, len(whole), AT_ONCE))
    return [one for part in parts for one in _some(connection, part)]


def transitions_wanted() -> Select[Any]:
    """The columns of Transition."""
    return select(*(TRANSITIONS.c[one.name] for one in dataclasses.fields(Transition)))


def _some(connection: Connection, rows: Sequence[Mapping[Any, Any]]) -> Iterator[StoredDecision]:
    ids = [row["id"] for row in rows]
    intents = {row["decision"]: intent_of(row) for row in _about(connection, select(INTENTS), INTENTS.c.decision, ids)}
    asked = [Proposal(**row) for row in _about(connection, select(PROPOSALS), PROPOSALS.c.decision, ids)]
    proposals = {one.decision: one for one in asked}
    changes: dict[str, list[Transition]] = {}
    ordered = transitions_wanted().order_by(TRANSITIONS.c.at, TRANSITIONS.c.number)
    for row in _about(connection, ordered, TRANSITIONS.c.decision, ids):
        changes.setdefault(row["decision"], []).append(Transition(**row))
    for row in rows:
        key = row["id"]
        lists = {"objections": tuple(row["objections"]), "findings": tuple(row["findings"])}
        yield StoredDecision(
            **{**row, **lists},
            intent=intents.get(key),
            proposal=proposals.get(key),
            transitions=tuple(changes.get(key, ())),
        )


def _about(
    connection: Connection, wanted: Select[Any], decision: ColumnElement[Any], ids: Sequence[str]
) -> Iterable[Mapping[Any, Any]]:
    return [dict(row) for row in connection.execute(wanted.where(decision.in_(ids))).mappings()]
