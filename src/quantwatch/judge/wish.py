"""What the verdicts ask for: to take a target out of traffic, to bring it back, or nothing.

A wish is not an action: the brakes may object. Whatever is unknown, stale or missing never makes a wish.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from quantwatch.flow.decision import Action, Lane, Wish
from quantwatch.flow.state import Human, Routing, SetState, TargetState
from quantwatch.flow.verdict import BREACHES, GOOD, Finding, Quality
from quantwatch.judge.recovery import hold_ends
from quantwatch.judge.standing import fresh, proven

_LANE = {Quality.CORRUPTED: Lane.CORRUPTED, Quality.DEGRADED: Lane.LIMITS}


@dataclass(frozen=True, slots=True)
class WishRules:
    """What may lead to a wish. act_on, periods (seconds): by configured task set.

    release_after: clean runs in a row of every task set. minimum_hold_seconds, hold_jitter: of an isolation, see
    recovery.hold_seconds. probation_seconds: how long a target that comes back is on probation. limits: digest of the
    limits in force, by task set; a breach of other limits asks for nothing.
    """

    act_on: Mapping[str, frozenset[Lane]]
    periods: Mapping[str, float]
    release_after: int
    minimum_hold_seconds: float
    limits: Mapping[str, str] = field(default_factory=dict)
    hold_jitter: float = 0.0
    probation_seconds: float = 0.0


def wish(
    target: TargetState,
    sets: Sequence[SetState],
    rules: WishRules,
    *,
    now: datetime,
    process: str | None,
    findings: Mapping[str, tuple[Finding, ...]] | None = None,
) -> Wish | None:
    """What should be done about a target, or None.

    process: which process the node is now (start time and version), None when not known. findings: of the latest run
    that gave numbers, by task set; those of the guilty set travel with the wish.
    """
    if target.human is not Human.NONE:
        return None
    if target.routing is Routing.IN:
        applying = [one for one in sets if _applies(one, rules, process)]
        return _isolation(target, applying, rules, now=now, findings=findings or {})
    if target.routing is Routing.OUT and target.owner is not None:
        return _release(target, sets, rules, now=now, process=process)
    return None


def withdrawn(
    action: Action,
    target: TargetState,
    sets: Sequence[SetState],
    rules: WishRules,
    *,
    now: datetime,
    process: str | None = None,
) -> str | None:
    """Why an order under way is no longer wanted, None while it is.

    The target's `since` is when the order was opened. What a person wants is withdrawn by no measurement. An isolation
    needs a breach that still stands and is fresh; a release is withdrawn by a fresh breach alone.
    """
    isolating = action is Action.ISOLATE
    wanted = Human.FORCED_OUT if isolating else Human.FORCED_IN
    if target.human is wanted:
        return None
    if target.human is not Human.NONE:
        return f"a person has set the target to {target.human}"
    configured = [one for one in sets if one.task_set in rules.periods]
    recent = [one for one in configured if fresh(one, now=now, period_seconds=rules.periods[one.task_set])]
    if isolating:
        applying = [one for one in configured if _applies(one, rules, process)]
        return _no_breach(target, applying, rules, now=now)
    breach = next((one for one in recent if one.breaches > 0 or one.quality in BREACHES), None)
    return None if breach is None else f"it breaches again: {breach.task_set}: {breach.reason}"


def insists(target: TargetState) -> Wish | None:
    """What a person's lasting word asks for where it does not hold: a target that was forced out is in traffic."""
    if target.human is not Human.FORCED_OUT or target.routing not in (Routing.IN, Routing.CONTRADICTED):
        return None
    said = f"{target.human_author}: {target.human_reason}"
    return Wish(Action.ISOLATE, target.target, target.pool, said)


def overruled(action: Action, target: TargetState) -> str | None:
    """Why what a person ordered is no longer wanted: by another word of a person, and by nothing else."""
    if action is Action.ISOLATE and target.human is Human.FORCED_OUT:
        return None
    if target.human is not Human.NONE and (action is Action.ISOLATE or target.human is not Human.FORCED_IN):
        return f"a person has set the target to {target.human}"
    return "the word that asked for it has ended" if action is Action.ISOLATE else None


def _isolation(
    target: TargetState,
    sets: Sequence[SetState],
    rules: WishRules,
    *,
    now: datetime,
    findings: Mapping[str, tuple[Finding, ...]],
) -> Wish | None:
    guilty = [
        (lane, one)
        for one in sets
        if one.task_set in rules.periods
        and (lane := _lane(one, rules)) is not None
        and proven(one, now=now, period_seconds=rules.periods[one.task_set])
    ]
    if not guilty:
        return None
    lane, first = min(guilty, key=lambda one: (one[0] is not Lane.CORRUPTED, -one[1].breaches, one[1].task_set))
    return Wish(
        Action.ISOLATE,
        target.target,
        target.pool,
        f"{first.task_set} is {first.quality}: {first.reason}",
        lane=lane,
        task_set=first.task_set,
        run=first.proof or first.run,
        findings=findings.get(first.task_set, ()),
    )


def _applies(state: SetState, rules: WishRules, process: str | None) -> bool:
    """Whether a state is about the process that runs now and the limits in force; what is not known does not differ."""
    in_force = rules.limits.get(state.task_set, "")
    same_limits = not state.limits or not in_force or state.limits == in_force
    return same_limits and (state.process is None or process is None or state.process == process)


def _lane(state: SetState, rules: WishRules) -> Lane | None:
    """The lane in which a task set wants its target out, if that lane is on for it."""
    lane = _LANE.get(state.quality)
    return lane if lane in rules.act_on.get(state.task_set, frozenset()) else None


def _release(
    target: TargetState, sets: Sequence[SetState], rules: WishRules, *, now: datetime, process: str | None
) -> Wish | None:
    known = {one.task_set: one for one in sets if one.task_set in rules.periods}
    everything = bool(rules.periods) and known.keys() == rules.periods.keys()
    if not everything or not _hold_is_over(target, rules, now=now) or not _may_be_well(target, process):
        return None
    if not all(_applies(one, rules, process) and _cleared(one, target, rules, now=now) for one in known.values()):
        return None
    counts = ", ".join(f"{name} {one.clean}" for name, one in sorted(known.items()))
    watched = f"; on probation for {rules.probation_seconds / 60:g} min" if rules.probation_seconds > 0 else ""
    return Wish(Action.RELEASE, target.target, target.pool, f"clean runs in a row of every task set: {counts}{watched}")


def _hold_is_over(target: TargetState, rules: WishRules, *, now: datetime) -> bool:
    ends = hold_ends(target, minimum=rules.minimum_hold_seconds, jitter=rules.hold_jitter)
    return ends is not None and now >= ends


def _may_be_well(target: TargetState, process: str | None) -> bool:
    """Broken numbers do not mend themselves: only another process can be well, and it must be known to be another."""
    if target.lane != Lane.CORRUPTED:
        return True
    return None not in (process, target.gone) and process != target.gone


def _cleared(state: SetState, target: TargetState, rules: WishRules, *, now: datetime) -> bool:
    """Whether a task set is clean often enough, lastly by its latest run, and that made since the target went out."""
    return (
        state.last is Quality.OK
        and state.clean >= rules.release_after
        and _measured_since(state, target)
        and proven(state, now=now, period_seconds=rules.periods[state.task_set])
    )


def _measured_since(state: SetState, target: TargetState) -> bool:
    return state.at is not None and (target.since is None or state.at >= target.since)


def _no_breach(target: TargetState, sets: Sequence[SetState], rules: WishRules, *, now: datetime) -> str | None:
    """Why no breach stands any more that could be acted on; a breach that cannot be confirmed any more is none."""
    standing = [one for one in sets if _lane(one, rules)]
    if any(proven(one, now=now, period_seconds=rules.periods[one.task_set]) for one in standing):
        return None
    if standing:
        return f"the breach was measured too long ago to act on: {', '.join(one.task_set for one in standing)}"
    recent = [one for one in sets if fresh(one, now=now, period_seconds=rules.periods[one.task_set])]
    return _passed(target, recent, rules) or "no breach stands any more"


def _passed(target: TargetState, recent: Sequence[SetState], rules: WishRules) -> str | None:
    """Why nothing speaks for isolation any more: nothing acts on a warning, so a warning passes as well."""
    since = [one for one in recent if rules.act_on.get(one.task_set) and _measured_since(one, target)]
    if not since or any(one.last not in GOOD for one in since):
        return None
    return f"measured again, and no breach any more: {', '.join(sorted(one.task_set for one in since))}"
