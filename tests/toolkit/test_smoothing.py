"""SmoothQuant: the function stays, the activations become even, and the factors are those of the paper."""

import pytest
import torch
from torch import nn

from quantwatch.errors import InputError
from quantwatch.toolkit.capture import capture
from quantwatch.toolkit.families import FAMILIES, Group, groups
from quantwatch.toolkit.outliers import inject_outliers
from quantwatch.toolkit.smoothing import smooth
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
