"""Do both servers name the same most probable token?"""

import torch
from torch import Tensor

from quantwatch.measure.listed import Listed


def same_top(baseline: Listed, node: Listed) -> Tensor:
    """True where the most probable tokens agree: (n,) bool.

    16-bit logits tie often, and then the order of the list is arbitrary. So all tokens that reach the maximum count as
    top, and the sides agree when they have one in common.
    """
    top_p, top_q = _tops(baseline), _tops(node)
    same = (baseline.ids.unsqueeze(2) == node.ids.unsqueeze(1)) & top_p.unsqueeze(2) & top_q.unsqueeze(1)
    return same.flatten(1).any(1)


def _tops(side: Listed) -> Tensor:
    values = side.logprobs.masked_fill(~side.held, -torch.inf)
    return side.held & (values == values.amax(1, keepdim=True))
