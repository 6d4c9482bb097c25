"""Confidence intervals with the prompt as the unit of observation.

Tokens of one prompt are not independent, so errors over tokens are too small. Intervals here are two-sided.
"""

import functools
import math

import torch
from torch import Tensor

from quantwatch.flow.divergence import Estimate
from quantwatch.flow.verdict import Interval

MIN_PROMPTS_FOR_TAIL = 50
"""Under this many prompts no interval for a 99th percentile is honest."""

RESAMPLES = 2000
RESAMPLE_CHUNK = 100


def student_cdf(t: float, dof: int) -> float:
    """P(T <= t) for Student's t with whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    if dof < 1:
        raise ValueError(f"degrees of freedom must be 1 or more, got {dof}")
    theta = math.atan(t / math.sqrt(dof))
    cos2 = math.cos(theta) ** 2
    term = total = 1.0 if dof % 2 == 0 else math.cos(theta)
    for j in range(2 if dof % 2 == 0 else 3, dof - 1, 2):
        term *= (j - 1) / j * cos2
        total += term
    if dof % 2 == 0:
        return 0.5 + 0.5 * math.sin(theta) * total
    inner = theta if dof == 1 else theta + math.sin(theta) * total
    return 0.5 + inner / math.pi


@functools.cache
def student_quantile(level: float, dof: int) -> float:
    """Return the t with P(|T| <= t) = level, by bisection on the exact distribution."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be within 0..1, got {level}")
    target, low, high = 0.5 + level / 2, 0.0, 1.0
    while student_cdf(high, dof) < target:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, dof) < target else (low, middle)
    return high


def clustered_mean(values: Tensor, clusters: Tensor, *, level: float = 0.95) -> Estimate:
    """Mean over positions with an interval over prompts.

    values: (n,) float64. clusters: (n,) int64, which draw each position belongs to. The mean over positions is a ratio
    of two sums over prompts; its variance is the linearised one, m/(m-1) * sum_i (S_i - mean * N_i)^2 / N^2 over m
    prompts with sums S_i and sizes N_i (Cochran, Sampling Techniques, section 6), and t has m - 1 degrees of freedom.
    """
    if len(values) == 0:
        return Estimate(math.nan)
    index = torch.unique(clusters, return_inverse=True)[1]
    m = int(index.max()) + 1
    mean = values.mean()
    if m < 2:
        return Estimate(float(mean))
    residuals = torch.zeros(m, dtype=values.dtype).index_add_(0, index, values - mean)
    error = math.sqrt(m / (m - 1) * float((residuals**2).sum())) / len(values)
    half = student_quantile(level, m - 1) * error
    return Estimate(float(mean), Interval(float(mean) - half, float(mean) + half, level))


def quantile(values: Tensor, share: float) -> float:
    """Smallest value that at least `share` of the positions do not exceed (inverse empirical distribution)."""
    if len(values) == 0:
        return math.nan
    rank = max(math.ceil(share * len(values) - 1e-9), 1)
    return float(values.kthvalue(rank).values)


def clustered_quantile(values: Tensor, clusters: Tensor, share: float, *, level: float = 0.95) -> Estimate:
    """Quantile over positions with a percentile bootstrap over prompts, none under MIN_PROMPTS_FOR_TAIL prompts.

    values: (n,) float64. clusters: (n,) int64. Prompts are drawn with replacement, all positions of a prompt together;
    the seed is fixed, so equal input gives an equal interval.
    """
    point = quantile(values, share)
    index = torch.unique(clusters, return_inverse=True)[1]
    m = int(index.max()) + 1 if len(values) else 0
    if m < MIN_PROMPTS_FOR_TAIL:
        return Estimate(point)
    ordered, order = values.sort()
    owner = index[order]
    generator = torch.Generator().manual_seed(0)
    draws = torch.cat([_resampled(ordered, owner, m, share, generator) for _ in range(RESAMPLES // RESAMPLE_CHUNK)])
    edges = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = torch.quantile(draws, edges).tolist()
    return Estimate(point, Interval(low, high, level))


def exponential(estimate: Estimate) -> Estimate:
    """Exponentiate a mean log ratio and its interval; what a float cannot hold is infinite."""
    interval = estimate.interval
    if interval is not None:
        interval = Interval(_exp(interval.low), _exp(interval.high), interval.level)
    return Estimate(_exp(estimate.value), interval)


def _exp(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float64).exp())


def share(estimate: Estimate) -> Estimate:
    """Keep the interval of a share within 0..1."""
    interval = estimate.interval
    if interval is not None:
        interval = Interval(max(interval.low, 0.0), min(interval.high, 1.0), interval.level)
    return Estimate(estimate.value, interval)


def _resampled(ordered: Tensor, owner: Tensor, m: int, share: float, generator: torch.Generator) -> Tensor:
    picks = torch.randint(m, (RESAMPLE_CHUNK, m), generator=generator)
    counts = torch.zeros(RESAMPLE_CHUNK, m, dtype=torch.float64).scatter_add_(
        1, picks, torch.ones(RESAMPLE_CHUNK, m, dtype=torch.float64)
    )
    total = counts @ torch.bincount(owner, minlength=m).double()
    target = (total * share).clamp(min=0.5) - 1e-9
    return ordered[_first_reached(counts, owner, total, target)]


def _first_reached(counts: Tensor, owner: Tensor, total: Tensor, target: Tensor) -> Tensor:
    """Index of the lowest value that the target is reached with, in each draw.

    counts: (draws, m) how often a prompt was drawn. owner: (n,) prompt of each value, values ascending. total, target:
    (draws,). Quantiles of interest are high, so the search goes from the top and takes in more only where it must.
    """
    n = len(owner)
    taken = min(n, 64 + int(1.5 * n * float((1 - target / total).mean())))
    while True:
        above = counts[:, owner[n - taken :].flip(0)].cumsum(1)  # weight of the highest 1, 2, ... values
        left = total.unsqueeze(1) - above  # weight of all lower ones
        if taken == n or bool((left[:, -1] < target).all()):
            return n - 1 - (left >= target.unsqueeze(1)).sum(1)
        taken = min(n, taken * 4)
