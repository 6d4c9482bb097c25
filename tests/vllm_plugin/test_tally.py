"""What counts as a broken row, and as one that runs away, in logits as a sampler sees them."""

import torch

from quantwatch.vllm_plugin.counts import Counts
from quantwatch.vllm_plugin.tally import MEMORY, WARM, Bounds, Tally

INF, NAN = torch.inf, torch.nan


def counted(*steps: list[list[float]], bounds: Bounds | None = None) -> Counts:
    tally = Tally(bounds)
    for step in steps:
        tally.look(torch.tensor(step))
    return tally.counts()


def test_healthy_rows_are_counted_and_no_more() -> None:
    assert counted([[1.0, -2.0], [3.0, 4.0]], [[5.0, 1.0]]) == Counts(rows=3, broken=0, runaway=0, magnitude=5.0)


def test_a_row_with_one_nan_is_broken() -> None:
    assert counted([[1.0, NAN, 2.0], [1.0, 2.0, 3.0]]) == Counts(2, 1, 0, 3.0)


def test_positive_infinity_is_broken() -> None:
    assert counted([[1.0, INF]]).broken == 1


def test_tokens_that_are_ruled_out_are_no_fault() -> None:
    assert counted([[-INF, 2.0, -INF]]) == Counts(1, 0, 0, 2.0)


def test_a_row_of_which_nothing_is_left_is_broken() -> None:
    assert counted([[-INF, -INF]]) == Counts(1, 1, 0, 0.0)


def test_nan_beside_infinity_is_one_broken_row() -> None:
    assert counted([[NAN, INF, -INF]]).broken == 1


def test_a_row_from_the_absolute_limit_on_runs_away() -> None:
    assert counted([[999.0, 0.0]]).runaway == 0
    assert counted([[1000.0, 0.0], [1.0, 2.0]]).runaway == 1


def test_a_row_that_runs_away_downwards_as_a_whole_is_seen() -> None:
    assert counted([[-2000.0, -3000.0]]).runaway == 1


def test_a_broken_row_does_not_run_away_as_well() -> None:
    assert counted([[INF, 5000.0]]) == Counts(1, 1, 0, 0.0)


def test_many_times_the_usual_magnitude_runs_away_once_something_is_usual() -> None:
    calm = [[[50.0, 1.0]]] * WARM
    assert counted(*calm[1:], [[500.0, 0.0]]).runaway == 0
    assert counted(*calm, [[399.0, 0.0]]).runaway == 0
    assert counted(*calm, [[400.0, 0.0]]).runaway == 1


def test_a_bias_on_small_logits_does_not_run_away() -> None:
    """A user may add 100 to a logit, which is many times what a small one has."""
    assert counted(*[[[2.0, 1.0]]] * 20, [[102.0, 0.0]], [[249.0, 0.0]]).runaway == 0


def test_steps_that_run_away_do_not_become_usual() -> None:
    assert counted(*[[[50.0, 1.0]]] * WARM, *[[[900.0, 0.0]]] * 100).runaway == 100


def test_the_usual_magnitude_follows_slow_change() -> None:
    slowly = [[[50.0 + step, 1.0]] for step in range(4 * MEMORY)]
    assert counted(*slowly, [[1.2 * (50.0 + len(slowly)), 0.0]]).runaway == 0


def test_a_step_without_a_finite_row_changes_nothing_that_is_usual() -> None:
    assert counted(*[[[50.0, 1.0]]] * WARM, *[[[NAN, 1.0]]] * 50, [[400.0, 0.0]]) == Counts(WARM + 51, 50, 1, 400.0)


def test_an_empty_step_is_none() -> None:
    tally = Tally()
    tally.look(torch.empty(0, 10))
    assert tally.counts() == Counts()


def test_logits_stay_as_they_are() -> None:
    logits = torch.tensor([[NAN, 1.0], [INF, -INF], [5000.0, 2.0]])
    before = logits.clone()
    Tally().look(logits)
    assert torch.equal(logits.nan_to_num(7.0), before.nan_to_num(7.0))


def test_half_precision_is_counted_too() -> None:
    tally = Tally()
    tally.look(torch.tensor([[60000.0, 1.0]], dtype=torch.bfloat16))
    assert (tally.counts().runaway, tally.counts().rows) == (1, 1)
