"""Times of requests -> quantiles, with intervals that assume no shape of their distribution.

The interval of a quantile is one of order statistics: how many of n independent times lie under the quantile of share p
is binomial (n, p), whatever the distribution (David and Nagaraja, Order Statistics, section 7.1). The interval of a
share is that of Clopper and Pearson (1934). Both are two-sided with equal tails, and exact or wider.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from quantwatch.flow.acceptance import OURS, SHARE_LEVEL, TAIL, Bounded, Latency, Timed

TIMEOUT = "timeout"
BINS_A_DECADE = 10


def latency(samples: Sequence[Timed], *, level: float) -> Latency:
    """Sum up the load's requests of one node. level: two-sided confidence of the interval of p99."""
    failed = Counter(one.error for one in samples if one.error)
    times = sorted(one.seconds for one in samples if one.error in (None, TIMEOUT))
    ours = sum(count for kind, count in failed.items() if kind in OURS)
    return Latency(
        sent=len(samples),
        completed=len(times) - failed.get(TIMEOUT, 0),
        timeouts=failed.get(TIMEOUT, 0),
        level=level,
        mean=math.fsum(times) / len(times) if times else math.nan,
        p50=order_statistic(times, 0.5),
        p90=order_statistic(times, 0.9),
        p95=order_statistic(times, 0.95),
        p99=quantile_interval(times, TAIL, level=level),
        maximum=times[-1] if times else math.nan,
        error_share=share_interval(sum(failed.values()) - ours, len(samples) - ours, level=SHARE_LEVEL),
        errors=dict(sorted(failed.items())),
        histogram=histogram(times),
    )


def order_statistic(ordered: Sequence[float], share: float) -> float:
    """Smallest of the ascending values that at least `share` of them do not exceed; NaN for none."""
    if not ordered:
        return math.nan
    return ordered[max(math.ceil(share * len(ordered) - 1e-9), 1) - 1]


def quantile_interval(ordered: Sequence[float], share: float, *, level: float) -> Bounded:
    """A quantile of ascending values with its interval; an end for which there are too few values is infinite."""
    low, high = order_ranks(len(ordered), share, level=level)
    return Bounded(
        order_statistic(ordered, share),
        -math.inf if low is None else ordered[low - 1],
        math.inf if high is None else ordered[high - 1],
    )


def order_ranks(n: int, share: float, *, level: float) -> tuple[int | None, int | None]:
    """Ranks, counted from 1, of the values that enclose a quantile; None where no value does.

    With B ~ binomial(n, share): the largest low with P(B < low) <= (1 - level) / 2, the smallest high with
    P(B >= high) <= (1 - level) / 2. Counted from above, where the tail is short: n - B ~ binomial(n, 1 - share).
    """
    tail = (1 - level) / 2
    above = list(_at_most(n, 1 - share))
    high = min((n - j for j, known in enumerate(above[:n]) if known <= tail), default=None)
    low = next((n - j for j, known in enumerate(above[:n]) if 1 - known <= tail), None)
    return low, high


def share_interval(found: int, n: int, *, level: float) -> Bounded:
    """Share of `found` among n with the interval of Clopper and Pearson."""
    if n == 0:
        return Bounded()
    tail = (1 - level) / 2
    low = 0.0 if found == 0 else _solved(found - 1, n, 1 - tail)
    high = 1.0 if found == n else _solved(found, n, tail)
    return Bounded(found / n, low, high)


def _solved(found: int, n: int, probability: float) -> float:
    """The p with P(binomial(n, p) <= found) = probability, by bisection: that probability falls as p grows."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if binomial_cdf(found, n, middle) < probability else (middle, high)
    return high


def binomial_cdf(found: int, n: int, p: float) -> float:
    """P(binomial(n, p) <= found)."""
    return next(known for j, known in enumerate(_at_most(n, p)) if j == found)


def _at_most(n: int, p: float) -> Iterator[float]:
    """P(binomial(n, p) <= j) for j = 0, 1, ... n."""
    total = 0.0
    for j in range(n + 1):
        total = min(total + math.exp(_log_mass(j, n, p)), 1.0)
        yield total


def _log_mass(j: int, n: int, p: float) -> float:
    ways = math.lgamma(n + 1) - math.lgamma(j + 1) - math.lgamma(n - j + 1)
    return ways + j * math.log(p) + (n - j) * math.log1p(-p)


def histogram(ordered: Sequence[float]) -> tuple[tuple[float, int], ...]:
    """Upper edges in seconds and counts, ten edges a decade on a fixed grid, so that histograms can be compared."""
    steps = Counter(math.ceil(BINS_A_DECADE * math.log10(max(one, 1e-6)) - 1e-9) for one in ordered)
    return tuple((10 ** (step / BINS_A_DECADE), steps[step]) for step in sorted(steps))
