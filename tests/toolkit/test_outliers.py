"""Injected outliers change the activations a hundredfold and the function not at all."""

import pytest
import torch

from quantwatch.errors import InputError
from quantwatch.toolkit.capture import capture
from quantwatch.toolkit.families import FAMILIES, groups
from quantwatch.toolkit.outliers import inject_outliers
from support.toolkit import a_model, logits, some_ids


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("magnitude", [100.0, 0.3])
def test_the_full_precision_function_stays(kind: str, magnitude: float) -> None:
    model, ids = a_model(kind), some_ids()
    before = logits(model, ids)
    inject_outliers(model, magnitude, seed=1)
    assert float((logits(model, ids) - before).abs().max()) < 1e-4 * float(before.abs().max())


@pytest.mark.parametrize("magnitude", [64.0, 1024.0, 0.5])
def test_a_power_of_two_changes_not_one_bit(magnitude: float) -> None:
    model, ids = a_model(), some_ids()
    before = logits(model, ids)
    inject_outliers(model, magnitude, seed=1)
    assert torch.equal(logits(model, ids), before)


def test_one_channel_behind_every_norm_grows_by_the_magnitude() -> None:
    model, ids = a_model(), some_ids()
    before = capture(model, [ids])
    inject_outliers(model, 64.0, seed=1)
    after = capture(model, [ids])
    for group in groups(model):
        grown = after[group.names[0]].absmax / before[group.names[0]].absmax
        expected = torch.ones(group.columns)
        if group.norm is not None:
            expected[grown.argmax()] = 64.0
        assert torch.equal(grown, expected)


def drawn(seed: int) -> list[int]:
    model = a_model(num_hidden_layers=4)
    before = [group.gain.clone() for group in groups(model) if group.norm is not None]
    inject_outliers(model, 64.0, seed=seed)
    after = [group.gain for group in groups(model) if group.norm is not None]
    return [int((new / old).argmax()) for new, old in zip(after, before, strict=True)]


def test_the_seed_draws_the_channels() -> None:
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert len(set(drawn(1))) > 1


@pytest.mark.parametrize("magnitude", [0.0, -3.0, float("nan"), float("inf")])
def test_a_senseless_magnitude_is_refused(magnitude: float) -> None:
    model, ids = a_model(), some_ids()
    before = logits(model, ids)
    with pytest.raises(InputError, match="above 0"):
        inject_outliers(model, magnitude, seed=1)
    assert torch.equal(logits(model, ids), before)
