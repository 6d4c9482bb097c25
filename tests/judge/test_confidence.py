"""How sure each of many intervals must be."""

import math
import random

import pytest

from quantwatch.flow.verdict import Finding, Interval, Limit, Metric, Quality, Verdict
from quantwatch.judge.confidence import critical_limits, draw_sizes, enlarged, interval_level


def test_one_test_at_one_look_spends_the_whole_error_on_its_one_side() -> None:
    assert interval_level(0.95, tests=1) == pytest.approx(0.90)


def test_the_error_is_shared_among_tests_and_looks() -> None:
    assert interval_level(0.95, tests=8 * 3, looks=3) == pytest.approx(1 - 2 * 0.05 / 72)


def test_without_any_limit_the_level_is_that_of_one() -> None:
    assert interval_level(0.95, tests=0, looks=0) == interval_level(0.95, tests=1)


def test_a_healthy_target_breaches_no_more_often_than_stated() -> None:
    """Normal test statistics at the limit itself, equal for all looks of a test, independent between tests."""
    rng, rounds, tests = random.Random(5), 4000, 12
    level = interval_level(0.9, tests=tests)
    edge = -_normal_quantile((1 - level) / 2)
    breached = sum(any(rng.gauss(0, 1) > edge for _ in range(tests)) for _ in range(rounds)) / rounds
    assert 0.08 < breached < 0.115  # 1 - (1 - 0.1/12)**12 = 0.0955


def _normal_quantile(p: float) -> float:
    low, high = -10.0, 10.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if 0.5 * math.erfc(-middle / math.sqrt(2)) < p else (low, middle)
    return low


def test_only_critical_limits_can_be_breached() -> None:
    assert critical_limits({Metric.KL_MEAN: Limit(0.1, 0.2), Metric.KL_P99: Limit(0.1, None)}) == 1


@pytest.mark.parametrize(
    ("draw", "at_most", "sizes"),
    [(24, 96, (24, 48, 96)), (24, 24, (24,)), (24, 10, (24,)), (24, 60, (24, 48, 60)), (2, 7, (2, 4, 7))],
)
def test_draws_double_up_to_the_most_allowed(draw: int, at_most: int, sizes: tuple[int, ...]) -> None:
    assert draw_sizes(draw, at_most) == sizes


def undecided(*needed: int | None, quality: Quality = Quality.INCONCLUSIVE) -> Verdict:
    found = tuple(
        Finding(Metric.KL_MEAN, Quality.INCONCLUSIVE, 0.06, Interval(0.0, 0.1), Limit(0.01, 0.05), "", needed=one)
        for one in needed
    )
    return Verdict(quality, ("",), found)


@pytest.mark.parametrize(
    ("verdict", "now", "size"),
    [
        (undecided(30), 24, 48),
        (undecided(48), 24, 48),
        (undecided(49), 24, 96),
        (undecided(97), 24, None),
        (undecided(200, 40), 24, 48),
        (undecided(None), 24, None),
        (undecided(), 24, None),
        (undecided(30), 48, 96),
        (undecided(30), 96, None),
        (undecided(30, quality=Quality.DEGRADED), 24, None),
        (undecided(30, quality=Quality.UNKNOWN), 24, None),
    ],
)
def test_a_draw_is_enlarged_where_that_can_decide(verdict: Verdict, now: int, size: int | None) -> None:
    assert enlarged((24, 48, 96), verdict, now=now) == size
