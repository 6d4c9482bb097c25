"""Proposals in their table: made once, closed once."""

from sqlalchemy import Connection, func, select

from quantwatch.errors import StoreError
from quantwatch.flow.proposal import Fate, Proposal
from quantwatch.record.rows import flat
from quantwatch.record.tables import PROPOSALS


def add(connection: Connection, proposal: Proposal) -> None:
    """Keep a new proposal."""
    connection.execute(PROPOSALS.insert(), flat(proposal))


def close(connection: Connection, closed: Proposal) -> None:
    """Write how a proposal ended, and on what evidence. Raises StoreError where it is not open any more."""
    still_open = (PROPOSALS.c.decision == closed.decision, PROPOSALS.c.fate == Fate.OPEN)
    if connection.execute(PROPOSALS.update().where(*still_open).values(**flat(closed))).rowcount == 0:
        raise StoreError(f"there is no open proposal {closed.decision}")


def open_ones(connection: Connection) -> list[Proposal]:
    """Those that wait, oldest first."""
    wanted = select(PROPOSALS).where(PROPOSALS.c.fate == Fate.OPEN).order_by(PROPOSALS.c.opened)
    return [Proposal(**row) for row in connection.execute(wanted).mappings()]


def latest_closed(connection: Connection) -> list[Proposal]:
    """Of each target and action the one that was closed last."""
    last = (
        select(PROPOSALS.c.target, PROPOSALS.c.action, func.max(PROPOSALS.c.closed).label("closed"))
        .where(PROPOSALS.c.fate != Fate.OPEN)
        .group_by(PROPOSALS.c.target, PROPOSALS.c.action)
        .subquery()
    )
    same = [PROPOSALS.c[name] == last.c[name] for name in ("target", "action", "closed")]
    rows = connection.execute(select(PROPOSALS).where(PROPOSALS.c.fate != Fate.OPEN, *same))
    return [Proposal(**row) for row in rows.mappings()]
