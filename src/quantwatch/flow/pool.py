"""Where a pool as a whole stands: well, in a storm, or degraded by its own nodes."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class PoolState(StrEnum):
    """STORM: many members breach at once, and nothing proves the yardstick. FLEET_DEGRADED: it is proven."""

    HEALTHY = "healthy"
    STORM = "storm"
    FLEET_DEGRADED = "fleet_degraded"


class OnFleetDegraded(StrEnum):
    """What FLEET_DEGRADED leads to: a person is asked about the whole pool, or the storm objects no more."""

    APPROVE = "approve"
    UP_TO_CAP = "up_to_cap"


@dataclass(frozen=True, slots=True)
class PoolStanding:
    """The state of a pool, and what it rests on.

    since: when it came to this state, None where it never left HEALTHY. began: when the storm began. raging: since when
    so many breach, None once they do not. until: the end of the cooldown that follows. proven: when the yardstick was
    last proven for everything that breaches. reason: a sentence.
    """

    pool: str
    state: PoolState = PoolState.HEALTHY
    since: datetime | None = None
    began: datetime | None = None
    raging: datetime | None = None
    until: datetime | None = None
    proven: datetime | None = None
    reason: str = ""

    @property
    def degraded(self) -> bool:
        """Whether the nodes are proven to be at fault right now; its cooldown does not count."""
        return self.state is PoolState.FLEET_DEGRADED and self.raging is not None


SCOPE = "pool:"
"""Begins what stands for a whole pool where a target's name would: in pauses, proposals, decisions and transitions."""


def whole(pool: str) -> str:
    """How a pool is called where a target's name would stand; no target can be called so."""
    return f"{SCOPE}{pool}"
