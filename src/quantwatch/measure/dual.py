"""The convex problem behind the sharp bound: its Lagrangian dual and the best multipliers."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

STEPS = 60
"""Most steps of a solver. About five are needed; one that is cut short loosens the bound and never breaks it."""

SETTLED = 1e-13
"""Relative change under which a multiplier counts as found."""

TINY = 1e-300
"""Keeps multipliers positive."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """What two lists leave open at n positions; float64, with rounding allowed for.

    seen: (n,) the divergence's part on tokens that both sides list.
    p, q: (n, v) and (n, w) probabilities of tokens that only the baseline, only the node lists; 0 elsewhere.
    log_p, log_q: their logarithms; finite, and without meaning where p or q is 0.
    log_cap_p, log_cap_q: (n,) logarithms of the most that a token can have that the baseline, the node does not list.
    rest_p, slack_p: (n,) baseline probability outside its list, and how far rounding can have moved it.
    rest_q: (n,) node probability outside its list, rounded up; positive.
    """

    seen: Tensor
    p: Tensor
    log_p: Tensor
    q: Tensor
    log_q: Tensor
    log_cap_p: Tensor
    log_cap_q: Tensor
    rest_p: Tensor
    slack_p: Tensor
    rest_q: Tensor

    def rows(self, keep: Tensor) -> "Unknown":
        """Only the rows that keep, (n,) bool or (m,) int64, picks."""
        return Unknown(**{one.name: getattr(self, one.name)[keep] for one in fields(self)})

    @property
    def cap_p(self) -> Tensor:
        """The most that a token can have that the baseline does not list: (n,)."""
        return self.log_cap_p.exp()

    @property
    def cap_q(self) -> Tensor:
        """The most that a token can have that the node does not list: (n,)."""
        return self.log_cap_q.exp()

    @property
    def least_p(self) -> Tensor:
        """The baseline's rest, rounded down: (n,)."""
        return (self.rest_p - self.slack_p).clamp(min=0.0)

    @property
    def most_p(self) -> Tensor:
        """The baseline's rest, rounded up: (n,)."""
        return self.rest_p + self.slack_p


@dataclass(frozen=True, slots=True)
class Multipliers:
    """Positive ratios p/q, each (n,), of tokens under their cap.

    of_p: of tokens that only the baseline lists. of_q: of tokens that only the node lists.
    """

    of_p: Tensor
    of_q: Tensor


def dual(open_: Unknown, at: Multipliers) -> Tensor:
    """Lower bound on KL(P||Q) in nats, of any sign, at whatever positive multipliers: (n,).

    Weak duality (Boyd and Vandenberghe, Convex Optimization, section 5.2.2) for: minimise the sum of p log(p/q) over
    the q of tokens that only the baseline lists, the p of tokens that only the node lists, and the two rests, with both
    sides summing to 1. The Lagrangian is least at q = min(cap, p / at.of_p) and p = min(cap, at.of_q x q); the rests
    add nothing while at.of_q <= at.of_p, so at.of_q is lowered where it is over that. The value is linear in the
    baseline's rest, which is taken at that end of its rounding where the value is least.
    """
    of_q = torch.minimum(at.of_q, at.of_p)
    weight_p, weight_q = 1 + at.of_p.log(), 1 + of_q.log()
    full_p, full_q = _over(open_.p, at.of_p * open_.cap_q), _over(open_.q, open_.cap_p / of_q)
    excess = open_.log_p - (open_.log_cap_q + weight_p).unsqueeze(1)
    only_p = weight_p * open_.p.sum(1) + (full_p * open_.p * excess).sum(1)
    count_p, count_q = full_p.sum(1), full_q.sum(1)
    only_q = open_.cap_p * (count_q * open_.log_cap_p - (full_q * open_.log_q).sum(1))
    rest_p = torch.where(weight_q > 0, open_.least_p, open_.most_p) - count_q * open_.cap_p
    rest_q = open_.rest_q - count_p * open_.cap_q
    free_q = (open_.q - full_q * open_.q).sum(1)
    return open_.seen + only_p + only_q + weight_q * rest_p - of_q * free_q - at.of_p * rest_q


def solve(open_: Unknown, *, steps: int = STEPS) -> Multipliers:
    """Find the multipliers of the largest `dual`, in at most this many steps.

    While the least divergence leaves something to the rests, both multipliers are the rests' own ratio p/q. Where the
    tokens of one list take all that there is, each side fills its own by itself.
    """
    rest_p = _within(open_, (open_.rest_q - _given_q(open_, 1 / torch.e)) / torch.e + _given_p(open_, 1 / torch.e))
    one = _common(open_, rest_p, steps=steps)
    rows = (_given_p(open_, one) > rest_p).nonzero().squeeze(1)
    if not len(rows):
        return Multipliers(one, one)
    apart = _apart(open_.rows(rows), steps=steps)
    return Multipliers(one.index_copy(0, rows, apart.of_p), one.index_copy(0, rows, apart.of_q))


def _over(values: Tensor, limit: Tensor) -> Tensor:
    """1.0 where values, (n, w), are over their row's limit, (n,), else 0.0; arithmetic is faster than masks."""
    return torch.gt(values, limit.unsqueeze(1), out=torch.empty_like(values))


def _given_p(open_: Unknown, ratio: Tensor | float) -> Tensor:
    """What the baseline gives to tokens that only the node lists: (n,)."""
    return ratio * torch.minimum(open_.q, (open_.cap_p / ratio).unsqueeze(1)).sum(1)


def _given_q(open_: Unknown, ratio: float) -> Tensor:
    """What the node gives to tokens that only the baseline lists: (n,)."""
    return torch.minimum(open_.p, (open_.cap_q * ratio).unsqueeze(1)).sum(1) / ratio


def _within(open_: Unknown, rest_p: Tensor) -> Tensor:
    """The baseline's rest that makes the least divergence least, within its rounding: (n,).

    The slope is 1 + log(multiplier), so without rounding's limits it is the rest whose multiplier is 1/e.
    """
    return torch.minimum(torch.maximum(rest_p, open_.least_p), open_.most_p)


def _common(open_: Unknown, rest_p: Tensor, *, steps: int) -> Tensor:
    """Ratio at which p left to the rests = ratio x q left to the rests: (n,).

    The difference of the two is piecewise linear in the ratio and changes its sign once where both are positive, so
    Newton's step is exact once the capped tokens are right. A step out of the bracket becomes its geometric mean.
    """
    most_p, most_q = rest_p + open_.p.sum(1), open_.rest_q + open_.q.sum(1)
    low, high = (rest_p / most_q).clamp(min=TINY), (most_p / open_.rest_q).clamp(min=TINY)
    ratio = (most_p / most_q).clamp(min=TINY)
    for _ in range(steps):
        full_p, full_q = _over(open_.p, ratio * open_.cap_q), _over(open_.q, open_.cap_p / ratio)
        left_p = most_p - (full_p * open_.p).sum(1) - full_q.sum(1) * open_.cap_p
        left_q = most_q - (full_q * open_.q).sum(1) - full_p.sum(1) * open_.cap_q
        step = left_p / left_q
        settled = (step - ratio).abs() <= SETTLED * ratio
        if bool(settled.all()):
            break
        beyond = left_p > ratio * left_q
        low, high = torch.where(beyond, ratio, low), torch.where(beyond, high, ratio)
        inside = settled | ((step > low) & (step < high))
        ratio = torch.where(inside, step, low.sqrt() * high.sqrt())
    return ratio


def _apart(open_: Unknown, *, steps: int) -> Multipliers:
    """Each side's own multiplier, where its tokens take all its rest."""
    rest_p = _within(open_, _given_p(open_, 1 / torch.e)).clamp(min=TINY)
    of_q = 1 / _filled(open_.q, open_.cap_p, rest_p, steps=steps)
    return Multipliers(_filled(open_.p, open_.cap_q, open_.rest_q, steps=steps), of_q)


def _filled(mass: Tensor, cap: Tensor, total: Tensor, *, steps: int) -> Tensor:
    """Scale at which sum min(cap, mass / scale) = total, for mass (n, w): (n,).

    sum min(cap x scale, mass) - total x scale is concave in the scale, so Newton's steps from above never pass its
    root, and they end once the capped tokens are right.
    """
    scale = (mass.sum(1) / total).clamp(min=TINY)
    for _ in range(steps):
        full = _over(mass, scale * cap)
        room = total - full.sum(1) * cap
        step = ((mass - full * mass).sum(1) / room).clamp(min=TINY)
        step = torch.where(room > 0, step, scale)
        if bool(((step - scale).abs() <= SETTLED * scale).all()):
            break
        scale = step
    return scale
