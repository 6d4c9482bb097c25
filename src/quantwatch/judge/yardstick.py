"""Has the baseline itself moved since its answers were stored?"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime

from quantwatch.flow.check import Check
from quantwatch.flow.verdict import Limit, Metric

Pair = tuple[str, str]
"""A target and a task set."""

FLOOR = 0.002
"""Mean KL in nats that kernels and batching alone may cause between two runs of one model."""

SHARE_OF_WARNING = 0.5
"""A yardstick that moved by half of a warning limit would soon explain a warning by itself."""


ACCEPT = "`quantwatch accept-baseline`"
"""What takes a live baseline as it is now."""

MOVED = "it no longer gives its stored answers"
"""What is said of a baseline that has moved where its self-check gives no sentence of its own."""


def drifted(drift: float, limits: Mapping[Metric, Limit], *, since: datetime, cure: str = ACCEPT) -> str | None:
    """The sentence that says the baseline no longer gives its stored answers; None while it does.

    drift: mean KL(then || now) in nats over the stored positions. limits: of the task set; half of its warning limit
    on the mean KL is the most that is allowed, and FLOOR where that is less or not given. cure: the command for
    a person who finds it right.
    """
    warn = limits.get(Metric.KL_MEAN, Limit()).warn
    allowed = max(FLOOR, SHARE_OF_WARNING * warn if warn is not None else FLOOR)
    if not math.isnan(drift) and drift <= allowed:
        return None
    return (
        f"the baseline no longer gives the answers it gave on {since:%Y-%m-%d %H:%M}: mean KL {drift:.4g} between then "
        f"and now, over {allowed:.4g}. Is it the same model? If it is meant to be so, {cure}"
    )


def soundness(checks: Sequence[Check]) -> bool | None:
    """Whether the baseline is sound by the latest self-check of every task set; None when nothing proves it."""
    if any(one.sound is False for one in checks):
        return False
    return True if any(one.sound for one in checks) else None


def unproven(guilty: Pair | None, checks: Mapping[Pair, Check], *, now: datetime, fresh_seconds: float) -> str | None:
    """Why the baseline cannot bear a verdict; None when it was proven sound by the latest run of the guilty pair.

    guilty: the target and task set that breach; None for a release, which any sound check bears. checks: the latest
    self-check of each pair; one that gave nothing takes the place of an older one. fresh_seconds: how old it may be.
    """
    moved = refuted(checks)
    if moved is not None:
        return moved
    if guilty is None:
        return None if soundness(list(checks.values())) else "no self-check has proven it since the start"
    said = _against(checks.get(guilty), now=now, fresh_seconds=fresh_seconds)
    return None if said is None else said.format(task_set=guilty[1])


def refuted(checks: Mapping[Pair, Check]) -> str | None:
    """Why the baseline is known to have moved, by the latest self-check of each pair; None where none says so."""
    moved = next((one for one in checks.values() if one.sound is False), None)
    return None if moved is None else moved.trouble or MOVED


def _against(check: Check | None, *, now: datetime, fresh_seconds: float) -> str | None:
    """What speaks against the latest self-check of a pair."""
    if check is None:
        return "it has not been checked on {task_set} since the start"
    if check.sound is None and not check.new:
        return "the latest run of {task_set} could not hold it against its stored answers"
    if check.sound is None:
        return "no clean run has proven its answers on {task_set} yet; `quantwatch accept-baseline` if they are right"
    if abs((now - check.at).total_seconds()) > fresh_seconds:
        return "its last self-check on {task_set} is too old"
    return None
