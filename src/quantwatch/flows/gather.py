"""What has been gathered about nodes and task sets so far; can be read at any moment."""

from dataclasses import dataclass, field, replace

from quantwatch.flow.distribution import Distribution
from quantwatch.flow.observation import Missing, Observation
from quantwatch.flow.verdict import Quality
from quantwatch.flows.ask import Server
from quantwatch.flows.plan import PlannedSet
from quantwatch.measure.compare import Pair


@dataclass(slots=True)
class SetRun:
    """One node on one task set. pairs: one entry a draw, so a prompt drawn twice stands twice."""

    planned: PlannedSet
    pairs: list[Pair] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    corruption: str | None = None
    confirmed: bool = False
    begun: bool = False

    def miss(self, missing: Missing, prompt_id: str) -> None:
        """Note a prompt that gave nothing."""
        weight = self.planned.weights[prompt_id]
        self.missing.append(replace(missing, prompt_id=prompt_id, weight=weight))

    def take(self, prompt_id: str, baseline: Distribution | Missing, node: Distribution | Missing) -> None:
        """Note what both sides said; trouble of the baseline is never the node's."""
        if isinstance(baseline, Missing):
            self.miss(of_baseline(baseline), prompt_id)
        elif baseline.marks:
            self.miss(Missing("", Quality.INVALID, "the baseline's own numbers are broken; repair it first"), prompt_id)
        elif isinstance(node, Missing):
            self.miss(node, prompt_id)
        else:
            self.pairs += [Pair(baseline, node)] * self.planned.weights[prompt_id]

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
        )


@dataclass(slots=True)
class NodeRun:
    """One node over all task sets. obstacle: why it cannot be compared with the baseline."""

    server: Server
    sets: list[SetRun]
    obstacle: Missing | None = None

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
