"""Asks servers a second time for what they have just answered: how far is each of them from itself?

Both answers come from one process, so the handshake's objection to one server on both sides does not arise: no
comparison of two servers is made here, and none can be made with this.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from quantwatch.flow.calibration import Noise
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.observation import Missing
from quantwatch.flow.prompt import GoldenSequence, Prompt
from quantwatch.flows.ask import Server
from quantwatch.flows.compare import Comparison
from quantwatch.flows.gather import NodeRun
from quantwatch.flows.plan import ask_for, item_id
from quantwatch.measure.compare import Pair
from quantwatch.measure.slices import Traits
from quantwatch.probe.contract import Ask


@dataclass(slots=True)
class Again:
    """Pairs of answers of one server. *_hits: tokens that it says it took from its prefix cache meanwhile.

    trouble: why an answer was missing, the first of them.
    """

    pairs: dict[Noise, list[Pair]] = field(default_factory=dict)
    cold_hits: float = 0.0
    warm_hits: float = 0.0
    trouble: str | None = None

    def take(self, kind: Noise, traits: Traits, *answers: Distribution | Missing) -> None:
        """Note two answers; broken or missing ones give no pair."""
        sound = []
        for one in answers:
            if isinstance(one, Missing):
                self.trouble = self.trouble or one.reason
            elif one.marks:
                self.trouble = self.trouble or one.marks[0].detail
            else:
                sound.append(one)
        if len(sound) == 2:
            self.pairs.setdefault(kind, []).append(Pair(*sound, traits=traits))


@dataclass(frozen=True, slots=True)
class Asking:
    """A comparison of one task set that has just been made, and who is to be asked again. step: told of each item."""

    comparison: Comparison
    random: Random
    step: Callable[[], None] = lambda: None


async def again(asking: Asking, baseline: Again, nodes: list[Again]) -> None:
    """Ask for every sequence once more; what is gathered stands in baseline and nodes, also after an interruption."""
    comparison = asking.comparison
    (planned,) = comparison.plan.sets
    for item in planned.items:
        asking.step()
        prompt_id = item_id(item)
        answered = _answered(comparison, nodes, prompt_id)
        sequence = await _sequence(comparison, item, prompt_id) if answered else None
        if sequence is None:
            continue
        ask = ask_for(sequence, comparison.plan, planned.mode, comparison.k)
        await asyncio.gather(
            _baseline(comparison.baseline, baseline, answered[0][2], sequence=sequence, ask=ask),
            *(
                _node(run.server, kept, pair, sequence=sequence, ask=ask, random=asking.random)
                for run, kept, pair in answered
            ),
        )


def _answered(comparison: Comparison, nodes: list[Again], prompt_id: str) -> list[tuple[NodeRun, Again, Pair]]:
    """The nodes that answered a prompt, each with its record and its pair."""
    found = []
    for run, kept in zip(comparison.nodes, nodes, strict=True):
        pair = run.sets[0].answers.get(prompt_id)
        if pair is not None and run.why_not is None:
            found.append((run, kept, pair))
    return found


async def _sequence(comparison: Comparison, item: Prompt | GoldenSequence, prompt_id: str) -> GoldenSequence | None:
    maker = comparison.maker
    if maker is None or comparison.baseline.stopped is not None:
        return None
    made = await comparison.baseline.guarded(prompt_id, lambda: maker.sequence(item), clears=False)
    return None if isinstance(made, Missing) else made


async def _baseline(server: Server, kept: Again, pair: Pair, *, sequence: GoldenSequence, ask: Ask) -> None:
    asked = replace(ask, rank=pair.baseline.rank)
    kept.take(Noise.BASELINE, pair.traits, pair.baseline, await server.ask(sequence, asked))


async def _node(server: Server, kept: Again, pair: Pair, *, sequence: GoldenSequence, ask: Ask, random: Random) -> None:
    """Cold, warm with the same salt, cold with another; the prefix cache cannot serve one salt from another.

    All of the data-parallel rank that answered before: another rank is another server.
    """
    one, two = (f"quantwatch-{random.getrandbits(64):016x}" for _ in range(2))
    answers, hits = [], [await _hits(server)]
    for salt in (one, one, two):
        answers.append(await server.ask(sequence, replace(ask, rank=pair.node.rank, cache_salt=salt)))
        hits.append(await _hits(server))
    cold, warm, cold_too = answers
    kept.take(Noise.COLD, pair.traits, cold, cold_too)
    kept.take(Noise.WARM, pair.traits, cold, warm)
    kept.cold_hits += hits[1] - hits[0] + hits[3] - hits[2]
    kept.warm_hits += hits[2] - hits[1]


async def _hits(server: Server) -> float:
    load = await server.prober.load()
    return load.prefix_hits or 0.0 if load is not None else 0.0
