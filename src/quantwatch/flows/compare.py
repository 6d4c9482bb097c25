"""Holds nodes against a baseline: sequence by sequence, all servers at once, one request in flight at each."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from quantwatch.flow.observation import Missing
from quantwatch.flow.prompt import GoldenSequence, ProbeMode, Prompt
from quantwatch.flow.verdict import Quality
from quantwatch.flows.ask import Server
from quantwatch.flows.gather import NodeRun, SetRun, broken, of_baseline
from quantwatch.flows.golden import GoldenMaker
from quantwatch.flows.plan import Plan, PlannedSet, Progress
from quantwatch.probe.contract import Ask, Prober
from quantwatch.probe.handshake import obstacles
from quantwatch.prompts.draw import scored_positions
from quantwatch.record.continuations import Continuations


class Comparison:
    """One run: `run` gathers, and what it has gathered can be read at any moment, also after an interruption."""

    def __init__(
        self, baseline: Prober, nodes: Sequence[Prober], plan: Plan, *, cache: Path, tell: Callable[[Progress], None]
    ) -> None:
        self.plan = plan
        self.baseline = Server(baseline)
        self.nodes = [NodeRun(Server(node), [SetRun(planned) for planned in plan.sets]) for node in nodes]
        self.k = plan.k
        self.done = 0
        self._cache = cache
        self._tell = tell
        self._maker: GoldenMaker | None = None

    async def run(self) -> None:
        """Gather everything the plan asks for; what cannot be had is recorded, never raised."""
        await self._meet()
        for index, planned in enumerate(self.plan.sets):
            for item in planned.items:
                self._tell(Progress(self.done, self.plan.steps, planned.name))
                await self._run_item(index, item)
                self.done += 1
        self._tell(Progress(self.done, self.plan.steps, "done"))

    async def _meet(self) -> None:
        self._tell(Progress(0, self.plan.steps, "handshake"))
        servers = [self.baseline, *(run.server for run in self.nodes)]
        await asyncio.gather(*(server.greet(self.plan.k) for server in servers))
        if self.baseline.introduction is not None:
            kept = Continuations(self._cache, self.baseline.introduction.identity)
            self._maker = GoldenMaker(self.baseline.prober, kept, limit=self.plan.continuation_tokens)
        for run in self.nodes:
            run.obstacle = self._obstacle(run.server)
        compared = [self.baseline, *(run.server for run in self.nodes if run.why_not is None)]
        self.k = min((one.introduction.k for one in compared if one.introduction is not None), default=self.plan.k)

    def _obstacle(self, node: Server) -> Missing | None:
        if self.baseline.introduction is None or node.introduction is None:
            return None
        found = obstacles(self.baseline.introduction.identity, node.introduction.identity)
        return Missing("handshake", Quality.INVALID, "; ".join(str(one) for one in found)) if found else None

    async def _run_item(self, index: int, item: Prompt | GoldenSequence) -> None:
        prompt_id = item.id if isinstance(item, Prompt) else item.prompt_id
        asked = []
        for run in self.nodes:
            if run.why_not is not None:
                run.sets[index].miss(run.why_not, prompt_id)
            else:
                asked.append(run)
        sequence = await self._sequence(item, prompt_id) if asked else None
        if isinstance(sequence, Missing):
            for run in asked:
                run.sets[index].miss(of_baseline(sequence), prompt_id)
        elif sequence is not None:
            await self._ask_all(sequence, asked, index)

    async def _sequence(self, item: Prompt | GoldenSequence, prompt_id: str) -> GoldenSequence | Missing:
        maker = self._maker
        if self.baseline.confirmed:
            return Missing(prompt_id, Quality.INVALID, f"{self.baseline.corruption}: repair the baseline first")
        if self.baseline.stopped is not None or maker is None:
            return self.baseline.stopped or Missing(prompt_id, Quality.UNKNOWN, "the baseline did not introduce itself")
        return await self.baseline.guarded(prompt_id, lambda: maker.sequence(item), clears=False)

    async def _ask_all(self, sequence: GoldenSequence, asked: list[NodeRun], index: int) -> None:
        ask = self._how(sequence, self.plan.sets[index])
        signs = [run.server.signs() for run in asked]
        baseline, *answers = await asyncio.gather(
            self.baseline.ask(sequence, ask), *(run.server.ask(sequence, ask) for run in asked)
        )
        for run, before, answer in zip(asked, signs, answers, strict=True):
            if broken(baseline):
                run.server.forgive(before)
            run.sets[index].take(sequence.prompt_id, baseline, answer)
        await asyncio.gather(*(self._canary(run, run.sets[index], sequence) for run in asked))
        for run, before in zip(asked, signs, strict=True):
            run.sets[index].note_corruption(run.server, before[0])

    async def _canary(self, run: NodeRun, gathered: SetRun, sequence: GoldenSequence) -> None:
        """Where a set begins and after a sign, see whether the node answers with one token over and over."""
        if run.server.stopped is None and (run.server.repeats_itself or not gathered.begun):
            await run.server.canary(sequence, self.baseline)
        gathered.begun = True

    def _how(self, sequence: GoldenSequence, planned: PlannedSet) -> Ask:
        start, length = sequence.prompt_length, len(sequence.ids)
        match planned.mode:
            case ProbeMode.PROMPT_SCORING:
                return Ask(planned.mode, self.k)
            case ProbeMode.FIRST_TOKEN:
                return Ask(planned.mode, self.k, (start,))
            case ProbeMode.ONE_TOKEN:
                seed, limit = self.plan.seed, self.plan.positions
                places = scored_positions(start, length, limit=limit, seed=seed, prompt_id=sequence.prompt_id)
                return Ask(planned.mode, self.k, places)
