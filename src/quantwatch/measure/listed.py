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

    def rows(self, keep: Tensor) -> "Listed":
        """Only the rows where keep, (n,) bool, is true."""
        return Listed(self.ids[keep], self.logprobs[keep], self.actual[keep], self.floor[keep])


def _tensor(columns: "Sequence[array[float]] | Sequence[array[int]]", dtype: torch.dtype) -> Tensor:
    """Lay flat columns end to end; one copy, no Python loop over values."""
    joined = b"".join(column.tobytes() for column in columns)
    if not joined:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(bytearray(joined), dtype=dtype)


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
