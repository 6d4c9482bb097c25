"""Where the baseline's answers to a task set come from, and whether they may be used."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from quantwatch.flow.check import Check


class ReferenceState(StrEnum):
    """LIVE: the baseline is asked in every run. STORED: its enrolled answers are used. The others: nothing is measured.

    MISSING: none are enrolled, and the configuration wants them. DAMAGED: they cannot be read. CHANGED: they do not fit
    the configuration, or another baseline answers now. DRIFTED: the same baseline answers otherwise than it did.
    """

    LIVE = "live"
    STORED = "stored"
    MISSING = "missing"
    DAMAGED = "damaged"
    CHANGED = "changed"
    DRIFTED = "drifted"


@dataclass(frozen=True, slots=True)
class ReferenceStanding:
    """A task set's reference as it stands.

    made, digest: of the enrolled answers, where there are any. trouble: why they cannot be used, with the cure; begins
    with `reference_STATE`. checked: when the baseline was last held against them. drift: mean KL in nats found then.
    """

    task_set: str
    state: ReferenceState
    made: datetime | None = None
    digest: str = ""
    trouble: str | None = None
    checked: datetime | None = None
    drift: float | None = None

    @property
    def stored(self) -> bool:
        """Whether enrolled answers are meant to be used, whatever stands in the way."""
        return self.state is not ReferenceState.LIVE

    def check(self, now: datetime) -> Check:
        """What stands for a self-check in a run with enrolled answers: they were proven when they were enrolled.

        Where the baseline itself has changed nothing may act; what is wrong with one reference is about one task set.
        """
        if self.state is ReferenceState.STORED:
            return Check(now, sound=True, drift=self.drift, thorough=True, enrolled=True)
        moved = self.checked is not None and self.state in (ReferenceState.CHANGED, ReferenceState.DRIFTED)
        sound, trouble = (False, self.trouble) if moved else (None, None)
        return Check(now, sound=sound, drift=self.drift, trouble=trouble, thorough=True, enrolled=True)


@dataclass(frozen=True, slots=True)
class SelfChecked:
    """What the baseline itself said when it was held against a reference of this digest.

    trouble: why the reference cannot be used any longer, None while it can. state: of the reference then. turn: how
    many prompts were asked so far, so that each has its turn.
    """

    digest: str
    state: ReferenceState
    check: Check
    trouble: str | None = None
    turn: int = 0
