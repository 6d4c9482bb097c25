"""The wiring table agrees with what transformers really computes."""

import pytest
import torch
from torch import nn

from quantwatch.errors import InputError
from quantwatch.toolkit.fake_quant import quantize
from quantwatch.toolkit.families import FAMILIES, groups
from quantwatch.toolkit.recipe import Scheme
from support.toolkit import a_model, logits, some_ids

EACH_FAMILY = pytest.mark.parametrize("kind", FAMILIES)


@EACH_FAMILY
def test_every_linear_of_the_decoder_layers_stands_in_one_group(kind: str) -> None:
    model = a_model(kind)
    linears = {name for name, part in model.named_modules() if isinstance(part, nn.Linear)} - {"lm_head"}
    named = [name for group in groups(model) for name in group.names]
    assert sorted(named) == sorted(linears)


@EACH_FAMILY
def test_linears_of_a_group_read_one_and_the_same_tensor(kind: str) -> None:
    model, seen = a_model(kind), {}

    def hook(part: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        seen[part] = args[0]

    for group in groups(model):
        for linear in group.linears:
            linear.register_forward_pre_hook(hook)
    logits(model, some_ids())
    for group in groups(model):
        assert all(seen[linear] is seen[group.linears[0]] for linear in group.linears)
    assert len({id(x) for x in seen.values()}) == len(groups(model))


@EACH_FAMILY
def test_a_norm_makes_what_its_group_reads(kind: str) -> None:
    model, made, read = a_model(kind), {}, {}
    for group in groups(model):
        if group.norm is not None:
            group.norm.register_forward_hook(lambda part, _, out: made.update({part: out}))
            group.linears[0].register_forward_pre_hook(lambda part, args: read.update({part: args[0]}))
    logits(model, some_ids())
    normed = [group for group in groups(model) if group.norm is not None]
    assert len(normed) == 4
    assert all(made[group.norm] is read[group.linears[0]] for group in normed)


def test_an_unknown_family_is_refused_with_those_we_know() -> None:
    with pytest.raises(InputError, match=r"'phi'.*llama, mistral, qwen2, qwen3"):
        groups(a_model("phi"))


def test_a_quantized_model_is_not_taken_for_a_plain_one() -> None:
    model = a_model()
    quantize(model, Scheme.W8A8)
    with pytest.raises(InputError, match="quantized already"):
        groups(model)


def test_a_group_without_a_norm_has_no_gain() -> None:
    alone = next(group for group in groups(a_model()) if group.norm is None)
    with pytest.raises(ValueError, match="reads no norm"):
        alone.gain  # noqa: B018, reading it is what fails
