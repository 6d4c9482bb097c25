"""From a wish to an action: what is wanted, what objects, what was sent, what came of it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from quantwatch.flow.verdict import Finding


class PoolMode(StrEnum):
    """How far quantwatch may go on its own."""

    OBSERVE = "observe"
    DRY_RUN = "dry_run"
    APPROVE = "approve"
    ENFORCE = "enforce"


class Action(StrEnum):
    """What can be done to a target."""

    ISOLATE = "isolate"
    RELEASE = "release"


class Origin(StrEnum):
    """Whose will a decision is.

    VERDICTS: quantwatch's own, by what was measured. APPROVED: the same, and a person has agreed. PERSON: what a person
    ordered, whatever was measured.
    """

    VERDICTS = "verdicts"
    APPROVED = "approved"
    PERSON = "person"


class Lane(StrEnum):
    """What leads to a wish to isolate."""

    CORRUPTED = "corrupted"
    LIMITS = "limits"


class Brake(StrEnum):
    """What can object to an action; the values are the `reason` label of suppressed actions."""

    DRY_RUN = "dry_run"
    AWAITING_APPROVAL = "awaiting_approval"
    CAP = "cap"
    LAST_BACKEND = "last_backend"
    FALLBACK = "fallback"
    FALLBACK_OVERLOADED = "fallback_overloaded"
    FALLBACK_IN_USE = "fallback_in_use"
    STORM = "storm"
    YARDSTICK = "yardstick"
    RATE = "rate"
    PAUSED = "paused"
    HUMAN = "human"
    STORE = "store"
    DRIVER = "driver"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the verdicts ask for, before anything objects. task_set, run: the evidence. lane: None for a release.

    On a ladder, rung: where the traffic is afterwards; fallback: who takes it there, by its name at the gateway, None
    where others of the rung that it is on do.
    """

    action: Action
    target: str
    pool: str
    reason: str
    lane: Lane | None = None
    task_set: str | None = None
    run: str | None = None
    findings: tuple[Finding, ...] = ()
    rung: str | None = None
    fallback: str | None = None


@dataclass(frozen=True, slots=True)
class Objection:
    """Why an action must not happen now, in words."""

    brake: Brake
    reason: str


class Ruling(StrEnum):
    """What became of a wish.

    PROPOSED: it waits for a person. WOULD_HAVE: nothing objected, but the pool's mode is dry_run.
    """

    ACT = "act"
    PROPOSED = "proposed"
    WOULD_HAVE = "would_have"
    SUPPRESSED = "suppressed"


@dataclass(frozen=True, slots=True)
class Decision:
    """A wish and what became of it, with everything that decided.

    objections: where the ruling is ACT all the same, a person has overridden them. author: who decided.
    """

    id: str
    at: datetime
    wish: Wish
    mode: PoolMode
    ruling: Ruling
    objections: tuple[Objection, ...] = ()
    author: str = "quantwatch"
    origin: Origin = Origin.VERDICTS


@dataclass(frozen=True, slots=True)
class Order:
    """What a gateway is asked to do; written down before it is sent. decision: the same id on every retry.

    node: the target's name at the gateway. fallback: the name at the gateway of who takes the traffic, None when other
    members of the pool do. driver: which driver carries it out. rung: on a ladder, where the traffic is afterwards.
    """

    decision: str
    action: Action
    target: str
    pool: str
    node: str
    driver: str
    reason: str
    verdict: str
    fallback: str | None = None
    task_set: str | None = None
    run: str | None = None
    evidence: tuple[Finding, ...] = ()
    origin: Origin = Origin.VERDICTS
    rung: str | None = None


class Result(StrEnum):
    """How an order ended, or stands.

    VERIFIED: read back. ACCEPTED: the gateway said yes and cannot be read back. REFUSED: it said no, and asking again
    cannot help. FAILED: given up after retries. CONTRADICTED: it said yes, and its own state says no. WITHDRAWN: no
    longer wanted before it was done.
    """

    VERIFIED = "verified"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    FAILED = "failed"
    CONTRADICTED = "contradicted"
    WITHDRAWN = "withdrawn"


DONE = frozenset({Result.VERIFIED, Result.ACCEPTED})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an order ended, with a sentence; attempts: calls begun, over all process lives.

    doubt: the result is none of DONE, and yet a call may have taken effect or may still do so. Until that is settled
    the target must not be counted as a backend; an isolation that is no longer wanted needs a release after it.
    """

    result: Result
    detail: str
    at: datetime
    attempts: int
    doubt: bool = False


@dataclass(frozen=True, slots=True)
class Intent:
    """An order in the store. attempts: calls begun. outcome: None while it is open."""

    order: Order
    opened: datetime
    attempts: int = 0
    outcome: Outcome | None = None
