"""SmoothQuant: the function stays, the activations become even, and the factors are those of the paper."""

import pytest
import torch
from torch import nn

from quantwatch.errors import InputError
from quantwatch.toolkit.capture import Inputs, capture
from quantwatch.toolkit.fake_quant import Int8Linear, Memory, per_token
from quantwatch.toolkit.families import FAMILIES, Group, groups
from quantwatch.toolkit.outliers import inject_outliers
from quantwatch.toolkit.smoothing import factors, fold, shared, smooth
from quantwatch.toolkit.smoothing import smoothed as smoothed_copy
from quantwatch.toolkit.strength import GRID, strengths
from support.toolkit import a_model, logits, some_ids


def smoothed(model: nn.Module, alpha: float) -> None:
    smooth(model, capture(model, [some_ids(seed=5)]), alpha=alpha)


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.85, 1.0])
def test_the_full_precision_function_stays(kind: str, alpha: float) -> None:
    model, ids = a_model(kind), some_ids()
    inject_outliers(model, 100.0, seed=0)
    before = logits(model, ids)
    smoothed(model, alpha)
    assert float((logits(model, ids) - before).abs().max()) < 1e-4 * float(before.abs().max())


def first_norm(model: nn.Module) -> Group:
    return next(group for group in groups(model) if group.norm is not None)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.8])
def test_the_factors_are_those_of_equation_4(alpha: float) -> None:
    model = a_model()
    group, inputs = first_norm(model), capture(model, [some_ids(seed=5)])
    x = inputs[group.names[0]].absmax
    w = torch.cat([linear.weight for linear in group.linears]).abs().max(0).values
    gain, weights = group.gain.clone(), [linear.weight.clone() for linear in group.linears]
    smooth(model, inputs, alpha=alpha)
    s = x.pow(alpha) / w.pow(1 - alpha)
    torch.testing.assert_close(group.gain, gain / s)
    for linear, weight in zip(group.linears, weights, strict=True):
        torch.testing.assert_close(linear.weight, weight * s)


def test_half_way_activations_and_weights_are_equally_large() -> None:
    model, ids = a_model(), some_ids(seed=5)
    smoothed(model, 0.5)
    group = first_norm(model)
    x = capture(model, [ids])[group.names[0]].absmax
    w = torch.cat([linear.weight for linear in group.linears]).abs().amax(0)
    torch.testing.assert_close(x, w, rtol=1e-3, atol=0.0)


def test_an_outlier_channel_is_evened_out() -> None:
    model, ids = a_model(), some_ids(seed=5)
    inject_outliers(model, 100.0, seed=0)
    name = first_norm(model).names[0]
    before = capture(model, [ids])[name].absmax
    smoothed(model, 0.5)
    after = capture(model, [ids])[name].absmax
    assert float(before.max() / before.median()) > 20
    assert float(after.max() / after.median()) < 5


def test_a_channel_that_is_always_zero_stays_finite() -> None:
    model, ids = a_model(), some_ids()
    group = first_norm(model)
    group.gain[3] = 0.0
    for linear in group.linears:
        linear.weight[:, 7] = 0.0
    before = logits(model, ids)
    smoothed(model, 0.5)
    after = logits(model, ids)
    assert bool(after.isfinite().all())
    assert float((after - before).abs().max()) < 1e-4 * float(before.abs().max())


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_a_strength_outside_0_to_1_is_refused(alpha: float) -> None:
    with pytest.raises(InputError, match="from 0 to 1"):
        smoothed(a_model(), alpha)


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_deep_smoothing_keeps_the_function_with_shared_heads(kind: str, heads: int) -> None:
    model, ids = a_model(kind, num_key_value_heads=heads), some_ids()
    inject_outliers(model, 100.0, seed=0)
    before = logits(model, ids)
    smooth(model, capture(model, [some_ids(seed=5)]), alpha=0.5, deep=True)
    assert float((logits(model, ids) - before).abs().max()) < 1e-4 * float(before.abs().max())


def test_heads_that_share_values_share_their_factor() -> None:
    """Four heads of 16 over two of values: columns 0 and 16 are channel 0 of the first, 32 and 48 of the second."""
    group = next(one for one in groups(a_model()) if one.names[0].endswith("o_proj"))
    assert group.channels is not None
    assert group.channels[[0, 16, 32, 48, 17, 63]].tolist() == [0, 0, 16, 16, 1, 31]
    values = torch.arange(64.0)
    assert shared(group, values)[[0, 16, 32, 48]].tolist() == [16.0, 16.0, 48.0, 48.0]


def test_factors_by_hand() -> None:
    """|X| = (100, 1), |W| = (0.25, 1): at 0.5 s = (sqrt(100 / 0.25), 1) = (20, 1), at 1 s = |X|, at 0 1 / |W|."""
    linear = nn.Linear(2, 1, bias=False)
    linear.weight = nn.Parameter(torch.tensor([[0.25, -1.0]]), requires_grad=False)
    group, absmax = Group(("x",), (linear,), None), torch.tensor([100.0, 1.0])
    assert factors(group, absmax, alpha=0.5).tolist() == pytest.approx([20.0, 1.0])
    assert factors(group, absmax, alpha=1.0).tolist() == pytest.approx([100.0, 1.0])
    assert factors(group, absmax, alpha=0.0).tolist() == pytest.approx([4.0, 1.0])


def test_a_copy_is_smoothed_and_the_callers_tensors_stay() -> None:
    model = a_model()
    inputs = capture(model, [some_ids(seed=5)])
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    made = smoothed_copy(model, inputs, alpha=0.7, deep=True)
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert not torch.equal(first_norm(made).gain, first_norm(model).gain)


def test_each_group_has_its_own_strength() -> None:
    model, ids = a_model(), some_ids(seed=5)
    inputs, first = capture(model, [ids]), first_norm(model)
    chosen = {group.names[0]: 0.5 for group in groups(model)} | {first.names[0]: 1.0}
    made = smoothed_copy(model, inputs, alpha=chosen)
    after = capture(made, [ids])[first.names[0]].absmax
    torch.testing.assert_close(after, torch.ones(64), rtol=1e-3, atol=0.0)


def test_what_nothing_makes_cannot_be_folded() -> None:
    linear = nn.Linear(2, 1)
    with pytest.raises(ValueError, match="nothing is known"):
        fold(Group(("x",), (linear,), None), torch.ones(2))


@pytest.mark.parametrize("deep", [False, True])
def test_the_search_finds_the_strength_of_least_error(deep: bool) -> None:
    model = a_model()
    inject_outliers(model, 100.0, seed=0)
    inputs = capture(model, [some_ids(60, seed=5), some_ids(40, seed=6)], keep=50)
    found = strengths(model, inputs, deep=deep)
    assert set(found) == {group.names[0] for group in groups(model) if deep or group.norm is not None}
    group = first_norm(model)
    seen, weight = inputs[group.names[0]], torch.cat([linear.weight for linear in group.linears])
    assert seen.sample.shape == (50, 64)
    errors = []
    for alpha in GRID:
        by = seen.absmax**alpha / weight.abs().amax(0) ** (1 - alpha)
        linear = nn.Linear(64, len(weight), bias=False)
        linear.weight = nn.Parameter(weight * by, requires_grad=False)
        out = Int8Linear(linear, per_token, Memory())(seen.sample / by)
        errors.append(float((out - seen.sample @ weight.T).square().mean()))
    assert found[group.names[0]] == GRID[min(range(len(GRID)), key=errors.__getitem__)]


def test_a_search_without_rows_is_a_fault_of_the_program() -> None:
    model = a_model()
    with pytest.raises(ValueError, match="no rows"):
        strengths(model, capture(model, [some_ids()]))


def test_statistics_of_channels_by_hand() -> None:
    inputs = Inputs(torch.zeros(2), keep=1)
    inputs.add(torch.tensor([[[3.0, -1.0], [1.0, 0.0]]]))
    inputs.add(torch.tensor([[-2.0, 5.0]]))
    assert inputs.mean_size.tolist() == [2.0, 2.0]
    assert inputs.mean_square.tolist() == pytest.approx([14 / 3, 26 / 3])
    assert inputs.sample.shape == (2, 2)
    assert inputs.sample[1].tolist() == [-2.0, 5.0]
