"""Measures healthy nodes over several cycles: against the baseline, and every server against itself.

Cycle by cycle over all task sets, so that an interruption leaves every set with almost the same number of cycles.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from quantwatch.flow.calibration import Noise
from quantwatch.flow.identity import Identity
from quantwatch.flow.report import Report, SetReport
from quantwatch.flow.verdict import Quality
from quantwatch.flows.again import Again, Asking, again
from quantwatch.flows.basis import basis_of
from quantwatch.flows.compare import Comparison
from quantwatch.flows.cycle import plan_of
from quantwatch.flows.plan import Plan, Progress
from quantwatch.flows.report import report
from quantwatch.flows.watched import Watched
from quantwatch.measure.levels import sample
from quantwatch.measure.slices import Rows
from quantwatch.probe.contract import Prober


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to calibrate. task_sets: names that every target has. cycles: how many."""

    targets: Sequence[Watched]
    task_sets: Sequence[str]
    cycles: int


@dataclass(frozen=True, slots=True)
class Means:
    """What it takes. timeout_seconds: longest time for one task set in one cycle, and for asking again after it."""

    baseline: Prober
    cache: Path
    random: Random
    timeout_seconds: float
    tell: Callable[[Progress], None] = lambda _: None


@dataclass(slots=True)
class Gathered:
    """One target on one task set so far. reports, samples: of the usable cycles. basis: of the first of them.

    fault: why nothing of this node may become a limit. noise_trouble: why a second answer was missing. *_hits: as in
    Again, over all cycles.
    """

    target: Watched
    task_set: str
    reports: list[SetReport] = field(default_factory=list)
    samples: list[Rows] = field(default_factory=list)
    noise: dict[Noise, list[Rows]] = field(default_factory=dict)
    unusable: list[str] = field(default_factory=list)
    fault: str | None = None
    noise_trouble: str | None = None
    basis: str = ""
    baseline: Identity | None = None
    node: Identity | None = None
    cold_hits: float = 0.0
    warm_hits: float = 0.0

    def take(self, result: Report, at: int, run: Comparison) -> bool:
        """Note a cycle; whether it can be used. at: which of the comparison's nodes this is."""
        one, node = result.targets[at].task_sets[0], result.targets[at]
        if node.quality is Quality.CORRUPTED or one.observation.corruption is not None:
            self.fault = self.fault or f"broken numbers: {node.reasons[0] if node.reasons else one.verdict.reasons[0]}"
        if one.verdict.quality is not Quality.OK or one.divergence is None:
            told = next(iter(node.reasons), one.verdict.reasons[0]).removeprefix(f"{one.name}: ")
            self.unusable.append(result.trouble or told)
            return False
        basis = basis_of(result.baseline, node.identity, one, limits="", mode=one.mode)
        self._meet(result.baseline, node.identity, basis)
        self.reports.append(one)
        self.samples.append(sample(run.nodes[at].sets[0].pairs))
        return True

    def _meet(self, baseline: Identity | None, node: Identity | None, basis: str) -> None:
        """All cycles must be of the same two processes: a restart may bring other weights under the same name."""
        if self.reports and basis != self.basis:
            self.fault = self.fault or "baseline or node changed its model, version or k meanwhile"
        elif self.reports and [_process(baseline), _process(node)] != [_process(self.baseline), _process(self.node)]:
            self.fault = self.fault or "baseline or node restarted meanwhile"
        self.baseline, self.node, self.basis = baseline, node, basis

    def take_noise(self, *kept: Again) -> None:
        """Note how far servers were from themselves in a usable cycle."""
        for one in kept:
            for kind, pairs in one.pairs.items():
                self.noise.setdefault(kind, []).append(sample(pairs))
            self.noise_trouble = self.noise_trouble or one.trouble
            self.cold_hits += one.cold_hits
            self.warm_hits += one.warm_hits


class Calibration:
    """One calibration: `run` gathers, and what it has gathered can be read at any moment, also after an interruption.

    trouble: why it stopped early. done: cycles that came to their end.
    """

    def __init__(self, wanted: Wanted, means: Means) -> None:
        self.wanted = wanted
        asked = {
            name: [Gathered(target, name) for target in wanted.targets if name in target.sets]
            for name in dict.fromkeys(wanted.task_sets)
        }
        self.gathered = {name: of_targets for name, of_targets in asked.items() if of_targets}
        self.done = 0
        self.trouble: str | None = None
        self._means = means
        self._plans = [{name: self._plan(name) for name in self.gathered} for _ in range(wanted.cycles)]
        self._total = 2 * sum(plan.steps for plans in self._plans for plan in plans.values())
        self._steps = 0

    async def run(self) -> None:
        """Make all cycles; what cannot be had is recorded, never raised."""
        for number, plans in enumerate(self._plans, 1):
            for name, plan in plans.items():
                await self._cycle(name, plan, f"cycle {number}/{self.wanted.cycles}: {name}")
                if self.trouble is not None:
                    return
            self.done = number
        self._means.tell(Progress(self._total, self._total, "done"))

    def _plan(self, name: str) -> Plan:
        """A fresh draw without limits, so that a verdict says only whether the numbers can be used."""
        watched = self.gathered[name][0].target.sets[name]
        return replace(plan_of(watched, seed=self._means.random.getrandbits(31)), limits={}, parts={})

    async def _cycle(self, name: str, plan: Plan, doing: str) -> None:
        means, before = self._means, self._steps

        def tell(at: Progress) -> None:
            means.tell(Progress(before + at.done, self._total, doing))

        probers = [one.target.prober for one in self.gathered[name]]
        run = Comparison(means.baseline, probers, plan, cache=means.cache, tell=tell)
        await _within(run.run(), means.timeout_seconds)
        result = report(run)
        self._steps = before + plan.steps
        usable = [one.take(result, at, run) for at, one in enumerate(self.gathered[name])]
        self.trouble = _hopeless(result)
        if self.trouble is None and any(usable):
            await self._again(run, usable, name=name, doing=f"{doing}, again")
        self._steps = before + 2 * plan.steps

    async def _again(self, run: Comparison, usable: list[bool], *, name: str, doing: str) -> None:
        baseline, nodes = Again(), [Again() for _ in usable]

        def step() -> None:
            self._means.tell(Progress(self._steps, self._total, doing))
            self._steps += 1

        asked = again(Asking(run, self._means.random, step), baseline, nodes)
        await _within(asked, self._means.timeout_seconds)
        for one, node, used in zip(self.gathered[name], nodes, usable, strict=True):
            if used:
                one.take_noise(baseline, node)


def _process(identity: Identity | None) -> str | None:
    return identity.process if identity is not None else None


def _hopeless(result: Report) -> str | None:
    """Why further cycles are pointless until a person acts."""
    if result.misconfigured:
        return result.trouble or "the baseline is misconfigured"
    if all(target.misconfigured for target in result.targets):
        return "; ".join(target.reasons[0] for target in result.targets if target.reasons)
    return None


async def _within(work: Awaitable[None], seconds: float) -> None:
    """Await, no longer than that; what was gathered by then stays."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return
