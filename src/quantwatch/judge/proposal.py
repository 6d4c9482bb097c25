"""Whether a wish may be put before a person again after it was rejected or nobody answered."""

from datetime import datetime

from quantwatch.flow.decision import Wish
from quantwatch.flow.proposal import Fate, Proposal


def may_be_proposed(wish: Wish, evidence: str, last: Proposal | None, *, now: datetime, rest_seconds: float) -> bool:
    """Whether a wish on this evidence may be proposed. last: the latest closed proposal of this action and target.

    What was rejected rests, and then needs evidence that was not there when it was rejected. What expired or was
    approved needs other evidence too. What was withdrawn may come again at once: nobody has spoken against it.
    """
    if last is None or last.fate is Fate.WITHDRAWN or (wish.task_set, wish.lane) != (last.task_set, last.lane):
        return True
    if evidence == last.evidence:
        return False
    if last.fate is not Fate.REJECTED or last.closed is None:
        return True
    return (now - last.closed).total_seconds() >= rest_seconds
