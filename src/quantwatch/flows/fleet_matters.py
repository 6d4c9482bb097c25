"""Matters of more than one target: storms, pauses that quantwatch made itself, the yardstick."""

from collections.abc import Iterator

from quantwatch.flow.notice import Matter, Topic
from quantwatch.flow.pool import OnFleetDegraded, PoolStanding, PoolState, whole
from quantwatch.flow.reference import ReferenceState
from quantwatch.flows.rollout import expected
from quantwatch.flows.view import View
from quantwatch.judge.yardstick import soundness

QUANTWATCH = "quantwatch"
"""The author of pauses that quantwatch makes itself."""

USABLE = (ReferenceState.LIVE, ReferenceState.STORED)


def fleet_matters(view: View) -> Iterator[Matter]:
    """All of them."""
    yield from _storms(view)
    yield from _pauses(view)
    yield from _baseline(view)


def _storms(view: View) -> Iterator[Matter]:
    """A storm whose yardstick has yet to be checked is left out: what it is will be known in a moment."""
    for name in view.watchlist.pools:
        at = view.memory.storms.get(name)
        if at is None or (at.state is PoolState.STORM and _unchecked(at, view)):
            continue
        bad = at.state is not PoolState.HEALTHY
        done = _done(at, view) if bad else ""
        yield Matter(Topic.STORM, name, str(at.state), at.reason, standing=bad, done=done, pool=name)


def _unchecked(at: PoolStanding, view: View) -> bool:
    checked = view.memory.checked.get(at.pool)
    return at.raging is not None and (checked is None or checked < at.raging)


def _done(at: PoolStanding, view: View) -> str:
    pool = view.watchlist.pools[at.pool]
    minutes = f"{pool.rules.storm_cooldown_seconds / 60:g} min after it has passed"
    asked = view.memory.proposals.get(whole(at.pool))
    if asked is not None:
        ask = f"`quantwatch approve {asked.decision}` isolates every member with a confirmed breach"
        return f"nothing acts by itself until {minutes}; {ask}"
    if at.degraded and pool.rules.on_fleet_degraded is OnFleetDegraded.UP_TO_CAP:
        return f"members are isolated as mode {pool.rules.mode} has it, up to the cap"
    return f"nothing acts until {minutes}"


def _pauses(view: View) -> Iterator[Matter]:
    """Those that quantwatch made itself; who pauses by hand knows it."""
    for one in view.memory.pausing(view.now):
        if one.author == QUANTWATCH:
            until = "somebody resumes it" if one.until is None else f"{one.until:%Y-%m-%d %H:%M} UTC"
            kind, _, name = one.scope.partition(":")
            known = view.watchlist.targets.get(name) if kind == "target" else None
            yield Matter(
                Topic.PAUSED,
                f"{one.id} {one.scope}",
                "paused",
                one.reason,
                done=f"nothing acts on {one.scope} until {until}",
                target=name if known is not None else None,
                pool=known.pool if known is not None else None,
            )


def _baseline(view: View) -> Iterator[Matter]:
    """While a rollout of everything is expected another baseline is no news."""
    calm = expected(view.memory.pausing(view.now), now=view.now) is not None
    checks = list(view.memory.checks.values())
    moved = next((one for one in checks if one.sound is False and not one.enrolled), None)
    # The first of many runs proves little: who was not measured yet may be clean.
    pairs = {(name, one) for name, target in view.watchlist.targets.items() for one in target.sets}
    new = any(one.new for one in checks) and pairs <= view.memory.checks.keys()
    sound = soundness(checks)
    if (moved is not None and not calm) or sound:
        said = moved.trouble if moved is not None and moved.trouble is not None else "it gives its stored answers"
        done = "nothing acts until it is accepted or enrolled" if moved is not None else ""
        yield Matter(Topic.BASELINE_MOVED, "baseline", "moved", said, standing=moved is not None, done=done)
    if (new and sound is None and not calm) or sound:
        said = "a clean run has proven it" if sound else "no clean run has proven its answers yet"
        done = "" if sound else "nothing acts; `quantwatch accept-baseline` if its answers are right"
        yield Matter(Topic.BASELINE_UNPROVEN, "baseline", "unproven", said, standing=not sound, done=done)
    for name in sorted(view.watchlist.task_sets & view.memory.references.keys()):
        one = view.memory.references[name]
        bad = one.state not in USABLE
        if not (bad and calm):
            said = one.trouble or f"its state is {one.state}"
            done = "its task set is not measured" if bad else ""
            yield Matter(Topic.REFERENCE, name, str(one.state), said, standing=bad, done=done, task_set=name)
