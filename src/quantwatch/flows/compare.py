"""Holds nodes against a baseline: sequence by sequence, all servers at once, one request in flight at each."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from quantwatch.errors import ProbeError
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.observation import Missing
from quantwatch.flow.prompt import GoldenSequence, Prompt
from quantwatch.flow.verdict import Quality
from quantwatch.flows.ask import Server
from quantwatch.flows.canary import listen, question
from quantwatch.flows.gather import NodeRun, SetRun, broken, of_baseline
from quantwatch.flows.golden import GoldenMaker
from quantwatch.flows.plan import Plan, PlannedSet, Progress, ask_for, item_id
from quantwatch.flows.stored import StoredMaker, places, stored_maker
from quantwatch.probe.contract import Ask, Prober
from quantwatch.probe.obstacles import obstacles
from quantwatch.probe.protocol import protocol_ids, sample
from quantwatch.record.continuations import Continuations


class Comparison:
    """One run: `run` gathers, and what it has gathered can be read at any moment, also after an interruption."""

    def __init__(
        self, baseline: Prober, nodes: Sequence[Prober], plan: Plan, *, cache: Path, tell: Callable[[Progress], None]
    ) -> None:
        self.plan = plan
        self.baseline = Server(baseline)
        self.nodes = [NodeRun(Server(node, plan.seed), [SetRun(planned) for planned in plan.sets]) for node in nodes]
        self.k = plan.k
        self.done = 0
        self._cache = cache
        self._tell = tell
        self.maker: GoldenMaker | StoredMaker | None = None

    def refuse_baseline(self, reason: str | None) -> None:
        """Ask the baseline nothing and compare nothing, for this reason if there is one."""
        if reason is not None:
            self.baseline.stopped = Missing("baseline", Quality.INVALID, reason)

    async def run(self) -> None:
        """Gather everything the plan asks for; what cannot be had is recorded, never raised."""
        await self._meet()
        for index in range(len(self.plan.sets)):
            await self._run_set(index)
        await self.look_back()
        self._tell(Progress(self.done, self.plan.steps, "done"))

    async def enlarge(self, index: int, planned: PlannedSet) -> None:
        """Ask a larger draw that begins with the present one; what was asked before only counts more often."""
        sets = (*self.plan.sets[:index], planned, *self.plan.sets[index + 1 :])
        self.plan = replace(self.plan, sets=sets)
        for run in self.nodes:
            run.sets[index].planned = planned
        await self._run_set(index)
        await self.look_back()

    async def _run_set(self, index: int) -> None:
        planned = self.plan.sets[index]
        for item in planned.items:
            if all(run.sets[index].asked(item_id(item)) for run in self.nodes):
                continue
            self._tell(Progress(self.done, self.plan.steps, planned.name))
            await self._run_item(index, item)
            self.done += 1

    async def look_back(self) -> None:
        """Note the load at the end. A server that restarted on the way makes what it and its partners said void."""
        await asyncio.gather(*(server.look_back() for server in (self.baseline, *(run.server for run in self.nodes))))
        for run in self.nodes:
            gone = next((one for one in (run.server, self.baseline) if one.restarted()), None)
            if gone is not None:
                run.void(gone.stopped.reason if gone.stopped is not None else "")

    async def _meet(self) -> None:
        self._tell(Progress(0, self.plan.steps, "handshake"))
        servers = [self.baseline, *(run.server for run in self.nodes)]
        modes = {planned.mode for planned in self.plan.sets}
        await asyncio.gather(*(server.greet(self.plan.k, modes) for server in servers if server.stopped is None))
        if self.baseline.introduction is not None:
            kept = Continuations(self._cache, self.baseline.introduction.identity)
            self.maker = stored_maker(self.baseline.prober) or GoldenMaker(
                self.baseline.prober, kept, limit=self.plan.continuation_tokens
            )
        for run in self.nodes:
            if self.baseline.corruption is not None:
                _forgive_introduction(run.server)
            run.obstacle = self._obstacle(run.server)
        await asyncio.gather(*(self._learn_protocol(run) for run in self.nodes if run.why_not is None))
        compared = [self.baseline, *(run.server for run in self.nodes if run.why_not is None)]
        self.k = min((one.introduction.k for one in compared if one.introduction is not None), default=self.plan.k)

    def _obstacle(self, node: Server) -> Missing | None:
        if self.baseline.introduction is None or node.introduction is None:
            return None
        found = obstacles(self.baseline.introduction.identity, node.introduction.identity)
        return Missing("handshake", Quality.INVALID, "; ".join(str(one) for one in found)) if found else None

    async def _learn_protocol(self, run: NodeRun) -> None:
        """Which token ids are protocol; without an answer those parts are not told apart, and nothing else changes."""
        for gathered in run.sets:
            marks = gathered.planned.protocol
            if marks:
                with contextlib.suppress(ProbeError):
                    tokens = await run.server.prober.token_strings(sample(marks))
                    gathered.protocol = protocol_ids(tokens, marks)

    async def _run_item(self, index: int, item: Prompt | GoldenSequence) -> None:
        prompt_id = item_id(item)
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
            await self._ask_all(item, sequence, asked, index)

    async def _sequence(self, item: Prompt | GoldenSequence, prompt_id: str) -> GoldenSequence | Missing:
        maker = self.maker
        if self.baseline.confirmed:
            return Missing(prompt_id, Quality.INVALID, f"{self.baseline.corruption}: repair the baseline first")
        if self.baseline.stopped is not None or maker is None:
            return self.baseline.stopped or Missing(prompt_id, Quality.UNKNOWN, "the baseline did not introduce itself")
        return await self.baseline.guarded(prompt_id, lambda: maker.sequence(item), clears=False)

    async def _ask_all(
        self, item: Prompt | GoldenSequence, sequence: GoldenSequence, asked: list[NodeRun], index: int
    ) -> None:
        ask = places(self.baseline.prober, sequence, ask_for(sequence, self.plan, self.plan.sets[index].mode, self.k))
        signs = [run.server.signs() for run in asked]
        baseline, *answers = await self._answers(sequence, ask, asked)
        for run, before, answer in zip(asked, signs, answers, strict=True):
            if broken(baseline):
                run.server.forgive(before)
            run.sets[index].take(item, sequence, baseline=baseline, node=answer)
        questions = [question(item, sequence, baseline=baseline, node=answer) for answer in answers]
        await asyncio.gather(
            *(
                listen(run.server, self.baseline, one, run.sets[index].canary)
                for run, one in zip(asked, questions, strict=True)
            )
        )
        for run, before in zip(asked, signs, strict=True):
            run.sets[index].note_corruption(run.server, before[0])

    async def _answers(self, sequence: GoldenSequence, ask: Ask, asked: list[NodeRun]) -> list[Distribution | Missing]:
        """What the baseline and each node say, all at once unless the nodes are asked for the baseline's own ids."""
        if not self.plan.exact_ids:
            servers = [self.baseline, *(run.server for run in asked)]
            return await asyncio.gather(*(server.ask(sequence, ask) for server in servers))
        baseline = await self.baseline.ask(sequence, ask)
        if isinstance(baseline, Distribution) and not baseline.marks:
            ask = replace(ask, ids=baseline.top_ids())
        return [baseline, *await asyncio.gather(*(run.server.ask(sequence, ask) for run in asked))]


def _forgive_introduction(node: Server) -> None:
    """Broken numbers that the baseline shows as well have a common cause, so they are not held against the node."""
    if node.corruption is None:
        return
    said = f"{node.corruption}, and the baseline shows the same"
    node.forgive((None, False, None if node.introduction is not None else Missing("", Quality.INVALID, said)))
