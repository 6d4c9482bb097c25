"""The sharpest lower bounds on KL(P||Q) that two top-k lists allow."""

import torch
from torch import Tensor

from quantwatch.measure.dual import Unknown, dual, solve
from quantwatch.measure.kl import ABSOLUTE, FLOAT32, FLOAT64, Shared, bucket, rest
from quantwatch.measure.listed import Listed

CHUNK = 2048
"""Positions at a time, so that the tensors in work stay in the cache."""


def sharp(baseline: Listed, node: Listed, shared: Shared, *, rounding: float = FLOAT32) -> Tensor:
    """Best lower bound on KL(P||Q) in nats at each position: (n,) float64, never negative.

    The least divergence of all pairs of distributions that have these lists. A token of one list only may have anything
    up to the other side's rank-k value: Listed.floor, never the least value of a list, since the sequence's own token
    stands beyond rank k. All further tokens share what is left. Where no such cap binds this is `bucket`; elsewhere it
    is the value of a convex problem, taken from its Lagrangian dual, which is a bound at any multipliers (`dual`). So
    an inexact solver only loosens it. The lists may be of different width; a cap that is not finite is no cap.

    shared: what `align` says of the two. rounding: as in `bucket`; caps are rounded up too.
    """
    spans = [slice(start, start + CHUNK) for start in range(0, max(len(baseline.ids), 1), CHUNK)]
    return torch.cat([_sharp(baseline.rows(one), node.rows(one), shared.rows(one), rounding) for one in spans])


def exact_ids(p: Tensor, q: Tensor, held: Tensor, *, rounding: float = FLOAT32) -> Tensor:
    """Lower bound on KL(P||Q) in nats where the node was asked for the baseline's own ids: (n,) float64.

    p, q: (n, w) log-probabilities of the same tokens. held: (n, w) bool, which columns count. By the chain rule the
    truth is higher by exactly the baseline's tail mass times the divergence of the two conditional tails. rounding: as
    in `bucket`.
    """
    return bucket(Shared(p.masked_fill(~held, 0.0), q.masked_fill(~held, 0.0), held, held), rounding=rounding)


def unknown(baseline: Listed, node: Listed, shared: Shared, *, rounding: float = FLOAT32) -> Unknown:
    """What the lists leave open, with rounding allowed for: the problem behind `sharp`."""
    p, q = baseline.masses, node.masses
    rest_p, slack_p = rest(p, baseline.logprobs, rounding=rounding)
    rest_q, slack_q = rest(q, node.logprobs, rounding=rounding)
    return Unknown(
        seen=(p * shared.both * (shared.p - shared.q)).sum(1),
        p=p * ~shared.both,
        log_p=baseline.logprobs,
        q=q * ~shared.node_both,
        log_q=node.logprobs,
        log_cap_p=_cap(baseline.floor, rounding),
        log_cap_q=_cap(node.floor, rounding),
        rest_p=rest_p,
        slack_p=slack_p,
        rest_q=(rest_q + slack_q).clamp(min=FLOAT64),
    )


def _cap(floor: Tensor, rounding: float) -> Tensor:
    raised = floor + rounding * (floor.abs() + ABSOLUTE)
    return torch.where(raised.isfinite(), raised, 0.0).clamp(max=0.0)


def _sharp(baseline: Listed, node: Listed, shared: Shared, rounding: float) -> Tensor:
    value = bucket(shared, rounding=rounding)
    open_ = unknown(baseline, node, shared, rounding=rounding)
    rows = _capped(open_).nonzero().squeeze(1)
    if len(rows):
        open_ = open_.rows(rows)
        value[rows] = torch.maximum(value[rows], dual(open_, solve(open_)))
    return value


def _capped(open_: Unknown) -> Tensor:
    """Where the bucket's one ratio of p to q puts some token over its cap: (n,) bool."""
    ratio = (open_.rest_p + open_.p.sum(1)) / (open_.rest_q + open_.q.sum(1))
    return (open_.p.amax(1) > ratio * open_.cap_q) | (ratio * open_.q.amax(1) > open_.cap_p)
