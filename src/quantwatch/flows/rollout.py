"""An expected rollout: what changes in it is said calmly, and the way to the next enrolment is shown."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from quantwatch.flow.state import Pause
from quantwatch.flows.cycle import Ran
from quantwatch.flows.library import ENROLL
from quantwatch.judge.yardstick import ACCEPT


def rollout_over(pauses: Iterable[Pause], target: str, pool: str, *, now: datetime) -> Pause | None:
    """The rollout that a target is part of now."""
    return next((one for one in pauses if one.rollout and one.covers(target, pool, now=now)), None)


def expected(pauses: Iterable[Pause], *, now: datetime) -> Pause | None:
    """The rollout in which another baseline is expected now."""
    return next((one for one in pauses if one.expects(now=now)), None)


def as_expected(ran: Ran, pause: Pause | None) -> Ran:
    """A run that met a changed baseline, told as what it is within a rollout; other runs as they are."""
    trouble = ran.check.trouble
    if pause is None or trouble is None or ran.record.reason != trouble:
        return ran
    state = f"{trouble.partition(':')[0]}: " if ran.check.enrolled else ""
    cure = f"`{ENROLL}`" if ran.check.enrolled else ACCEPT
    until = "it is ended" if pause.until is None else f"{pause.until:%Y-%m-%d %H:%M} UTC"
    said = f"{state}expected rollout by {pause.author} until {until}; when it is done: {cure}"
    return replace(
        ran,
        record=replace(ran.record, reason=said),
        check=replace(ran.check, trouble=said),
        report=replace(ran.report, trouble=None if ran.report.trouble is None else said),
    )
