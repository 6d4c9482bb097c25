"""Total variation distance and entropy, as far as two top-k lists tell."""

import torch
from torch import Tensor

from quantwatch.measure.bounds import unknown
from quantwatch.measure.dual import Unknown
from quantwatch.measure.kl import FLOAT32, Shared, rest
from quantwatch.measure.listed import Listed, tail_mass


def total_variation(
    baseline: Listed, node: Listed, shared: Shared, *, rounding: float = FLOAT32
) -> tuple[Tensor, Tensor]:
    """Interval that holds the total variation distance of P and Q at each position: low and high, each (n,) float64.

    The distance is 1 - sum min(p, q), within 0..1 (Levin and Peres, Markov Chains and Mixing Times, section 4.1).
    Shared tokens add what they add. At most, a token of one list only adds the lesser of its probability and the other
    side's rank-k value, and the rests add what both sides have left: that is the low end. At least, all of these add
    nothing, since both sides may put their rests on different tokens: the high end. Both ends allow for rounding, as in
    `bucket`.
    """
    least = torch.minimum(shared.p, shared.q)
    apart, slack = rest(least.exp() * shared.both, least, rounding=rounding)
    open_ = unknown(baseline, node, shared, rounding=rounding)
    low = apart - slack - _most_in_common(open_, rounding)
    return low.clamp(min=0.0), (apart + slack).clamp(max=1.0)


def _most_in_common(open_: Unknown, rounding: float) -> Tensor:
    """The most that sum min(p, q) can be outside the shared tokens: (n,)."""
    _, slack_q = rest(open_.q, open_.log_q, rounding=rounding)
    on_p = torch.minimum(open_.p, open_.cap_q.unsqueeze(1)).sum(1) + open_.slack_p
    on_q = torch.minimum(open_.q, open_.cap_p.unsqueeze(1)).sum(1) + slack_q
    on_p, on_q = torch.minimum(on_p, open_.rest_q), torch.minimum(on_q, open_.most_p)
    return on_p + on_q + torch.minimum(open_.rest_q - on_p, open_.most_p - on_q)


def entropy(side: Listed) -> Tensor:
    """Entropy in nats of the listed tokens and one cell for all others: (n,) float64.

    A lower bound of the entropy over the whole vocabulary, since merging cells cannot raise it (Cover and Thomas,
    section 2.5), but for the rounding of what the server printed.
    """
    masses = side.masses
    tail = tail_mass(masses)
    return (-(masses * side.logprobs).sum(1) - torch.xlogy(tail, tail)).clamp(min=0.0)
