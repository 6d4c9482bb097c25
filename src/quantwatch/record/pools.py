"""Whole pools in the store: where each stands, beside the store's own facts, and the orders of one yes to all of it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, select

from quantwatch.flow.decision import Decision, Intent
from quantwatch.flow.pool import PoolStanding, PoolState
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.state import TargetState, Transition
from quantwatch.record.columns import moment_of, moment_text
from quantwatch.record.documents import decision_row, intent_row
from quantwatch.record.proposals import close
from quantwatch.record.rows import add_transitions, put
from quantwatch.record.tables import DECISIONS, INTENTS, META, TARGET_STATES
from quantwatch.record.transactions import Transactions

POOL = "pool: "
"""Begins the keys of META under which standings are kept."""

MOMENTS = ("since", "began", "raging", "until", "proven")


@dataclass(frozen=True, slots=True)
class Given:
    """One order of several that are written at once, with the decision behind it and where its target stands then."""

    decision: Decision
    intent: Intent
    state: TargetState
    transitions: Sequence[Transition] = ()


class PoolRecords(Transactions):
    """The part of a store that is about whole pools."""

    def save_pool(self, standing: PoolStanding, transitions: Sequence[Transition] = ()) -> None:
        """Keep where a pool stands, and what has changed with it."""
        with self._writing() as connection:
            keep_standing(connection, standing)
            add_transitions(connection, transitions)

    def pools(self) -> list[PoolStanding]:
        """Where every pool stands that was ever kept."""
        with self._reading() as connection:
            return standings(connection)

    def approve_pool(self, closed: Proposal, orders: Sequence[Given]) -> None:
        """Write that a pool's proposal was approved, with every order that follows: all of it or nothing.

        Raises StoreError where it is not open any more.
        """
        with self._writing() as connection:
            close(connection, closed)
            for one in orders:
                add_order(connection, one)


def keep_standing(connection: Connection, standing: PoolStanding) -> None:
    """Keep where a pool stands, in place of where it stood."""
    key = POOL + standing.pool
    connection.execute(delete(META).where(META.c.key == key))
    connection.execute(META.insert(), {"key": key, "value": _text(standing)})


def standings(connection: Connection) -> list[PoolStanding]:
    """Where every pool stands that ever left its healthy state. What cannot be read is left out and reckoned anew."""
    wanted = select(META.c.key, META.c.value).where(META.c.key.startswith(POOL, autoescape=True))
    rows = connection.execute(wanted.order_by(META.c.key)).all()
    found = (_standing(key.removeprefix(POOL), value) for key, value in rows)
    return [one for one in found if one is not None]


def add_order(connection: Connection, given: Given) -> None:
    """Keep a decision with its order."""
    connection.execute(DECISIONS.insert(), decision_row(given.decision))
    connection.execute(INTENTS.insert(), intent_row(given.intent))
    put(connection, TARGET_STATES, given.state)
    add_transitions(connection, given.transitions)


def _text(standing: PoolStanding) -> str:
    moments = {name: at for name in MOMENTS if (at := getattr(standing, name)) is not None}
    times = {name: moment_text(at) for name, at in moments.items()}
    return json.dumps({"state": standing.state.value, "reason": standing.reason, **times})


def _standing(pool: str, text: str) -> PoolStanding | None:
    try:
        found = json.loads(text)
        times: dict[str, datetime] = {name: moment_of(found[name]) for name in MOMENTS if name in found}
        return PoolStanding(pool, PoolState(found["state"]), reason=str(found["reason"]), **times)
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
