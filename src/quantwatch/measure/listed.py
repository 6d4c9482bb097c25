"""Distributions as tensors: the shape in which the mathematics works."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quantwatch.flow.distribution import NO_ID, Distribution


@dataclass(frozen=True, slots=True)
class Listed:
    """Top-k lists of n positions.

    ids: (n, w) int64, NO_ID where a column is empty. logprobs: (n, w) float64 nats, 0 where a column is empty.
    actual: (n,) float64, NaN where the sequence's own token was not listed. floor: (n,) float64, value of rank k.
    """

    ids: Tensor
    logprobs: Tensor
    actual: Tensor
    floor: Tensor

    @property
    def held(self) -> Tensor:
        """Which columns hold a token: (n, w) bool."""
        return self.ids != NO_ID

    @property
    def masses(self) -> Tensor:
        """Probabilities, 0 where a column is empty: (n, w)."""
        return self.logprobs.exp() * self.held

    @property
    def k(self) -> int:
        """How many tokens a server was asked for: the last column is for the sequence's own token beyond rank k."""
        return self.ids.shape[1] - 1

    def rows(self, keep: Tensor | slice) -> "Listed":
        """Only the rows that keep picks: (n,) bool, (m,) int64 or a slice."""
        return Listed(self.ids[keep], self.logprobs[keep], self.actual[keep], self.floor[keep])


def _tensor(columns: "Sequence[array[float]] | Sequence[array[int]]", dtype: torch.dtype) -> Tensor:
    """Lay flat columns end to end; one copy, no Python loop over values."""
    joined = bytearray().join(columns)
    return torch.frombuffer(joined, dtype=dtype) if joined else torch.empty(0, dtype=dtype)


def listed(distributions: Sequence[Distribution]) -> Listed:
    """Stack distributions of one width under each other. Raises ValueError when their k differ."""
    widths = {distribution.width for distribution in distributions}
    if len(widths) > 1:
        raise ValueError(f"distributions of different k cannot be stacked: widths {sorted(widths)}")
    width = widths.pop() if widths else 1
    return Listed(
        ids=_tensor([d.ids for d in distributions], torch.int64).view(-1, width),
        logprobs=_tensor([d.logprobs for d in distributions], torch.float64).view(-1, width),
        actual=_tensor([d.actual for d in distributions], torch.float64),
        floor=_tensor([d.floor for d in distributions], torch.float64),
    )


def tail_mass(masses: Tensor) -> Tensor:
    """Probability outside the listed tokens: (n,). masses: (n, w), of those that are listed."""
    return (1.0 - masses.sum(1)).clamp(min=0.0)


def positions_of(one: Distribution) -> Tensor:
    """Index in the sequence of each position: (n,) int64."""
    return torch.tensor(one.positions.tolist(), dtype=torch.int64)


def usable(one: Distribution, *, first: int) -> Tensor:
    """Which positions count: from index `first` on, and free of corruption marks: (n,) bool."""
    keep = positions_of(one) >= first
    for mark in one.marks:
        keep[mark.row] = False
    return keep
