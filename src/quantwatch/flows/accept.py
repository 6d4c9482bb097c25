"""Measures a candidate for the release gate: per task set its quality, then, if planned, its behaviour under load."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import partial

from quantwatch.clock import Clock
from quantwatch.flow.observation import Missing
from quantwatch.flows.compare import Comparison
from quantwatch.flows.gate_plan import GatePlan, SetPlan
from quantwatch.flows.gather import NodeRun
from quantwatch.flows.load_test import Ids, Sender, Side, load_test, turned
from quantwatch.flows.plan import Plan, Progress
from quantwatch.probe.obstacles import obstacles

CANDIDATE, RUNNING = "candidate", "running"

Compare = Callable[[Plan, Callable[[Progress], None]], AbstractAsyncContextManager[Comparison]]


@dataclass(slots=True)
class SetRun:
    """One task set of the gate. comparison: None while nothing was asked. no_load: why no load was sent."""

    planned: SetPlan
    sides: Mapping[str, Side]
    comparison: Comparison | None = None
    no_load: str | None = None

    @property
    def candidate(self) -> NodeRun | None:
        """The candidate as compared with the baseline."""
        return None if self.comparison is None else self.comparison.nodes[0]

    @property
    def running(self) -> NodeRun | None:
        """The running node as compared with the baseline; None without one."""
        return None if self.comparison is None or len(self.comparison.nodes) < 2 else self.comparison.nodes[1]


@dataclass(slots=True)
class Gate:
    """One gate run: `run` gathers, and what it has gathered can be read at any moment, also after an interruption.

    compare: connects baseline, candidate and, if there is one, the running node, in this order. senders: of the same
    nodes by name. stopped: why further task sets are not asked.
    """

    plan: GatePlan
    compare: Compare
    senders: Mapping[str, Sender]
    clock: Clock
    tell: Callable[[Progress], None]
    sets: list[SetRun] = field(default_factory=list)
    stopped: str | None = None
    complete: bool = False
    done: int = 0

    async def run(self) -> None:
        """Measure everything that the plan asks for; what cannot be had is recorded, never raised."""
        self.sets = [SetRun(one, self._sides()) for one in self.plan.sets]
        for one in self.sets:
            if self.stopped is None:
                await self._set(one)
        self.complete = True

    def _sides(self) -> dict[str, Side]:
        return {name: Side(name, sender) for name, sender in self.senders.items()}

    async def _set(self, one: SetRun) -> None:
        for side in one.sides.values():
            await side.look()
        async with self.compare(one.planned.plan, lambda at: self._at(one, at.done, at.doing)) as comparison:
            one.comparison = comparison
            await comparison.run()
            self.done += one.planned.plan.steps
            if comparison.nodes[0].server.confirmed:
                self.stopped = "the candidate computes broken numbers, so it was asked nothing more"
            for side in one.sides.values():
                await side.look()
            await self._load(one)

    def _at(self, one: SetRun, done: int, doing: str) -> None:
        name = one.planned.name
        self.tell(Progress(self.done + done, self.plan.steps, name if doing == name else f"{name}: {doing}"))

    async def _load(self, one: SetRun) -> None:
        load = one.planned.load
        if load is None:
            return
        one.no_load = self.stopped or apart(one) or unfit(one.candidate)
        prompts = [] if one.no_load is not None else await self._prompts(one)
        if not prompts:
            one.no_load = one.no_load or "the candidate tokenized no prompt"
            return
        sides = [side for name, side in one.sides.items() if self._loaded(name, one)]
        for side in sides:
            side.sender.model = _model(one.candidate if side.name == CANDIDATE else one.running)

        def told(name: str) -> None:
            self.done += 1
            self._at(one, 0, f"load on {name}")

        def request(number: int) -> Ids:
            return turned(prompts, number, prefix_cache=self.plan.prefix_cache)

        await load_test(sides, request, load, clock=self.clock, tell=told)

    def _loaded(self, name: str, one: SetRun) -> bool:
        """The running node gets load where the plan says so, and only when it has introduced itself."""
        return name == CANDIDATE or (self.plan.load_running and unfit(one.running) is None)

    async def _prompts(self, one: SetRun) -> list[Ids]:
        """The drawn prompts as the candidate's tokenizer reads them."""
        assert one.candidate is not None  # noqa: S101, unfit has checked; this is for the type checker
        server, prober = one.candidate.server, one.candidate.server.prober
        read = [await server.guarded(item.id, partial(prober.tokenize, item)) for item in one.planned.prompts]
        return [ids for ids in read if not isinstance(ids, Missing) and ids]


def apart(one: SetRun) -> str | None:
    """Why candidate and running node cannot be told apart or held against each other, or None."""
    if one.candidate is None or one.running is None:
        return None
    ours, theirs = one.candidate.server.identity, one.running.server.identity
    if ours is None or theirs is None or ours.tokenizer is None or theirs.tokenizer is None:
        return None
    found = obstacles(replace(theirs, name=RUNNING), ours)
    return "; ".join(f"candidate and running node: {one}" for one in found) or None


def unfit(run: NodeRun | None) -> str | None:
    """Why a node gets no load: it is not there, does not answer, or cannot be compared with the baseline."""
    if run is None:
        return "nothing was asked before the run ended"
    if run.why_not is not None:
        return run.why_not.reason
    return None if run.server.identity is not None else "it has not introduced itself"


def _model(run: NodeRun | None) -> str:
    identity = None if run is None else run.server.identity
    return "" if identity is None else identity.model
