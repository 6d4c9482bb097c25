"""Looks at earlier runs: how many breaches or clean runs there were in a row, and which quality that proves.

Rows are counted only over runs of one basis (node process, baseline, prompts, k, mode): two breaches of two processes
prove nothing about either. A run that could not tell proves nothing at all, so it neither convicts nor clears.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from quantwatch.flow.run import RunRecord, Trigger
from quantwatch.flow.state import SetState
from quantwatch.flow.verdict import BREACHES, CANNOT_TELL, GOOD, Quality
from quantwatch.judge.recovery import too_close
from quantwatch.judge.standing import fresh

PATIENT = 2
"""Skipped runs in a row for which a good result still counts."""


def advance(state: SetState, run: RunRecord, *, confirm_cycles: int, release_margin: float = 0.0) -> SetState:
    """The state after one more run of the same target and task set.

    confirm_cycles: degraded runs in a row that count as one breach; the last of them must be a confirming run, which
    asks by a second path. A corrupted run counts at once, since a second probe within the run has confirmed it.
    release_margin: how far inside its critical limits a clean run must lie to count towards a return, as a share of
    their distance from perfect.
    """
    before = _on_basis_of(state, run)
    if run.quality in CANNOT_TELL:
        after = _undecided(before, run)
    elif run.quality is Quality.CORRUPTED:
        row = max(before.breaches + 1, confirm_cycles)
        after = replace(before, quality=Quality.CORRUPTED, breaches=row, clean=0, undecided=0, reason=run.reason)
    elif run.quality is Quality.DEGRADED:
        after = _degraded(before, run, confirm_cycles=confirm_cycles)
    elif run.trigger is Trigger.CONFIRM and before.last is Quality.DEGRADED and before.breaches > 0:
        after = _contradicted(before, run)
    else:
        after = _passed(before, run, release_margin)
    if after.quality not in BREACHES:
        after = replace(after, proof=None)
    elif run.quality is Quality.CORRUPTED or (run.quality is Quality.DEGRADED and after.breaches >= confirm_cycles):
        after = replace(after, proof=run.id)
    return replace(after, last=run.quality, run=run.id, at=run.started + timedelta(seconds=run.seconds))


def lasting(state: SetState, *, now: datetime, period_seconds: float) -> SetState:
    """What of a state a run that begins now can be counted together with.

    After a gap (the daemon or the node was away, the clock was set) an old row proves nothing about today, and a run
    that cannot tell must not make an old breach look fresh.
    """
    if fresh(state, now=now, period_seconds=period_seconds):
        return state
    return replace(state, quality=Quality.UNKNOWN, breaches=0, clean=0)


def vouched(state: SetState, *, reason: str) -> SetState:
    """The state once a person has vouched for the target: what was measured up to now proves nothing any more."""
    began = replace(state, quality=Quality.UNKNOWN, last=Quality.UNKNOWN, breaches=0, clean=0, undecided=0)
    return replace(began, proof=None, reason=reason)


def confirm_now(state: SetState, *, confirm_cycles: int) -> bool:
    """Whether a confirming run is due at once: it alone is missing from the row.

    Where a confirmed breach stands already, the schedule brings the others.
    """
    all_but_one = state.last is Quality.DEGRADED and state.breaches == confirm_cycles - 1
    return all_but_one and state.quality not in BREACHES


def _on_basis_of(state: SetState, run: RunRecord) -> SetState:
    """The state as far as it can be counted together with the run; on another basis everything starts over.

    A run that could not even learn its basis leaves the old one. Numbers of unknown basis go with no others.
    """
    nothing_learned = not run.basis and run.quality in CANNOT_TELL
    process = run.node.process if run.node is not None else None
    other = None not in (process, state.process) and process != state.process
    if nothing_learned or (run.basis and run.basis == state.basis and not other):
        return replace(state, process=state.process or process)
    began = replace(state, basis=run.basis, process=process, limits=run.limits)
    return replace(began, quality=Quality.UNKNOWN, breaches=0, clean=0)


def _undecided(state: SetState, run: RunRecord) -> SetState:
    """A confirmed breach stands, with the sentence that proved it, until a run of the same basis speaks against it."""
    if run.quality is Quality.INCONCLUSIVE:
        state = replace(state, breaches=0, clean=0)  # measured, and not proven this time: rows are broken
    if run.quality is Quality.SKIPPED and state.quality in GOOD and state.undecided < PATIENT:
        return replace(state, undecided=state.undecided + 1)  # a busy node is no worse for being busy
    state = replace(state, undecided=state.undecided + 1)
    return state if state.quality in BREACHES else replace(state, quality=run.quality, reason=run.reason)


def _degraded(state: SetState, run: RunRecord, *, confirm_cycles: int) -> SetState:
    # A corrupted run counts for corruption; it does not make one degraded run into a confirmed row.
    fresh_row = state.quality is Quality.CORRUPTED and state.breaches >= confirm_cycles
    row = 1 if fresh_row else state.breaches + 1
    if confirm_cycles > 1 and run.trigger is not Trigger.CONFIRM and state.quality is not Quality.DEGRADED:
        row = min(row, confirm_cycles - 1)  # the one that completes a row asks by a second path
    if row >= confirm_cycles:
        quality, said = Quality.DEGRADED, f"breach {row} in a row"
    elif state.quality in BREACHES:
        quality, said = state.quality, f"{state.quality} before, and now breach {row} of {confirm_cycles}"
    else:
        quality, said = Quality.INCONCLUSIVE, f"breach {row} of {confirm_cycles}, not confirmed yet"
    return replace(state, quality=quality, breaches=row, clean=0, undecided=0, reason=f"{said}: {run.reason}")


def _passed(state: SetState, run: RunRecord, release_margin: float) -> SetState:
    """What may come back is held to a stricter limit than what is taken out: warnings do not clear, nor near misses."""
    found = run.report.verdict.findings if run.report is not None else ()
    close = too_close(found, release_margin) if run.quality is Quality.OK else None
    clean = state.clean + 1 if run.quality is Quality.OK and close is None else 0
    reason = run.reason if close is None else f"{run.reason}; {close}"
    return replace(state, quality=run.quality, breaches=0, clean=clean, undecided=0, reason=reason)


def _contradicted(state: SetState, run: RunRecord) -> SetState:
    """A breach that the confirming run does not show is a doubt about the measurement, no clean bill."""
    mode = f" ({run.report.mode})" if run.report is not None else ""
    said = f"breached, and the confirming run{mode} does not show it: {run.reason}"
    if state.quality in BREACHES:
        return replace(state, breaches=0, clean=0, undecided=0)
    return replace(state, quality=Quality.INCONCLUSIVE, breaches=0, clean=0, undecided=0, reason=said)
