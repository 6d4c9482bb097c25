"""Confidence intervals with the prompt as the unit of observation.

Tokens of one prompt are not independent, so errors over tokens are too small. Intervals here are two-sided.
"""

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


def _resampled(ordered: Tensor, owner: Tensor, m: int, share: float, generator: torch.Generator) -> Tensor:
    picks = torch.randint(m, (RESAMPLE_CHUNK, m), generator=generator)
    counts = torch.zeros(RESAMPLE_CHUNK, m, dtype=torch.float64).scatter_add_(
        1, picks, torch.ones(RESAMPLE_CHUNK, m, dtype=torch.float64)
    )
    reached = counts[:, owner].cumsum(1)
    target = (reached[:, -1:] * share).clamp(min=0.5)
    return ordered[(reached < target - 1e-9).sum(1)]
