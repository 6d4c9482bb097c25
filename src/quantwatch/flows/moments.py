"""States with their moments moved: the wall clock was set, and ages stay what they were."""

from dataclasses import replace
from datetime import datetime, timedelta

from quantwatch.flow.pool import PoolStanding
from quantwatch.flow.state import TargetState


def not_ahead(state: TargetState, now: datetime) -> TargetState:
    """A change from the future was written before the clock was set back; its hold begins anew, and its clean time."""
    if state.well_since is not None and state.well_since > now:
        state = replace(state, well_since=now)
    return state if state.since is None or state.since <= now else replace(state, since=now)


def target_later(one: TargetState, by: timedelta) -> TargetState:
    """A target with its moments moved."""
    return replace(one, since=later(one.since, by), well_since=later(one.well_since, by))


def pool_later(one: PoolStanding, by: timedelta) -> PoolStanding:
    """A pool with all its moments moved."""
    since, began, raging, until, proven = (
        later(at, by) for at in (one.since, one.began, one.raging, one.until, one.proven)
    )
    return replace(one, since=since, began=began, raging=raging, until=until, proven=proven)


def later(at: datetime | None, by: timedelta) -> datetime | None:
    """A moment moved; None stays None."""
    return None if at is None else at + by
