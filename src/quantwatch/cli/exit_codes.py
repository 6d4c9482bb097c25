"""What the exit code of a command tells a script."""

from quantwatch.flow.report import Report
from quantwatch.flow.verdict import BREACHES, CANNOT_TELL, Quality

OK = 0
BREACH = 1
CANNOT_SAY = 2
USAGE = 3
INTERNAL = 4


def exit_code(report: Report, *, strict: bool) -> int:
    """Exit code of a comparison: corrupted and degraded > a person has to correct something > cannot tell > ok.

    strict: a warning counts as a breach.
    """
    qualities = {target.quality for target in report.targets}
    of_sets = {one.verdict.quality for target in report.targets for one in target.task_sets}
    if qualities & BREACHES or (strict and Quality.WARN in qualities | of_sets):
        return BREACH
    if report.misconfigured or any(target.misconfigured for target in report.targets):
        return USAGE
    if qualities & CANNOT_TELL or not qualities or not report.complete:
        return CANNOT_SAY
    return OK
