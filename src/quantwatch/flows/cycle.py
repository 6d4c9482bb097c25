"""One run of one target on one task set: fresh draw, both servers asked, yardstick checked, one record."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from quantwatch.clock import Clock
from quantwatch.errors import StoreError
from quantwatch.flow.check import Check
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.report import Report
from quantwatch.flow.run import RunRecord, Trigger, fresh_id
from quantwatch.flow.tokens import PromptsShown, TokensSeen
from quantwatch.flow.verdict import BREACHES, GOOD, Quality
from quantwatch.flows.basis import basis_of
from quantwatch.flows.compare import Comparison
from quantwatch.flows.evidence import evidence
from quantwatch.flows.golden import GoldenMaker
from quantwatch.flows.library import Library, chosen
from quantwatch.flows.plan import Plan, PlannedSet, Progress, planned_draw
from quantwatch.flows.report import report
from quantwatch.flows.saying import believed, said
from quantwatch.flows.watched import Watched, WatchedSet
from quantwatch.flows.yardstick import Bench, Yardstick
from quantwatch.judge.confidence import enlarged
from quantwatch.probe.contract import Prober
from quantwatch.probe.cost import CONFIRM_POSITIONS


@dataclass(frozen=True, slots=True)
class Turn:
    """What a run needs besides target and task set. tell: progress for whoever watches.

    library: the baseline's enrolled answers; None where the live baseline is always asked. shown: how much of prompts
    is kept.
    """

    baseline: Prober
    yardstick: Yardstick
    cache: Path
    clock: Clock
    random: Random
    timeout_seconds: float
    tell: Callable[[Progress], None] = lambda _: None
    library: Library | None = None
    shown: PromptsShown = PromptsShown.IDS


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run gave: the record, what the baseline's self-check found, and everything that was measured.

    busy: the target had better things to do, by its load or its own word. tokens: where the answers went apart.
    """

    record: RunRecord
    check: Check
    report: Report
    busy: bool = False
    tokens: TokensSeen | None = None


async def run_once(
    target: Watched, wanted: WatchedSet, trigger: Trigger, turn: Turn, *, suspicious: bool = False
) -> Ran:
    """Make one run. Its trouble is in the record, never raised; when time is up, what was gathered is judged.

    suspicious: the last self-check found that the baseline had moved, so only a thorough one may clear it.
    """
    started, begun = turn.clock.now(), turn.clock.monotonic()
    plan = plan_of(wanted, seed=turn.random.getrandbits(31), confirming=trigger is Trigger.CONFIRM)
    choice = await chosen(turn.library, wanted, turn.baseline)
    comparison = Comparison(choice.baseline, [target.prober], plan, cache=turn.cache, tell=turn.tell)
    comparison.refuse_baseline(choice.standing.trouble)
    asked = await _within(_ask(comparison, wanted), turn.timeout_seconds)
    result = asked or await _cut_short(comparison)
    one = result.targets[0].task_sets[0]
    quality, reason = said(result, one, None if asked else turn.timeout_seconds)
    thorough = suspicious or quality in BREACHES or trigger is Trigger.CONFIRM
    if choice.standing.stored:
        check = choice.standing.check(turn.clock.now())
    else:
        check = await checked(comparison, wanted, turn, thorough=thorough, clean=quality in GOOD)
        await comparison.baseline.look_back()
    quality, reason = believed(quality, reason, check, choice.standing)
    node = comparison.nodes[0].server
    record = RunRecord(
        id=fresh_id("r", started, turn.random),
        target=target.name,
        task_set=wanted.name,
        pool=target.pool,
        trigger=trigger,
        started=started,
        seconds=turn.clock.monotonic() - begun,
        quality=quality,
        reason=reason,
        basis=basis_of(
            result.baseline,
            result.targets[0].identity,
            one,
            limits=wanted.limits_digest,
            mode=wanted.mode,
            reference=choice.standing.digest,
        ),
        limits=wanted.limits_digest,
        baseline=result.baseline,
        node=result.targets[0].identity,
        report=one,
        load_before=node.before,
        load_after=node.after,
    )
    tokens = await evidence(comparison, turn.shown)
    return Ran(record, check, result, busy=node.busy and quality is Quality.SKIPPED, tokens=tokens)


async def _ask(comparison: Comparison, wanted: WatchedSet) -> Report:
    """Ask the draw, and a larger one as long as it cannot decide and a larger one would; what the last one gave."""
    await comparison.run()
    while True:
        result = await asyncio.to_thread(report, comparison)
        planned = comparison.plan.sets[0]
        size = enlarged(wanted.sizes, result.targets[0].task_sets[0].verdict, now=planned.drawn)
        if size is None or comparison.nodes[0].why_not is not None:
            return result
        await comparison.enlarge(0, _draw(wanted, size=size, seed=comparison.plan.seed, mode=planned.mode))


async def _cut_short(comparison: Comparison) -> Report:
    """What was gathered when time was up."""
    await comparison.look_back()
    return await asyncio.to_thread(report, comparison)


def _draw(wanted: WatchedSet, *, size: int, seed: int, mode: ProbeMode) -> PlannedSet:
    """A draw under the configured name of its set; a larger one of the same seed begins with the smaller."""
    return replace(planned_draw(wanted.prompts, size=size, seed=seed, mode=mode), name=wanted.name)


def plan_of(wanted: WatchedSet, *, seed: int, confirming: bool = False) -> Plan:
    """A plan of one task set with a draw of its own. confirming: through the second mode, at fewer positions."""
    mode = wanted.confirm_mode if confirming and wanted.confirm_mode is not None else wanted.mode
    return Plan(
        sets=(_draw(wanted, size=wanted.draw, seed=seed, mode=mode),),
        limits=wanted.limits,
        parts=wanted.parts,
        level=wanted.level,
        k=wanted.k,
        seed=seed,
        continuation_tokens=wanted.continuation_tokens,
        positions=min(wanted.positions, CONFIRM_POSITIONS) if confirming else wanted.positions,
    )


async def _within(run: Awaitable[Report], seconds: float) -> Report | None:
    """Await a run, no longer than that; None where it did not come to its end."""
    try:
        async with asyncio.timeout(seconds):
            return await run
    except TimeoutError:
        return None


async def checked(comparison: Comparison, wanted: WatchedSet, turn: Turn, *, thorough: bool, clean: bool) -> Check:
    """Hold the baseline against its own stored answers; it says nothing where baseline or store was not there."""
    baseline, maker = comparison.baseline, comparison.maker
    nothing = Check(turn.clock.now(), sound=None)
    if baseline.introduction is None or baseline.stopped is not None or not isinstance(maker, GoldenMaker):
        return nothing
    bench = Bench(baseline, maker, comparison.plan)
    try:
        async with asyncio.timeout(turn.timeout_seconds):
            return await turn.yardstick.check(bench, wanted, thorough=thorough, clean=clean)
    except (StoreError, TimeoutError):
        return nothing
