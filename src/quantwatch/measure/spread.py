"""How the KL of single positions is spread, for a histogram that outlives the run."""

import math

import torch
from torch import Tensor

from quantwatch.flow.divergence import KL_BOUNDS, Spread


def spread(kl: Tensor) -> Spread:
    """Put positions into the cells of KL_BOUNDS. kl: (n,) float64, in nats, no NaN."""
    cells = torch.bucketize(kl, torch.tensor(KL_BOUNDS, dtype=kl.dtype))
    number = len(KL_BOUNDS) + 1
    counts = torch.bincount(cells, minlength=number).tolist()
    largest = torch.full((number,), -math.inf, dtype=kl.dtype).scatter_reduce(0, cells, kl, "amax").tolist()
    held = (most if count else math.nan for count, most in zip(counts, largest, strict=True))
    return Spread(tuple(counts), tuple(held), float(kl.sum()))
