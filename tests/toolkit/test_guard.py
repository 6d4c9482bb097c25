"""The guard sees what breaks, and the step before; it changes nothing unless it was told to."""

import math

import pytest
import torch
from torch import Tensor

from quantwatch.toolkit.guard import WARM, Bounds, LogitGuard, LogitsBroken, Then, guarded
from support.toolkit import a_model, some_ids


def healthy(*shape: int, seed: int = 0) -> Tensor:
    return 10.0 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def a_guard(then: Then = Then.SANITIZE, *, masks: bool = False, bounds: Bounds | None = None) -> LogitGuard:
    return LogitGuard(then, masks=masks, bounds=bounds)


def test_healthy_logits_pass_untouched() -> None:
    guard, logits = a_guard(Then.RAISE), healthy(2, 3, 50)
    assert guard(logits) is logits
    assert (guard.calls, guard.rows, guard.broken_rows, guard.runaway_steps) == (1, 6, 0, 0)


def test_min_max_and_mean_of_a_step_by_hand() -> None:
    guard = a_guard()
    guard(torch.tensor([[1.0, -4.0, math.nan], [2.0, 5.0, 6.0]]))
    (step,) = guard.steps
    assert (step.least, step.most, step.mean, step.broken, step.rows) == (-4.0, 6.0, 2.0, 1, 2)
    assert step.magnitude == 6.0


def test_sanitized_logits_are_bounded_and_the_callers_are_left_alone() -> None:
    logits = torch.tensor([[1.0, math.nan, math.inf, -math.inf], [3.0, 900.0, -900.0, 0.0]])
    kept = logits.clone()
    safe = a_guard(bounds=Bounds(largest=50.0))(logits)
    assert safe.tolist() == [[1.0, -50.0, 50.0, -50.0], [3.0, 50.0, -50.0, 0.0]]
    assert torch.equal(logits.nan_to_num(7.0), kept.nan_to_num(7.0))
    assert safe.dtype == logits.dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_float_type_is_watched(dtype: torch.dtype) -> None:
    logits = torch.tensor([[1.0, math.nan]], dtype=dtype)
    assert a_guard()(logits).tolist() == [[1.0, -100.0]]


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_broken_row_raises_where_that_was_chosen(broken: float) -> None:
    guard, logits = a_guard(Then.RAISE), healthy(4, 20)
    logits[2, 7] = broken
    with pytest.raises(LogitsBroken, match="step 0: 1 of 4 rows"):
        guard(logits)
    assert guard.broken_rows == 1


def test_a_mask_is_no_fault_where_masks_are_used() -> None:
    guard, logits = a_guard(Then.RAISE, masks=True), healthy(2, 5)
    logits[0, 1] = -math.inf
    assert guard(logits) is logits
    logits[1] = -math.inf
    with pytest.raises(LogitsBroken, match="1 of 2 rows"):
        guard(logits)


def test_a_mask_stays_a_mask_beside_a_broken_number() -> None:
    safe = a_guard(masks=True)(torch.tensor([[math.nan, -math.inf, 2.0]]))
    assert safe.tolist() == [[-100.0, -math.inf, 2.0]]


def test_magnitude_over_the_absolute_limit_runs_away_at_once() -> None:
    guard = a_guard()
    assert float(guard(torch.tensor([[0.0, 1000.0]])).max()) == 100.0
    assert (guard.runaway_steps, guard.broken_rows) == (1, 0)
    guard(torch.tensor([[0.0, 999.0]]))
    assert guard.runaway_steps == 1


def test_growth_is_seen_before_anything_breaks() -> None:
    """Each step doubles: from 8 times the median on it is told, long before float16 ends."""
    guard = a_guard(bounds=Bounds(absolute=math.inf))
    for _ in range(WARM):
        guard(torch.tensor([[10.0, -3.0]]))
    grown = [10.0 * 2.0**i for i in range(1, 5)]
    for size in grown:
        guard(torch.tensor([[size, 0.0]]))
    assert [step.running_away for step in guard.steps][-4:] == [False, False, True, True]
    assert guard.broken_rows == 0


def test_a_step_that_ran_away_does_not_raise_the_limit() -> None:
    guard = a_guard()
    for size in [10.0] * WARM + [90.0] * 40:
        guard(torch.tensor([[size, 0.0]]))
    assert guard.runaway_steps == 40


def test_running_away_raises_with_its_limit() -> None:
    with pytest.raises(LogitsBroken, match=r"reach 2000, over the limit of 1000"):
        a_guard(Then.RAISE)(torch.tensor([[2000.0, 0.0]]))


def test_memory_is_bounded_and_counts_are_not() -> None:
    guard = LogitGuard(Then.SANITIZE, remembered=5)
    for _ in range(12):
        guard(torch.tensor([[math.nan, math.nan]]))
    assert len(guard.steps) == 5
    assert guard.broken_rows == guard.calls == 12
    assert math.isnan(guard.steps[-1].mean)
    assert not guard.steps[-1].running_away


def test_a_guard_behind_a_model_sees_its_broken_weight() -> None:
    model, ids, guard = a_model(), some_ids(), a_guard()
    take_off = guarded(model, guard)
    model(ids)
    assert (guard.rows, guard.broken_rows) == (24, 0)
    model.get_parameter("model.layers.1.mlp.down_proj.weight")[0, 0] = math.nan
    assert bool(model(ids).logits.isfinite().all())
    assert guard.broken_rows == 24
    take_off()
    assert bool(model(ids).logits.isnan().all())
    assert guard.calls == 2
