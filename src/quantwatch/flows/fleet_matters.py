"""Matters of more than one target: storms, pauses that quantwatch made itself, the yardstick."""

from collections.abc import Iterator

from quantwatch.flow.notice import Matter, Topic
from quantwatch.flow.reference import ReferenceState
from quantwatch.flows.rollout import expected
from quantwatch.flows.scene import breaching
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
    for name, pool in view.watchlist.pools.items():
        storm = view.memory.storms.get(name)
        if storm is None or (storm.until is not None and not storm.raging):
            continue  # in its cooldown it stays as it was told
        bad = sorted(breaching(name, view.watchlist, view.memory, view.now))
        sound = soundness(list(view.memory.checks.values()))
        yard = "the baseline is proven sound" if sound else "the baseline is not proven sound"
        reason = (
            f"{len(bad)} targets breach at once ({', '.join(bad)}), and {yard}" if storm.raging else "it has calmed"
        )
        state = "fleet_degraded" if sound else "storm"
        done = f"nothing acts until {pool.rules.storm_cooldown_seconds / 60:g} min after it has passed"
        yield Matter(
            Topic.STORM, name, state, reason, standing=storm.raging, done=done if storm.raging else "", pool=name
        )


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
