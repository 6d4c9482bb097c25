"""What one run says: the worst that is known of the node, as far as the baseline can be believed."""

from quantwatch.flow.check import Check
from quantwatch.flow.reference import ReferenceStanding
from quantwatch.flow.report import Report, SetReport
from quantwatch.flow.verdict import BREACHES, Quality


def said(result: Report, one: SetReport, limit: float | None) -> tuple[Quality, str]:
    """What the run says: the node's own state where that is worse known, else the task set's verdict."""
    target = result.targets[0]
    quality = target.quality
    reason = target.reasons[0] if target.reasons else one.verdict.reasons[0]
    reason = reason.removeprefix(f"{one.name}: ")
    if result.trouble is not None and quality not in BREACHES:
        reason = f"baseline: {result.trouble.removeprefix('baseline: ')}"
    if limit is not None:
        reason = f"stopped after {limit:g} s: {reason}"
    return quality, reason


def believed(quality: Quality, reason: str, check: Check, standing: ReferenceStanding) -> tuple[Quality, str]:
    """What a run says once the baseline has been checked: numbers against one that is gone or moved say nothing.

    Corruption is seen in the node's own reply; whether it may be acted upon is for the brakes.
    """
    if quality is Quality.CORRUPTED:
        return quality, reason
    if standing.trouble is not None:
        return Quality.INVALID, standing.trouble
    if check.trouble is not None:
        return Quality.INVALID, check.trouble
    if quality is Quality.DEGRADED and check.sound is None and not check.new:
        return Quality.INVALID, f"the baseline could not be held against its stored answers afterwards: {reason}"
    return quality, reason
