"""What still counts: freshness of one task set, and the quality of a target over all of its task sets."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from quantwatch.flow.state import SetState
from quantwatch.flow.verdict import Quality, worst

FRESH_PERIODS = 2.5
"""How long a result counts: one run may fail and the next be late before the quality becomes unknown."""

CLOCK_SLACK_SECONDS = 60.0
"""A result from further in the future is older than the clock's last step back, so its age cannot be told."""


def fresh(state: SetState, *, now: datetime, period_seconds: float) -> bool:
    """Whether the latest run is young enough to count. period_seconds: the longest gap between two runs."""
    return _within(state, now=now, period_seconds=period_seconds, runs_ago=0)


def proven(state: SetState, *, now: datetime, period_seconds: float) -> bool:
    """Whether the latest run that could tell is young enough to act on.

    Runs that cannot tell keep a state fresh without adding evidence; each one makes the evidence a period older.
    """
    return _within(state, now=now, period_seconds=period_seconds, runs_ago=state.undecided)


def target_quality(states: Sequence[SetState], *, now: datetime, periods: Mapping[str, float]) -> tuple[Quality, str]:
    """The worst fresh task set of a target, and a sentence that names it; UNKNOWN when none is fresh.

    periods: seconds by configured task set; states of other task sets are left out.
    """
    known = {state.task_set: state for state in states if state.task_set in periods}
    counting = [one for one in known.values() if fresh(one, now=now, period_seconds=periods[one.task_set])]
    if not counting:
        return Quality.UNKNOWN, f"no task set has a fresh result{_latest(list(known.values()))}"
    quality = worst([one.quality for one in counting])
    named = next(one for one in counting if one.quality is quality)
    stale = sorted(periods.keys() - {one.task_set for one in counting})
    without = f" (without a fresh result: {', '.join(stale)})" if stale else ""
    return quality, f"{named.task_set}: {named.reason}{without}"


def _within(state: SetState, *, now: datetime, period_seconds: float, runs_ago: int) -> bool:
    if state.at is None:
        return False
    elapsed = (now - state.at).total_seconds()
    return elapsed >= -CLOCK_SLACK_SECONDS and elapsed + runs_ago * period_seconds <= FRESH_PERIODS * period_seconds


def _latest(states: Sequence[SetState]) -> str:
    measured = [(one.at, one.task_set) for one in states if one.at is not None]
    if not measured:
        return ""
    at, name = max(measured)
    return f"; the latest is {name} of {at:%Y-%m-%d %H:%M:%S} UTC"
