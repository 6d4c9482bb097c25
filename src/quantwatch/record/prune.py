"""What may be forgotten, and what must not be."""

from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, exists, or_, select, tuple_

from quantwatch.flow.proposal import Fate
from quantwatch.record.tables import (
    ANSWERS,
    DECISIONS,
    INTENTS,
    NOTICES,
    PAUSES,
    PROPOSALS,
    RUNS,
    SET_STATES,
    TARGET_STATES,
    TOKEN_EVIDENCE,
    TOKEN_TEXTS,
    TRANSITIONS,
)


def prune(connection: Connection, *, runs_before: datetime, decisions_before: datetime) -> int:
    """Delete runs, and decisions with their transitions, that are older; how many rows went, without their parts.

    Stays: what an open intent, an open proposal or the owner of a target's isolation rests on, and of each pair the
    newest run and the newest with numbers. Pauses that are over, superseded references, and matters that people know
    are over go with the decisions. The tokens of a run go with it, and texts with the last run of their tokenizer.
    """
    over = or_(PAUSES.c.ended < decisions_before, PAUSES.c.until < decisions_before)
    commands = (
        delete(RUNS).where(RUNS.c.started < runs_before, RUNS.c.id.not_in(_runs_in_use()), _has_newer()),
        delete(TRANSITIONS).where(
            TRANSITIONS.c.at < decisions_before,
            or_(TRANSITIONS.c.decision.is_(None), TRANSITIONS.c.decision.not_in(_decisions_in_use())),
        ),
        delete(DECISIONS).where(DECISIONS.c.at < decisions_before, DECISIONS.c.id.not_in(_decisions_in_use())),
        delete(PAUSES).where(over),
        delete(NOTICES).where(NOTICES.c.standing.is_(False), NOTICES.c.at < decisions_before),
        delete(ANSWERS).where(ANSWERS.c.superseded < decisions_before),
        delete(TOKEN_TEXTS).where(TOKEN_TEXTS.c.tokenizer.not_in(select(TOKEN_EVIDENCE.c.tokenizer).distinct())),
    )
    return sum(connection.execute(command).rowcount for command in commands)


def _decisions_in_use() -> Select[tuple[str]]:
    """Never NULL: NOT IN a list with a NULL is never true."""
    owners = select(TARGET_STATES.c.owner).where(TARGET_STATES.c.owner.is_not(None))
    waiting = select(INTENTS.c.decision).where(INTENTS.c.result.is_(None))
    proposed = select(PROPOSALS.c.decision).where(PROPOSALS.c.fate == Fate.OPEN)
    return select(owners.union(waiting, proposed).subquery().c.owner)


def _runs_in_use() -> Select[tuple[str]]:
    latest = select(SET_STATES.c.run.label("run")).where(SET_STATES.c.run.is_not(None))
    evidence = select(DECISIONS.c.run).where(DECISIONS.c.run.is_not(None), DECISIONS.c.id.in_(_decisions_in_use()))
    return select(latest.union(evidence).subquery().c.run)


def _has_newer() -> ColumnElement[bool]:
    """Whether its pair has a newer run, and for a run with numbers also a newer one with numbers."""
    other = RUNS.alias()
    same = and_(other.c.target == RUNS.c.target, other.c.task_set == RUNS.c.task_set)
    newer = and_(same, tuple_(other.c.started, other.c.id) > tuple_(RUNS.c.started, RUNS.c.id))
    return and_(exists().where(newer), or_(RUNS.c.measured.is_(False), exists().where(newer, other.c.measured)))
