"""What happened while a node was probed on one task set, besides the numbers."""

from dataclasses import dataclass

from quantwatch.flow.canary import NO_CANARY, Canary
from quantwatch.flow.verdict import Quality


@dataclass(frozen=True, slots=True)
class Missing:
    """A drawn prompt that gave no pair of distributions.

    quality: what kind of trouble it was. weight: how many draws it stands for. reason: one sentence with the remedy.
    """

    prompt_id: str
    quality: Quality
    reason: str
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything but the divergence that a verdict rests on.

    drawn: draws that were planned. measured: draws that both sides answered. corruption: what was seen of broken
    numbers, or None. confirmed: whether a second probe showed it too. obstacle: why the two servers cannot be compared.
    interrupted: the run ended before all draws were asked. canary: what free answers and distributions look like.
    """

    drawn: int
    measured: int
    missing: tuple[Missing, ...] = ()
    corruption: str | None = None
    confirmed: bool = False
    obstacle: Missing | None = None
    interrupted: bool = False
    canary: Canary = NO_CANARY
