"""The error along the residual stream: none without a change, from the changed layer on with one."""

import copy
import math

import pytest
import torch

from quantwatch.errors import InputError
from quantwatch.toolkit.families import FAMILIES
from quantwatch.toolkit.growth import growth
from support.toolkit import a_model, some_ids

TEXTS = [some_ids(20, seed=1), some_ids(9, seed=2)]


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_model_does_not_drift_from_itself(kind: str) -> None:
    model = a_model(kind)
    found = growth(model, model, TEXTS)
    assert [one.number for one in found] == [0, 1]
    assert all(one.error == 0.0 and one.drift < 1e-12 and one.size > 0 for one in found)


def test_an_error_stands_from_its_layer_on() -> None:
    model = a_model(num_hidden_layers=4)
    changed = copy.deepcopy(model)
    changed.get_parameter("model.layers.2.mlp.down_proj.weight").mul_(1.5)
    found = growth(model, changed, TEXTS)
    assert [one.error > 0 for one in found] == [False, False, True, True]
    assert found[2].added == pytest.approx(found[2].drift)
    assert sum(one.added for one in found) == pytest.approx(found[3].drift)


def test_error_size_and_drift_are_those_of_the_hidden_states() -> None:
    """Held against transformers' own hidden states; its last one has the final norm behind it, so three of four."""
    model = a_model(num_hidden_layers=4)
    changed = copy.deepcopy(model)
    changed.get_parameter("model.layers.0.mlp.down_proj.weight").mul_(1.5)
    found = growth(model, changed, TEXTS)
    for layer in range(3):
        ours, theirs = (
            torch.cat([one(ids, output_hidden_states=True).hidden_states[layer + 1][0] for ids in TEXTS]).double()
            for one in (model, changed)
        )
        assert found[layer].error == pytest.approx(float((ours - theirs).abs().mean()), rel=1e-9)
        assert found[layer].size == pytest.approx(float(ours.abs().mean()), rel=1e-9)
        cosines = torch.nn.functional.cosine_similarity(ours, theirs, dim=-1)
        assert found[layer].drift == pytest.approx(1 - float(cosines.mean()), rel=1e-6)
        assert found[layer].relative == pytest.approx(found[layer].error / found[layer].size)


def test_no_hook_is_left_behind() -> None:
    model = a_model()
    growth(model, model, TEXTS)
    assert not any(part._forward_hooks for part in model.modules())


def test_what_cannot_be_compared_is_refused() -> None:
    model = a_model()
    with pytest.raises(InputError, match="one prompt at least"):
        growth(model, model, [])
    with pytest.raises(InputError, match="known types"):
        growth(a_model("phi"), model, TEXTS)
    broken = copy.deepcopy(model)
    broken.get_parameter("model.layers.1.mlp.down_proj.weight")[0, 0] = math.nan
    with pytest.raises(InputError, match="not finite"):
        growth(model, broken, TEXTS)
