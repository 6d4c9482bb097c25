"""Turns what a release gate gathered into its evidence and its answer."""

from datetime import datetime

from quantwatch.flow.acceptance import (
    Acceptance,
    GateKind,
    GateResult,
    Latency,
    Memory,
    Paired,
    SetEvidence,
)
from quantwatch.flow.report import Report, TargetReport
from quantwatch.flows.accept import CANDIDATE, RUNNING, Gate, SetRun, apart
from quantwatch.flows.report import merged, report
from quantwatch.judge import gates
from quantwatch.measure.latency import latency
from quantwatch.measure.paired import paired

NOT_ASKED = "nothing was asked before the run ended"


def acceptance(gate: Gate, *, id_: str, started: datetime, seconds: float) -> Acceptance:
    """Judge everything gathered so far. An interrupted run gives evidence that says so."""
    reports = {one.planned.name: report(one.comparison) for one in gate.sets if one.comparison is not None}
    whole = merged(list(reports.values()), complete=gate.complete) if reports else Report(None, (), complete=False)
    sets = tuple(_evidence(one, reports.get(one.planned.name), gate) for one in gate.sets)
    answer, reasons = gates.answer([result for one in sets for result in one.gates], complete=gate.complete)
    by_name = {one.target: one for one in whole.targets}
    return Acceptance(
        id=id_,
        started=started,
        seconds=seconds,
        plan=gate.plan.as_json,
        baseline=whole.baseline,
        candidate=by_name.get(CANDIDATE),
        running=by_name.get(RUNNING),
        sets=sets,
        answer=answer,
        reasons=reasons,
        complete=gate.complete,
        misconfigured=whole.misconfigured or any(target.misconfigured for target in whole.targets),
        trouble=whole.trouble,
    )


def _evidence(one: SetRun, found: Report | None, gate: Gate) -> SetEvidence:
    targets = {} if found is None else {target.target: target for target in found.targets}
    ours, theirs = targets.get(CANDIDATE), targets.get(RUNNING)
    difference = _paired(one, gate)
    times = {name: _latency(one, name, gate) for name in (CANDIDATE, RUNNING)}
    sizes = {name: one.sides[name].memory if name in one.sides else Memory() for name in (CANDIDATE, RUNNING)}
    return SetEvidence(
        name=one.planned.name,
        candidate=None if ours is None else ours.task_sets[0],
        running=None if theirs is None else theirs.task_sets[0],
        paired=difference,
        latency=times[CANDIDATE],
        latency_running=times[RUNNING],
        memory=sizes[CANDIDATE],
        memory_running=sizes[RUNNING],
        gates=_gates(one, gate, ours, difference=difference, times=times, sizes=sizes),
        notes=_notes(one, ours, theirs),
    )


def _gates(
    one: SetRun,
    gate: Gate,
    ours: TargetReport | None,
    *,
    difference: Paired | None,
    times: dict[str, Latency | None],
    sizes: dict[str, Memory],
) -> tuple[GateResult, ...]:
    name, rules = one.planned.name, gate.plan.rules
    why = gate.stopped or NOT_ASKED
    found: list[GateResult | None] = [gates.quality(ours) if ours else gates.not_measured(name, GateKind.QUALITY, why)]
    if rules.margins is not None:
        clash = apart(one)
        against = gates.against_running(name, difference, rules.margins)
        found.append(gates.not_measured(name, GateKind.AGAINST_RUNNING, clash) if clash else against)
    if one.planned.load is not None:
        not_sent = one.no_load or (why if one.comparison is None else None)
        found.append(gates.latency(name, times[CANDIDATE], times[RUNNING], rules, why=not_sent))
        found.append(gates.errors(name, times[CANDIDATE], rules, why=not_sent))
    found.append(gates.memory(name, sizes[CANDIDATE], sizes[RUNNING], rules))
    return tuple(result for result in found if result is not None)


def _paired(one: SetRun, gate: Gate) -> Paired | None:
    if one.candidate is None or one.running is None or apart(one) is not None:
        return None
    return paired(
        one.candidate.sets[0].pairs,
        one.running.sets[0].pairs,
        scope=one.planned.plan.scope,
        drawn=one.planned.plan.sets[0].drawn,
        comparisons=gate.plan.comparisons,
    )


def _latency(one: SetRun, name: str, gate: Gate) -> Latency | None:
    samples = one.sides[name].samples if name in one.sides else []
    return latency(samples, level=gate.plan.rules.level) if samples else None


def _notes(one: SetRun, *targets: TargetReport | None) -> tuple[str, ...]:
    """What else a reader should know."""
    notes = [f"load: {one.no_load}"] if one.no_load is not None else []
    notes += [f"load on the {name}: {side.stopped}" for name, side in one.sides.items() if side.stopped is not None]
    notes += [f"{target.target}: {note}" for target in targets if target is not None for note in target.notes]
    return tuple(notes)
