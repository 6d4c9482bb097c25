"""Quantiles with distribution-free intervals, held against scipy's binomial and beta distributions."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from quantwatch.flow.acceptance import Timed, least_requests
from quantwatch.measure.latency import (
    binomial_cdf,
    histogram,
    latency,
    order_ranks,
    order_statistic,
    quantile_interval,
    share_interval,
)

SIZES = st.integers(1, 3000)
SHARES = st.sampled_from([0.5, 0.9, 0.95, 0.99])
LEVELS = st.sampled_from([0.9, 0.95, 0.975])


@given(SIZES, SHARES, LEVELS)
def test_the_ranks_are_the_tightest_that_the_binomial_allows(n: int, share: float, level: float) -> None:
    low, high = order_ranks(n, share, level=level)
    tail, below = (1 - level) / 2, binom(n, share)

    if low is not None:
        assert below.cdf(low - 1) <= tail + 1e-9
    assert below.cdf(low or 0) > tail - 1e-9, "one rank more would be too many"
    if high is None:
        assert below.sf(n - 1) > tail - 1e-9
    else:
        assert below.sf(high - 1) <= tail + 1e-9
        assert high == 1 or below.sf(high - 2) > tail - 1e-9, "one rank less would be too few"


def test_a_bad_tail_is_covered_as_often_as_stated() -> None:
    """Log-normal times, whose 99th percentile is known: the interval misses it in at most 5 % of the samples."""
    dice, truth = random.Random(7), math.exp(2.3263478740408408)
    misses = 0
    for _ in range(1000):
        found = quantile_interval(sorted(math.exp(dice.gauss(0, 1)) for _ in range(400)), 0.99, level=0.95)
        misses += not found.low <= truth <= found.high
    assert misses <= 65, "0.05 of 1000, and two standard errors of that"


@given(SHARES, LEVELS)
def test_the_least_number_is_the_first_with_an_upper_end(share: float, level: float) -> None:
    least = least_requests(share, level)
    assert order_ranks(least, share, level=level)[1] == least
    assert order_ranks(least - 1, share, level=level)[1] is None


def test_a_99th_percentile_needs_368_times_and_a_ratio_of_two_437() -> None:
    assert least_requests(0.99, 0.95) == 368
    assert least_requests(0.99, 0.975) == 437


@given(st.integers(1, 400), st.data())
def test_the_interval_of_a_share_is_that_of_clopper_and_pearson(n: int, data: st.DataObject) -> None:
    found = data.draw(st.integers(0, n))
    interval = share_interval(found, n, level=0.95)
    low = 0.0 if found == 0 else beta.ppf(0.025, found, n - found + 1)
    high = 1.0 if found == n else beta.ppf(0.975, found + 1, n - found)
    assert (interval.value, interval.low, interval.high) == pytest.approx((found / n, low, high), abs=1e-7)


def test_a_share_of_nothing_is_no_number() -> None:
    assert math.isnan(share_interval(0, 0, level=0.95).value)


@given(st.integers(1, 2000), st.floats(0.001, 0.999), st.data())
def test_the_binomial_distribution_is_scipys(n: int, p: float, data: st.DataObject) -> None:
    found = data.draw(st.integers(0, n))
    assert binomial_cdf(found, n, p) == pytest.approx(binom.cdf(found, n, p), abs=1e-9)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=300), SHARES)
def test_a_quantile_is_the_inverse_of_the_empirical_distribution(values: list[float], share: float) -> None:
    assert order_statistic(sorted(values), share) == np.quantile(values, share, method="inverted_cdf")


@given(st.lists(st.floats(1e-5, 500), min_size=1, max_size=200))
def test_a_histogram_counts_every_time_between_its_edge_and_the_one_before(times: list[float]) -> None:
    found = histogram(sorted(times))
    assert sum(count for _, count in found) == len(times)
    for edge, count in found:
        low = edge / 10**0.1
        assert count == sum(low * (1 + 1e-7) < one <= edge * (1 + 1e-7) for one in times)


def samples(*seconds: float, **failed: int) -> list[Timed]:
    return [Timed(one) for one in seconds] + [Timed(9.0, kind) for kind, count in failed.items() for _ in range(count)]


def test_requests_are_summed_up() -> None:
    found = latency(samples(*(i / 100 for i in range(1, 101))), level=0.95)
    assert (found.sent, found.completed, found.timeouts, found.errors) == (100, 100, 0, {})
    assert (found.p50, found.p90, found.p95, found.p99.value, found.maximum) == (0.5, 0.9, 0.95, 0.99, 1.0)
    assert found.mean == pytest.approx(0.505)
    assert found.p99.high == math.inf, "100 times bound no 99th percentile from above"
    assert found.p99.low == 0.97


def test_a_timeout_is_a_failure_and_a_time_and_other_failures_are_no_times() -> None:
    found = latency(samples(1.0, 2.0, timeout=1, failed=3), level=0.95)
    assert (found.sent, found.completed, found.timeouts, found.timed) == (6, 2, 1, 3)
    assert found.maximum == 9.0
    assert found.errors == {"failed": 3, "timeout": 1}
    assert found.error_share.value == pytest.approx(4 / 6)
    assert found.cut_off


def test_failures_that_say_nothing_of_the_node_leave_its_share_alone() -> None:
    found = latency(samples(1.0, 1.0, 1.0, unreachable=4, refused=1, failed=1), level=0.95)
    assert found.not_the_nodes == 5
    assert found.error_share.value == pytest.approx(1 / 4)


def test_a_load_that_failed_altogether_has_no_times() -> None:
    found = latency(samples(unreachable=3), level=0.95)
    assert found.completed == 0
    assert all(math.isnan(one) for one in (found.mean, found.p50, found.p99.value, found.maximum))
    assert math.isnan(found.error_share.value)
    assert found.histogram == ()
