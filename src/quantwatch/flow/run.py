"""One run: one target on one task set, at one time."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from random import Random

from quantwatch.flow.identity import Identity
from quantwatch.flow.load import Load
from quantwatch.flow.report import SetReport
from quantwatch.flow.verdict import Quality


class Trigger(StrEnum):
    """Why a run was made."""

    SCHEDULE = "schedule"
    CONFIRM = "confirm"
    MANUAL = "manual"
    MINIMAL = "minimal"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a run found. report: None when nothing could be asked at all. basis: what it can be compared with.

    quality, reason: what this run alone says, before confirmation. limits: digest of the limits that judged it.
    load_before, load_after: how busy the target was; None where it did not tell.
    """

    id: str
    target: str
    task_set: str
    pool: str
    trigger: Trigger
    started: datetime
    seconds: float
    quality: Quality
    reason: str
    basis: str = ""
    limits: str = ""
    baseline: Identity | None = None
    node: Identity | None = None
    report: SetReport | None = None
    load_before: Load | None = None
    load_after: Load | None = None


def stamp(kind: str, at: datetime, suffix: str) -> str:
    """An id that a person can read and that sorts by time: `r-20261129-203355-1f3a9c`."""
    return f"{kind}-{at:%Y%m%d-%H%M%S}-{suffix}"


def fresh_id(kind: str, at: datetime, random: Random) -> str:
    """A stamp that chance tells from others of the same second."""
    return stamp(kind, at, f"{random.getrandbits(24):06x}")
