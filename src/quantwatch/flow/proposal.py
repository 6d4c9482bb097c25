"""What waits for a person in a pool of mode approve, and what became of it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from quantwatch.flow.decision import Action, Lane
from quantwatch.flow.pool import whole


class Fate(StrEnum):
    """What became of a proposal. WITHDRAWN: what spoke for it no longer stands, or nobody asks for it any more."""

    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A wish that waits for a person, under the id of its decision; an order that follows bears the same id.

    One about a whole pool has `pool:NAME` for a target, and each order that follows has an id of its own.

    evidence: the runs that spoke for it, as one text; the same wish on the same evidence is not proposed twice.
    objections: what else objected when it was made, in words. expires: until when it can be approved. closed, author,
    said: when it ended, by whom, and why; None while it is open.
    """

    decision: str
    target: str
    pool: str
    action: Action
    reason: str
    evidence: str
    opened: datetime
    expires: datetime
    task_set: str | None = None
    lane: Lane | None = None
    objections: str = ""
    fate: Fate = Fate.OPEN
    closed: datetime | None = None
    author: str | None = None
    said: str | None = None

    @property
    def of_pool(self) -> bool:
        """Whether it is about every breaching member of a pool, and no single target."""
        return self.target == whole(self.pool)
