"""Lower bounds on the full-vocabulary KL divergence from two top-k lists."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quantwatch.flow.distribution import NO_ID
from quantwatch.measure.listed import Listed

FLOAT32 = 2.0**-24
"""Relative rounding of a number that a server computed or printed as float32."""

FLOAT64 = 2.0**-53
"""Relative rounding of a float64."""

ABSOLUTE = 32.0
"""Roundings that a log-softmax adds up, besides the one of its result: a nearly certain token prints exactly 0."""

CHUNK = 2**21
"""Comparisons of two ids at a time: bounds the (positions, w, v) comparison to a few MB."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What both sides list at n positions.

    p, q: (n, w) float64 log-probabilities of the baseline's columns and the node's values for the same tokens.
    both: (n, w) bool, where the node lists the baseline's token too; elsewhere q is 0 and must not be read.
    node_both: (n, v) bool, which of the node's v columns hold a token that the baseline lists too.
    """

    p: Tensor
    q: Tensor
    both: Tensor
    node_both: Tensor

    def rows(self, keep: Tensor | slice) -> "Shared":
        """Only the rows that keep picks."""
        return Shared(self.p[keep], self.q[keep], self.both[keep], self.node_both[keep])


def align(baseline: Listed, node: Listed) -> Shared:
    """Match tokens by id, never by rank or text; the lists may be of different width.

    Raises ValueError when the numbers of positions differ.
    """
    if len(baseline.ids) != len(node.ids):
        raise ValueError(f"numbers of positions differ: {len(baseline.ids)} against {len(node.ids)}")
    size = max(CHUNK // (baseline.ids.shape[1] * node.ids.shape[1]), 1)
    parts = [
        _align(baseline.ids[i : i + size], node.ids[i : i + size], node.logprobs[i : i + size])
        for i in range(0, max(len(baseline.ids), 1), size)
    ]
    both, q, node_both = (torch.cat(column) for column in zip(*parts, strict=True))
    return Shared(p=baseline.logprobs, q=q, both=both, node_both=node_both)


def _align(ids_p: Tensor, ids_q: Tensor, logprobs_q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which of the baseline's columns the node lists too, the node's values there, and which of the node's columns."""
    n, v = ids_q.shape
    columns = torch.arange(1, v + 1, dtype=torch.uint8 if v < 256 else torch.int32)
    column = ((ids_p.unsqueeze(2) == ids_q.unsqueeze(1)) * columns).amax(2).long() * (ids_p != NO_ID)
    q = torch.cat([logprobs_q.new_zeros(n, 1), logprobs_q], 1).gather(1, column)
    node_both = torch.zeros(n, v + 1, dtype=torch.bool).scatter_(1, column, value=True)
    return column > 0, q, node_both[:, 1:]


def bucket(shared: Shared, *, rounding: float = FLOAT32) -> Tensor:
    """Lower bound on KL(P||Q) in nats at each position: (n,) float64, never negative.

    Tokens that both sides list are compared one by one; all others share one cell:
        sum_I p log(p/q) + r log(r/s),  r = 1 - P(I),  s = 1 - Q(I),  I = tokens that both sides list.
    Merging cells cannot raise a divergence (log-sum inequality; Cover and Thomas, Elements of Information Theory,
    section 2.7), so the truth over the whole vocabulary is never below. A token of rank > k that both sides list
    because it is the sequence's own belongs to I: its probabilities are known, so its cell may stand alone.

    r and s are differences of rounded numbers. s is rounded up, and within its rounding r is taken where the tail
    term is smallest, so rounding loosens the bound and never breaks it. rounding: unit roundoff of the inputs; each may
    be off by rounding x (its size + ABSOLUTE).
    """
    p = shared.p.exp() * shared.both
    q = shared.q.exp() * shared.both
    seen = (p * (shared.p - shared.q)).sum(1)
    rest_p, slack_p = rest(p, shared.p, rounding=rounding)
    rest_q, slack_q = rest(q, shared.q, rounding=rounding)
    return (seen + _tail(rest_p, slack_p, (rest_q + slack_q).clamp(min=FLOAT64))).clamp(min=0.0)


def rest(mass: Tensor, logprobs: Tensor, *, rounding: float) -> tuple[Tensor, Tensor]:
    """Probability that listed tokens leave, and how far rounding can have moved it: each (n,) float64.

    mass, logprobs: (n, w); mass is exp(logprobs) where a column counts, else 0.
    """
    slack = (mass * (logprobs.abs() + ABSOLUTE)).sum(1) * rounding + mass.shape[1] * FLOAT64
    return (1.0 - mass.sum(1)).clamp(min=0.0), slack


def _tail(rest_p: Tensor, slack_p: Tensor, rest_q: Tensor) -> Tensor:
    """Min of r log(r / rest_q) over r within rounding; the function of r has its minimum at rest_q / e."""
    low = (rest_p - slack_p).clamp(min=0.0)
    r = torch.minimum(torch.maximum(rest_q / torch.e, low), rest_p + slack_p)
    return torch.xlogy(r, r / rest_q)
