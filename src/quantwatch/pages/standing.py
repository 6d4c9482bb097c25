"""What people had been told when something happened: doubts about the baseline, and everything else as what it is."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from quantwatch.flow.notice import Notice, Topic

YARDSTICK = frozenset({Topic.BASELINE_MOVED, Topic.BASELINE_UNPROVEN, Topic.REFERENCE})
"""Topics that speak against the baseline. A storm, a pause and a proposal of a pool have no target either."""


def stands(one: Notice, at: datetime) -> bool:
    """Whether it stood at that moment and still does: the store keeps no older words of a matter that is over."""
    return one.matter.standing and one.since <= at


def doubts(notices: Sequence[Notice], *, task_set: str | None, at: datetime) -> Iterator[str]:
    """What spoke against the baseline at a moment; enrolled answers do so for their own task set alone."""
    for one in notices:
        others = one.matter.topic is Topic.REFERENCE and one.matter.task_set != task_set
        if one.matter.topic in YARDSTICK and stands(one, at) and not others:
            yield one.matter.reason


def around(notices: Sequence[Notice], since: datetime, until: datetime, *, pool: str, at: datetime) -> Iterator[Notice]:
    """What began or changed between two moments, or stood all the while, of this pool or of none."""
    for one in notices:
        within = since <= one.since < until or since <= one.at < until
        if one.matter.pool in (None, pool) and (within or stands(one, at)):
            yield one
