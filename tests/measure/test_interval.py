"""Intervals over prompts: against SciPy, by hand, and by how often they hold the truth."""

import math

import pytest
import torch
from scipy import stats

from quantwatch.measure.interval import (
    MIN_PROMPTS_FOR_TAIL,
    clustered_mean,
    clustered_quantile,
    quantile,
    student_cdf,
    student_quantile,
)


@pytest.mark.parametrize("dof", [1, 2, 3, 4, 5, 7, 10, 23, 47, 200, 999])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_quantile_of_students_t_is_scipys(dof: int, level: float) -> None:
    assert student_quantile(level, dof) == pytest.approx(stats.t.ppf(0.5 + level / 2, dof), rel=1e-9)


@pytest.mark.parametrize("t", [-3.0, -0.5, 0.0, 1.3, 12.0])
@pytest.mark.parametrize("dof", [1, 2, 3, 8, 9])
def test_distribution_of_students_t_is_scipys(t: float, dof: int) -> None:
    assert student_cdf(t, dof) == pytest.approx(stats.t.cdf(t, dof), abs=1e-12)


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0])
def test_impossible_levels_are_refused(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        student_quantile(level, 5)


def test_no_degrees_of_freedom_are_refused() -> None:
    with pytest.raises(ValueError, match="degrees of freedom"):
        student_cdf(1.0, 0)


def test_with_one_position_a_prompt_it_is_the_ordinary_t_interval() -> None:
    values = torch.tensor([0.1, 0.4, 0.2, 0.9, 0.3], dtype=torch.float64)
    expected = stats.t.interval(0.95, 4, loc=values.mean(), scale=stats.sem(values.numpy()))

    got = clustered_mean(values, torch.arange(5))

    assert got.interval is not None
    assert (got.interval.low, got.interval.high) == pytest.approx(expected)


def test_prompts_of_unequal_length_by_hand() -> None:
    """Sums 1 and 8 over sizes 1 and 4, mean 1.8: residual sums -.8 and .8, error sqrt(2 * 1.28) / 5."""
    values = torch.tensor([1.0, 2, 2, 2, 2], dtype=torch.float64)

    got = clustered_mean(values, torch.tensor([0, 1, 1, 1, 1]))

    assert got.value == pytest.approx(1.8)
    assert got.interval is not None
    assert got.interval.high - got.value == pytest.approx(12.7062 * math.sqrt(2 * 1.28) / 5, rel=1e-4)


def test_repeating_a_prompts_positions_does_not_narrow_the_interval() -> None:
    """Tokens of a prompt are no independent observations."""
    values, clusters = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), torch.arange(12)

    once = clustered_mean(values, clusters).interval
    tenfold = clustered_mean(values.repeat_interleave(10), clusters.repeat_interleave(10)).interval

    assert once == tenfold or (once is not None and tenfold is not None and once.low == pytest.approx(tenfold.low))


def test_one_prompt_has_no_interval_and_none_has_no_value() -> None:
    assert clustered_mean(torch.rand(5).double(), torch.zeros(5, dtype=torch.int64)).interval is None
    assert math.isnan(clustered_mean(torch.empty(0).double(), torch.empty(0, dtype=torch.int64)).value)


def misses(spread: float, *, draws: int = 400) -> tuple[float, float]:
    """How often the interval of 24 prompts lies wholly under, and wholly over, the true mean.

    Prompts are log-normal with this spread, 20 positions each, correlated within the prompt.
    """
    generator = torch.Generator().manual_seed(3)
    under = over = 0
    for _ in range(draws):
        prompts = (spread * torch.randn(24, 1, generator=generator, dtype=torch.float64)).exp()
        values = prompts * torch.rand(24, 20, generator=generator, dtype=torch.float64) * 2
        interval = clustered_mean(values.flatten(), torch.arange(24).repeat_interleave(20)).interval
        assert interval is not None
        truth = math.exp(spread**2 / 2)
        under += interval.high < truth
        over += interval.low > truth
    return under / draws, over / draws


def test_the_interval_holds_the_true_mean_about_as_often_as_it_says() -> None:
    under, over = misses(0.4)

    assert 0.03 <= under + over <= 0.09


def test_heavy_tails_make_the_interval_err_to_the_nodes_favour() -> None:
    """A long right tail makes it too narrow above, never below: no false breach comes of it."""
    under, over = misses(1.0)

    assert under > 0.05
    assert over <= 0.025


def test_quantile_is_the_smallest_value_that_enough_positions_do_not_exceed() -> None:
    values = torch.arange(1, 101, dtype=torch.float64)

    assert quantile(values, 0.99) == 99
    assert quantile(values, 0.991) == 100
    assert quantile(values[:1], 0.99) == 1
    assert math.isnan(quantile(values[:0], 0.99))


def test_a_tail_has_no_interval_under_fifty_prompts() -> None:
    values = torch.rand(490, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    assert clustered_quantile(values, torch.arange(49).repeat_interleave(10), 0.99).interval is None


def test_the_interval_of_a_tail_holds_its_value_and_is_repeatable() -> None:
    values = torch.randn(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).exp()
    clusters = torch.arange(MIN_PROMPTS_FOR_TAIL).repeat_interleave(20)

    first, second = clustered_quantile(values, clusters, 0.99), clustered_quantile(values, clusters, 0.99)

    assert first == second
    assert first.interval is not None
    assert first.interval.low < first.value < first.interval.high
    assert first.value == quantile(values, 0.99)


def test_the_interval_of_a_tail_agrees_with_a_bootstrap_written_out() -> None:
    """One position a prompt: resampling prompts is resampling values."""
    values = torch.randn(60, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).exp()
    generator = torch.Generator().manual_seed(9)
    picks = torch.randint(60, (4000, 60), generator=generator)
    plain = torch.tensor([quantile(values[pick], 0.9) for pick in picks], dtype=torch.float64)
    low, high = torch.quantile(plain, torch.tensor([0.025, 0.975]).double()).tolist()

    got = clustered_quantile(values, torch.arange(60), 0.9).interval

    assert got is not None
    assert (got.low, got.high) == pytest.approx((low, high), rel=0.1)


def test_the_tail_is_found_where_a_draw_misses_the_prompt_that_holds_it() -> None:
    """One prompt holds the highest 5,000 of 5,590 values, and 37 % of the draws are without it."""
    few = torch.rand(590, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    many = 10 + torch.rand(5000, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    clusters = torch.cat([torch.arange(59).repeat_interleave(10), torch.full((5000,), 59)])

    got = clustered_quantile(torch.cat([few, many]), clusters, 0.99).interval

    assert got is not None
    assert 0.95 < got.low <= 1
    assert 10 < got.high < 11
