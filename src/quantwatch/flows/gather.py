"""What has been gathered about nodes and task sets so far; can be read at any moment."""

from dataclasses import dataclass, field, replace

from quantwatch.flow.distribution import Distribution
from quantwatch.flow.observation import Missing, Observation
from quantwatch.flow.prompt import GoldenSequence, Prompt
from quantwatch.flow.verdict import Quality
from quantwatch.flows.ask import Server
from quantwatch.flows.canary import SetCanary
from quantwatch.flows.plan import PlannedSet
from quantwatch.measure.compare import Pair
from quantwatch.measure.slices import Traits


@dataclass(slots=True)
class SetRun:
    """One node on one task set. answers, gaps: what each asked prompt gave, a pair of distributions or trouble.

    protocol: token ids that belong to a protocol, None where that is not known.
    """

    planned: PlannedSet
    answers: dict[str, Pair] = field(default_factory=dict)
    gaps: dict[str, Missing] = field(default_factory=dict)
    protocol: frozenset[int] | None = None
    corruption: str | None = None
    confirmed: bool = False
    canary: SetCanary = field(default_factory=SetCanary)

    def miss(self, missing: Missing, prompt_id: str) -> None:
        """Note a prompt that gave nothing."""
        self.gaps[prompt_id] = replace(missing, prompt_id=prompt_id)

    @property
    def pairs(self) -> list[Pair]:
        """One entry a draw, so a prompt drawn twice stands twice."""
        return [pair for name, pair in self.answers.items() for _ in range(self.planned.weights[name])]

    @property
    def missing(self) -> list[Missing]:
        """Prompts that gave nothing, with the draws that each stands for."""
        return [replace(one, weight=self.planned.weights[name]) for name, one in self.gaps.items()]

    def asked(self, prompt_id: str) -> bool:
        """Whether a prompt has been asked already, with any result."""
        return prompt_id in self.answers or prompt_id in self.gaps

    def take(
        self,
        item: Prompt | GoldenSequence,
        sequence: GoldenSequence,
        *,
        baseline: Distribution | Missing,
        node: Distribution | Missing,
    ) -> None:
        """Note what both sides said; trouble of the baseline is never the node's."""
        prompt_id = sequence.prompt_id
        if prompt_id not in self.planned.weights:
            raise KeyError(prompt_id)  # an answer to what was never drawn would be a fault of our own
        if isinstance(baseline, Missing):
            self.miss(of_baseline(baseline), prompt_id)
        elif baseline.marks:
            self.miss(Missing("", Quality.INVALID, "the baseline's own numbers are broken; repair it first"), prompt_id)
        elif isinstance(node, Missing):
            self.miss(node, prompt_id)
        else:
            self.answers[prompt_id] = Pair(baseline, node, traits=self._traits(item, sequence), sequence=sequence.ids)

    def _traits(self, item: Prompt | GoldenSequence, sequence: GoldenSequence) -> Traits:
        marked = self.protocol
        places = None if marked is None else frozenset(i for i, token in enumerate(sequence.ids) if token in marked)
        if isinstance(item, GoldenSequence):
            return Traits(protocol=places)
        return Traits(language=item.language, length=item.length.value, protocol=places)

    def note_corruption(self, server: Server, known: str | None) -> None:
        """Note a sign of broken numbers that was not known before this sequence."""
        if server.confirmed or (server.corruption is not None and known is None):
            self.corruption, self.confirmed = server.corruption, server.confirmed

    def observation(self, *, obstacle: Missing | None, interrupted: bool) -> Observation:
        """Everything but the numbers, for the judge."""
        return Observation(
            drawn=self.planned.drawn,
            measured=len(self.pairs),
            missing=tuple(self.missing),
            corruption=self.corruption,
            confirmed=self.confirmed,
            obstacle=obstacle,
            interrupted=interrupted,
            canary=self.canary.whole(self.pairs),
        )


@dataclass(slots=True)
class NodeRun:
    """One node over all task sets. obstacle: why it cannot be compared with the baseline."""

    server: Server
    sets: list[SetRun]
    obstacle: Missing | None = None

    def void(self, reason: str) -> None:
        """Take back everything that was found: a server restarted in between, so its numbers are of two processes."""
        self.obstacle = Missing("", Quality.UNKNOWN, reason)
        for one in self.sets:
            one.corruption, one.confirmed = None, False

    @property
    def why_not(self) -> Missing | None:
        """Why the node is asked nothing more, or None while it is asked."""
        return self.obstacle or self.server.stopped


def broken(answer: Distribution | Missing) -> bool:
    """Whether an answer showed broken numbers."""
    if isinstance(answer, Missing):
        return answer.quality in (Quality.CORRUPTED, Quality.INCONCLUSIVE)
    return bool(answer.marks)


def of_baseline(missing: Missing) -> Missing:
    """Trouble of the baseline, seen from a node: its numbers may be broken, but never on the node's account."""
    return replace(missing, quality=Quality.INVALID) if broken(missing) else missing
