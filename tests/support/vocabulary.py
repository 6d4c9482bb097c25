"""Pairs of distributions over a whole vocabulary, the top-k lists that servers would give of them, and the truth."""

import math
from collections.abc import Callable
from enum import StrEnum

import torch
from torch import Tensor

from quantwatch.flow.distribution import NO_ID
from quantwatch.measure.listed import Listed


def top(logprobs: Tensor, k: int, *, own: Tensor | None = None) -> Listed:
    """Top-k lists of full log-distributions, (n, V) -> (n, k + 1), the own token beyond rank k in the last column."""
    values, ids = logprobs.topk(k, dim=1)
    n = len(logprobs)
    extra_ids = torch.full((n, 1), NO_ID)
    extra = torch.zeros(n, 1, dtype=torch.float64)
    actual = torch.full((n,), math.nan, dtype=torch.float64)
    if own is not None:
        actual = logprobs.gather(1, own.unsqueeze(1)).squeeze(1)
        beyond = ~(ids == own.unsqueeze(1)).any(1)
        extra_ids[beyond, 0] = own[beyond]
        extra[beyond, 0] = actual[beyond]
    return Listed(torch.cat([ids, extra_ids], 1), torch.cat([values, extra], 1), actual, values[:, -1])


def narrowed(side: Listed, k: int) -> Listed:
    """The top k alone of a wider list, without the sequence's own token beyond rank k."""
    values = side.logprobs[:, :-1].masked_fill(~side.held[:, :-1], -torch.inf)
    best, order = values.topk(k, dim=1)
    n = len(values)
    ids = torch.cat([side.ids.gather(1, order), torch.full((n, 1), NO_ID)], 1)
    return Listed(ids, torch.cat([best, torch.zeros(n, 1, dtype=best.dtype)], 1), side.actual, best[:, -1])


def rounded(side: Listed) -> Listed:
    """The same numbers as float32 prints them."""
    return Listed(side.ids, side.logprobs.float().double(), side.actual.float().double(), side.floor.float().double())


def full_kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(P||Q) over the whole vocabulary: (n, V) log-probabilities -> (n,)."""
    return (p.exp() * (p - q)).sum(1)


def random_pair(seed: int, n: int, vocabulary: int, *, sharpness: float, noise: float) -> tuple[Tensor, Tensor]:
    """Zipf-like log-distributions with jitter, and the same with noise; heavy tails on every third row."""
    g = torch.Generator().manual_seed(seed)
    ranks = torch.arange(1, vocabulary + 1, dtype=torch.float64)
    logits = -sharpness * ranks.log() + 0.4 * torch.randn(n, vocabulary, generator=g, dtype=torch.float64)
    logits = logits.gather(1, torch.rand(n, vocabulary, generator=g).argsort(1))
    shift = noise * torch.randn(n, vocabulary, generator=g, dtype=torch.float64)
    shift[::3] *= torch.randn(len(shift[::3]), vocabulary, generator=g, dtype=torch.float64).abs() ** 2
    return logits.log_softmax(1), (logits + shift).log_softmax(1)


class Damage(StrEnum):
    """What happens to a node's logits."""

    GAUSS = "gauss"
    HEAVY = "heavy"
    TEMPERATURE = "temperature"
    SUPPRESSED = "suppressed"
    TAIL_ONLY = "tail_only"
    EXCHANGED = "exchanged"


def damaged_logits(damage: Damage, n: int, *, vocabulary: int, seed: int) -> tuple[Tensor, Tensor]:
    """Zipf-like logits of n positions and the same with this damage, each row of its own strength: (n, V) float32.

    Ids are in no order of probability, as in a real vocabulary: sums in float32 depend on it.
    """
    g = torch.Generator().manual_seed(seed)
    ranks = torch.arange(1, vocabulary + 1, dtype=torch.float32)
    steepness = 0.9 + 2.5 * torch.rand(n, 1, generator=g)
    logits = -steepness * ranks.log() + 0.4 * torch.randn(n, vocabulary, generator=g)
    strength = 10 ** (2 * torch.rand(n, 1, generator=g) - 1.7)
    ids = torch.randperm(vocabulary, generator=g)
    return logits[:, ids], DAMAGES[damage](logits, strength, g)[:, ids]


def _gauss(logits: Tensor, strength: Tensor, g: torch.Generator) -> Tensor:
    return logits + strength * torch.randn(logits.shape, generator=g)


def _heavy(logits: Tensor, strength: Tensor, g: torch.Generator) -> Tensor:
    return logits + strength * torch.randn(logits.shape, generator=g) ** 3


def _temperature(logits: Tensor, strength: Tensor, g: torch.Generator) -> Tensor:
    return logits * torch.where(torch.rand(strength.shape, generator=g) < 0.5, 1 + strength, 1 / (1 + strength))


def _suppressed(logits: Tensor, strength: Tensor, g: torch.Generator) -> Tensor:
    victim = logits.topk(5, dim=1).indices.gather(1, torch.randint(5, strength.shape, generator=g))
    return _gauss(logits.scatter_add(1, victim, -10 * strength), 0.1 * strength, g)


def _tail_only(logits: Tensor, strength: Tensor, g: torch.Generator) -> Tensor:
    first = int(torch.randint(2, 200, (1,), generator=g))
    return torch.cat([logits[:, :first], _gauss(logits[:, first:], 2 * strength, g)], 1)


def _exchanged(logits: Tensor, strength: Tensor, g: torch.Generator) -> Tensor:
    return _gauss(with_exchanged_top(logits), 0.1 * strength, g)


DAMAGES: dict[Damage, Callable[[Tensor, Tensor, torch.Generator], Tensor]] = {
    Damage.GAUSS: _gauss,
    Damage.HEAVY: _heavy,
    Damage.TEMPERATURE: _temperature,
    Damage.SUPPRESSED: _suppressed,
    Damage.TAIL_ONLY: _tail_only,
    Damage.EXCHANGED: _exchanged,
}


def with_exchanged_top(values: Tensor) -> Tensor:
    """Exchange the two most probable tokens at every position."""
    ids = values.topk(2, dim=1).indices
    return values.scatter(1, ids, values.gather(1, ids.flip(1)))
