"""What a comparison will ask: task sets, drawn prompts or ready sequences, and how."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quantwatch.flow.divergence import Evidence
from quantwatch.flow.prompt import GoldenSequence, ProbeMode, Prompt, PromptSet
from quantwatch.judge.threshold import Limits, Part
from quantwatch.measure.compare import Scope
from quantwatch.probe.contract import Ask
from quantwatch.prompts.draw import distinct, draw, scored_positions


@dataclass(frozen=True, slots=True)
class PlannedSet:
    """One task set of a run. items: what is asked, each once. weights: how often each was drawn.

    protocol: marks whose tokens belong to a protocol.
    """

    name: str
    pool: str
    mode: ProbeMode
    items: tuple[Prompt | GoldenSequence, ...]
    weights: Mapping[str, int]
    evidence: Evidence
    protocol: tuple[str, ...] = ()

    @property
    def drawn(self) -> int:
        """How many draws the items stand for."""
        return sum(self.weights.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run.

    parts: limits of parts of a task set. level: two-sided level of every interval. positions: continuation positions a
    prompt in mode one_token. exact_ids: the nodes are asked for the baseline's own ids; needs a one-token mode.
    """

    sets: tuple[PlannedSet, ...]
    limits: Limits
    parts: Mapping[Part, Limits] = field(default_factory=dict)
    level: float = 0.95
    k: int = 20
    seed: int = 0
    scope: Scope = Scope.CONTINUATION
    continuation_tokens: int = 96
    positions: int = 32
    exact_ids: bool = False

    @property
    def steps(self) -> int:
        """How many sequences will be asked of each server."""
        return sum(len(planned.items) for planned in self.sets)


def planned_draw(pool: PromptSet, *, size: int, seed: int, mode: ProbeMode | None) -> PlannedSet:
    """A task set drawn from a pool; the mode of the prompts file unless another is given."""
    drawn = draw(pool, size=size, seed=seed)
    weights = Counter(prompt.id for prompt in drawn)
    return PlannedSet(pool.name, pool.digest, mode or pool.mode, distinct(drawn), weights, Evidence.DRAW, pool.protocol)


def item_id(item: Prompt | GoldenSequence) -> str:
    """The prompt's id."""
    return item.id if isinstance(item, Prompt) else item.prompt_id


def planned_sequences(name: str, digest: str, sequences: tuple[GoldenSequence, ...], mode: ProbeMode) -> PlannedSet:
    """Ready sequences, all of them asked: a census, no draw."""
    weights = {sequence.prompt_id: 1 for sequence in sequences}
    return PlannedSet(name, digest, mode, sequences, weights, Evidence.CENSUS)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, for whoever watches."""

    done: int
    total: int
    doing: str = field(default="")


def ask_for(sequence: GoldenSequence, plan: Plan, mode: ProbeMode, k: int) -> Ask:
    """How a sequence is asked about in a mode; in one_token the positions are drawn from the plan's seed."""
    start, length = sequence.prompt_length, len(sequence.ids)
    match mode:
        case ProbeMode.PROMPT_SCORING:
            return Ask(mode, k)
        case ProbeMode.FIRST_TOKEN:
            return Ask(mode, k, (start,))
        case ProbeMode.ONE_TOKEN:
            places = scored_positions(start, length, limit=plan.positions, seed=plan.seed, prompt_id=sequence.prompt_id)
            return Ask(mode, k, places)


def plan_json(plan: Plan, scheme: str) -> dict[str, Any]:
    """What was asked for, as far as it is needed to repeat or compare a result."""
    return {
        "scheme": scheme,
        "positions": plan.scope.value,
        "continuation_tokens": plan.continuation_tokens,
        "one_token_positions": plan.positions,
        "k": plan.k,
        "seed": plan.seed,
    }
