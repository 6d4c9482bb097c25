"""Do both servers name the same most probable tokens?"""

import torch
from torch import Tensor

from quantwatch.measure.kl import Shared
from quantwatch.measure.listed import Listed


def same_top(baseline: Listed, node: Listed, shared: Shared) -> Tensor:
    """True where the most probable tokens agree: (n,) bool.

    16-bit logits tie often, and then the order of the list is arbitrary. So all tokens that reach the maximum count as
    top, and the sides agree when they have one in common.
    """
    return _both_within(baseline, node, shared, k=1).any(1)


def topk_overlap(baseline: Listed, node: Listed, shared: Shared) -> Tensor:
    """Share of the top k that both sides list within their top k: (n,) float64; k is the lesser of the two sides'.

    Of a wider list only the k most probable tokens count. Tokens that tie with rank k count as within it.
    """
    k = min(baseline.k, node.k)
    return (_both_within(baseline, node, shared, k=k).sum(1).double() / k).clamp(max=1.0)


def _both_within(baseline: Listed, node: Listed, shared: Shared, *, k: int) -> Tensor:
    """Which of the baseline's columns hold a token that both sides list within rank k: (n, w) bool."""
    return shared.both & (shared.p >= _value_of(baseline, k)) & (shared.q >= _value_of(node, k))


def _value_of(side: Listed, rank: int) -> Tensor:
    """Value of this rank: (n, 1)."""
    values = side.logprobs.masked_fill(~side.held, -torch.inf)
    if rank == 1:
        return values.amax(1, keepdim=True)
    if rank == side.k:
        return side.floor.unsqueeze(1)
    return values.topk(rank, dim=1).values[:, -1:]
