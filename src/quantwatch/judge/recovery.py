"""How a target comes back: how long it stays out at least, how clean it must be, and when its past is forgotten."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from quantwatch.flow.state import Routing, SetState, TargetState
from quantwatch.flow.verdict import Finding, Limit, Metric, Quality
from quantwatch.judge.standing import proven
from quantwatch.judge.threshold import name_of

LONGEST_HOLD = 8
"""The minimum hold grows with every isolation, up to this many times; a node that flaps returns ever more slowly."""

PERFECT = {
    Metric.KL_MEAN: 0.0,
    Metric.KL_P99: 0.0,
    Metric.PERPLEXITY_RATIO: 1.0,
    Metric.TOP1_AGREEMENT: 1.0,
}
"""What each metric is where target and baseline are the same; the distance to a limit is measured from there."""


def hold_seconds(ejections: int, decision: str, *, minimum: float, jitter: float) -> float:
    """Shortest isolation: the minimum times the number of isolations so far, LONGEST_HOLD times at most, and jitter.

    minimum: seconds. jitter: longest addition, as a share of the minimum, so that a further isolation never holds for
    less while the hold still grows. How much of it is added is told by the decision's id, so a restart finds the same,
    and nodes that left together do not return together. Envoy's outlier detection reckons its ejection times so.
    """
    times = min(max(ejections, 1), LONGEST_HOLD)
    return minimum * (times + jitter * _fraction(decision))


def hold_ends(target: TargetState, *, minimum: float, jitter: float) -> datetime | None:
    """Before when a target that we took out does not come back; None where that is not known, or it is not out."""
    if target.routing is not Routing.OUT or target.since is None or target.owner is None:
        return None
    return target.since + timedelta(
        seconds=hold_seconds(target.ejections, target.owner, minimum=minimum, jitter=jitter)
    )


def release_limit(metric: Metric, limit: Limit, margin: float) -> float | None:
    """Where a value must lie inside to count towards a return; None without a critical limit.

    margin: share of the distance between perfect and the critical limit, taken off on the critical side. The warning
    limit holds as well, since a run with a warning is not clean; the narrower of the two decides.
    """
    if limit.critical is None:
        return None
    return limit.critical + margin * (PERFECT[metric] - limit.critical)


def too_close(findings: Sequence[Finding], margin: float) -> str | None:
    """Which number of a clean run lies too close to its critical limit to count towards a return; None where none."""
    for one in findings:
        inside = release_limit(one.metric, one.limit, margin)
        if inside is not None and _worse(one, inside):
            return f"{name_of(one)} {one.value:.4g} is not within {inside:.4g}, so it does not count towards a return"
    return None


def probation_ends(target: TargetState, *, now: datetime, seconds: float) -> datetime | None:
    """Until when a target that came back is on probation; None where it is not."""
    if target.routing is not Routing.IN or target.ejections == 0 or target.since is None:
        return None
    ends = target.since + timedelta(seconds=seconds)
    return ends if now < ends else None


def forgiven(
    target: TargetState,
    sets: Sequence[SetState],
    *,
    periods: Mapping[str, float],
    now: datetime,
    after: float,
    probation: float,
) -> TargetState:
    """A target after a run of its own: one isolation less for so long in traffic with nothing but clean results.

    sets: the states of its task sets. periods: seconds by configured task set. after: seconds in traffic for each
    isolation that is forgiven, 0 for never. probation: seconds after a return in which nothing is forgiven. Whatever
    is not clean, or is not known, begins the time anew.
    """
    known = {one.task_set: one for one in sets if one.task_set in periods}
    clean = bool(periods) and known.keys() == periods.keys()
    clean = clean and all(_clean(one, now=now, period_seconds=periods[name]) for name, one in known.items())
    if not clean or target.routing is not Routing.IN or target.ejections == 0 or after <= 0:
        return replace(target, well_since=None)
    if target.well_since is None:
        return replace(target, well_since=now)
    long_enough = (now - target.well_since).total_seconds() >= after
    if not long_enough or probation_ends(target, now=now, seconds=probation) is not None:
        return target
    left = target.ejections - 1
    return replace(target, ejections=left, well_since=now if left else None)


def _fraction(decision: str) -> float:
    """A number from 0 to below 1 that an id tells, the same each time."""
    return int.from_bytes(hashlib.sha256(decision.encode()).digest()[:4]) / 2**32


def _worse(finding: Finding, inside: float) -> bool:
    """Whether a value lies beyond an inner limit, seen from what is perfect."""
    outward = (finding.limit.critical or 0.0) - PERFECT[finding.metric]
    return (finding.value - inside) * outward > 0


def _clean(state: SetState, *, now: datetime, period_seconds: float) -> bool:
    return state.quality is Quality.OK and state.breaches == 0 and proven(state, now=now, period_seconds=period_seconds)
