"""How peaked distributions are: signatures of broken numbers that no divergence names."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quantwatch.flow.canary import Seen, Sign
from quantwatch.flow.distribution import Distribution
from quantwatch.measure.compare import Pair
from quantwatch.measure.listed import listed, tail_mass, usable

ENTROPY_ABOVE = 2.0
"""Nats. The worst recorded node that still answers (INT4 and W8A8 of a 135M model, mean KL 0.3) gains 0.8 at most."""

ENTROPY_SHARE = 0.25
"""A loop makes every next token certain; quantization alone has not been seen to lower the entropy by a tenth."""

ENTROPY_FROM = 0.5
"""Nats. A baseline that is nearly certain everywhere leaves nothing to collapse."""

TOP1_SHARE = 0.5
"""The worst recorded node that still answers keeps 0.73 of its baseline's top-1 probability."""

PROMPTS = 5
"""Fewer prompts may all be odd ones."""

POSITIONS = 16
"""Fewer positions may agree to the last bit by chance."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Means over n positions. top1: probability of the most probable token. entropy: lower bound in nats."""

    positions: int
    top1: float
    entropy: float


def shape(sides: Sequence[Distribution]) -> Shape:
    """The shape of distributions of one width over their usable continuation positions.

    Entropy: the listed tokens' own terms, and the rest of the probability at the rank-k value, the most that any token
    of the rest can have. So it never exceeds the truth, and a uniform row comes near ln V, which one cell for the rest
    would hide.
    """
    rows = listed(sides).rows(torch.cat([usable(one, first=one.prompt_length) for one in sides]))
    masses = rows.masses
    entropy = -(masses * rows.logprobs).sum(1) - tail_mass(masses) * rows.floor
    return Shape(len(masses), _mean(masses.amax(1)), _mean(entropy))


def _mean(values: Tensor) -> float:
    return float(values.mean()) if len(values) else 0.0


def flat(baseline: Distribution, node: Distribution) -> bool:
    """Whether a node's distributions over one sequence are nearly flat where its baseline's are not."""
    ours, theirs = shape([baseline]), shape([node])
    return theirs.entropy - ours.entropy >= ENTROPY_ABOVE and theirs.top1 <= TOP1_SHARE * ours.top1


def signatures(pairs: Sequence[Pair]) -> Iterator[Seen]:
    """What is odd about a node's distributions over a whole task set."""
    if not pairs:
        return
    if _identical(pairs):
        yield Seen(Sign.ZERO_DRIFT, ZERO_DRIFT)
    if len({pair.baseline.prompt_id for pair in pairs}) < PROMPTS:
        return
    ours, theirs = shape([pair.baseline for pair in pairs]), shape([pair.node for pair in pairs])
    told = f"{theirs.entropy:.2f} nats where the baseline's is {ours.entropy:.2f}"
    if theirs.entropy - ours.entropy >= ENTROPY_ABOVE:
        yield Seen(Sign.ENTROPY_HIGH, f"the mean entropy is at least {told}: the distributions are nearly flat")
    if ours.entropy >= ENTROPY_FROM and theirs.entropy <= ENTROPY_SHARE * ours.entropy:
        yield Seen(Sign.ENTROPY_LOW, f"the mean entropy has collapsed: {told}")
    if 0.0 < theirs.top1 <= TOP1_SHARE * ours.top1:
        yield Seen(Sign.TOP1_LOW, f"the top-1 probability is {theirs.top1:.2f} where the baseline's is {ours.top1:.2f}")


ZERO_DRIFT = "every log-probability is the baseline's to the last bit: the same server, or no quantization at work"


def _identical(pairs: Sequence[Pair]) -> bool:
    """Whether both sides gave every token of every sequence the same log-probability, and enough of them are telling.

    A nearly certain token prints 0 on any server, so it says nothing.
    """
    compared = 0
    for pair in {pair.baseline.prompt_id: pair for pair in pairs}.values():
        if pair.baseline.actual != pair.node.actual or pair.baseline.marks or pair.node.marks:
            return False
        compared += sum(value != 0.0 for value in pair.node.actual)
    return compared >= POSITIONS
