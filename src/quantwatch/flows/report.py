"""Turns what a comparison gathered into a report: measure, judge, put together."""

from collections.abc import Sequence

from quantwatch.flow.report import Report, SetReport, TargetReport
from quantwatch.flow.verdict import Quality, worst
from quantwatch.flows.compare import Comparison
from quantwatch.flows.gather import NodeRun, SetRun
from quantwatch.flows.handshake import handshake
from quantwatch.judge.conclude import conclude, seen_once, seen_twice
from quantwatch.measure.compare import measure
from quantwatch.trace import step

BLIND = "its /metrics could not be read, so probes were sent without looking at its load"


def report(comparison: Comparison) -> Report:
    """Judge everything gathered so far. An interrupted run gives a report that says so."""
    baseline = comparison.baseline
    trouble = baseline.stopped.reason if baseline.stopped is not None else None
    return Report(
        baseline=baseline.introduction.identity if baseline.introduction is not None else None,
        targets=tuple(_target(run, comparison) for run in comparison.nodes),
        complete=comparison.done == comparison.plan.steps,
        trouble=trouble,
        misconfigured=baseline.misconfigured,
    )


def _target(run: NodeRun, comparison: Comparison) -> TargetReport:
    sets = tuple(_task_set(gathered, run, comparison) for gathered in run.sets)
    own, met = _own_quality(run), handshake(run.server, comparison.baseline)
    quality = worst([one.verdict.quality for one in sets] + ([own[0]] if own else []))
    told = [f"{one.name}: {one.verdict.reasons[0]}" for one in sets if one.verdict.quality is quality]
    return TargetReport(
        target=run.server.name,
        identity=run.server.identity,
        quality=quality,
        reasons=(own[1],) if own and own[0] is quality else tuple(told),
        task_sets=sets,
        misconfigured=run.server.misconfigured,
        notes=((BLIND,) if run.server.prober.blind else ()) + met.notes,
        handshake=met,
    )


def _own_quality(run: NodeRun) -> tuple[Quality, str] | None:
    """What was found about the node as a whole, apart from any task set."""
    if run.server.confirmed:
        return Quality.CORRUPTED, seen_twice(run.server.corruption)
    if run.obstacle is not None:
        return run.obstacle.quality, run.obstacle.reason
    if run.server.introduction is None and run.server.stopped is not None:
        return run.server.stopped.quality, run.server.stopped.reason
    if run.server.corruption is not None and not any(gathered.corruption for gathered in run.sets):
        return Quality.INCONCLUSIVE, seen_once(run.server.corruption)
    return None


def _task_set(gathered: SetRun, run: NodeRun, comparison: Comparison) -> SetReport:
    planned, pairs, plan = gathered.planned, gathered.pairs, comparison.plan
    with step("measure", {"quantwatch.pairs": len(pairs)}):
        divergence = measure(pairs, scope=plan.scope, evidence=planned.evidence, level=plan.level) if pairs else None
    observation = gathered.observation(obstacle=run.obstacle, interrupted=_interrupted(gathered))
    with step("judge") as span:
        verdict = conclude(observation, divergence, plan.limits, plan.parts)
        span.note({"quantwatch.quality": verdict.quality.value, "quantwatch.reason": verdict.reasons[0]})
    return SetReport(
        name=planned.name,
        pool=planned.pool,
        seed=plan.seed,
        k=comparison.k,
        mode=planned.mode,
        observation=observation,
        divergence=divergence,
        verdict=verdict,
        seconds_baseline=_mean([pair.baseline.seconds for pair in pairs]),
        seconds_node=_mean([pair.node.seconds for pair in pairs]),
    )


def _interrupted(gathered: SetRun) -> bool:
    """Whether drawn prompts were neither measured nor found missing."""
    noted = len(gathered.pairs) + sum(one.weight for one in gathered.missing)
    return noted != gathered.planned.drawn


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def merged(reports: Sequence[Report], *, complete: bool = True) -> Report:
    """Several runs as one report: each target once, with all its task sets, each as its latest run found it.

    complete: False when further runs were to follow. Raises ValueError for no report.
    """
    if not reports:
        raise ValueError("there is no report to merge")
    by_target: dict[str, list[TargetReport]] = {}
    for target in (target for one in reports for target in one.targets):
        by_target.setdefault(target.target, []).append(target)
    return Report(
        baseline=next((one.baseline for one in reports if one.baseline is not None), None),
        targets=tuple(_joined(runs) for runs in by_target.values()),
        complete=complete and all(one.complete for one in reports),
        trouble=next((one.trouble for one in reports if one.trouble is not None), None),
        misconfigured=any(one.misconfigured for one in reports),
    )


def _joined(everything: Sequence[TargetReport]) -> TargetReport:
    runs = list({tuple(one.name for one in run.task_sets): run for run in everything}.values())
    quality = worst([one.quality for one in runs])
    return TargetReport(
        target=runs[0].target,
        identity=next((one.identity for one in reversed(everything) if one.identity is not None), None),
        quality=quality,
        reasons=tuple(dict.fromkeys(reason for one in runs if one.quality is quality for reason in one.reasons)),
        task_sets=tuple(task_set for one in runs for task_set in one.task_sets),
        misconfigured=any(one.misconfigured for one in runs),
        notes=tuple(dict.fromkeys(note for one in runs for note in one.notes)),
        handshake=everything[-1].handshake,
    )
