"""Formats and cures: every formula by hand, and the cures cure on a tiny model."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from quantwatch.errors import InputError
from quantwatch.toolkit.capture import Inputs, capture
from quantwatch.toolkit.fake_quant import Int8Linear
from quantwatch.toolkit.families import FAMILIES, Group, groups
from quantwatch.toolkit.formats import BITS, GROUPED, Format, Variant, kept_columns
from quantwatch.toolkit.outliers import inject_outliers
from quantwatch.toolkit.quantize_study import Fp8Linear, W4A8Linear, quantize_study, quantized, size
from quantwatch.toolkit.recipe import Scheme
from quantwatch.toolkit.salience import fp8, grouped, salient, stored
from quantwatch.toolkit.scaling import STEPS, scale_channels, scales, searched
from quantwatch.toolkit.score import exam
from quantwatch.toolkit.smooth_study import Bench, smooth_study
from support.tiny_llama import tiny_tokenizer
from support.toolkit import a_model, a_prompt, logits, some_ids

INT4 = Variant(Format.INT4, 64)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def seen(rows: Tensor) -> Inputs:
    inputs = Inputs(torch.zeros(rows.shape[1]), keep=len(rows))
    inputs.add(rows)
    return inputs


def test_a_group_by_hand() -> None:
    """max 14: scale 2. 3 becomes 2 (1.5 rounds to even 2, so 4), 5 becomes 4 (2.5 to even), -14 stays -14."""
    weight = torch.tensor([[14.0, 3.0, 5.0, -14.0, 0.9, -1.1]])
    assert grouped(weight, bits=4, group=6).tolist() == [[14.0, 4.0, 4.0, -14.0, 0.0, -2.0]]


def test_a_ragged_last_group_has_its_own_scale() -> None:
    """Groups of 4, 4 and 2: the last is 0.7 and 0.1, so its scale is 0.1 whatever stands before."""
    weight = torch.cat([100 * random(3, 8), torch.tensor([[0.7, 0.1]] * 3)], 1)
    made = grouped(weight, bits=4, group=4)
    torch.testing.assert_close(made[:, 8:], weight[:, 8:])
    torch.testing.assert_close(made[:, :4], grouped(weight[:, :4], bits=4, group=4))
    assert made.shape == weight.shape


@pytest.mark.parametrize("bits", [4, 6, 8])
def test_no_weight_is_off_by_more_than_half_a_step(bits: int) -> None:
    weight = random(7, 50, seed=bits)
    step = weight.view(7, 5, 10).abs().amax(2, keepdim=True) / (2 ** (bits - 1) - 1)
    away = (grouped(weight, bits=bits, group=10) - weight).view(7, 5, 10).abs()
    assert bool((away <= 0.5001 * step).all())


def test_groups_of_zeros_stay_zeros_and_nan_is_not_hidden() -> None:
    weight = torch.zeros(2, 8)
    weight[1, 5] = math.nan
    made = grouped(weight, bits=4, group=4)
    assert made[0].tolist() == [0.0] * 8
    assert bool(made[1, 4:].isnan().all())


def test_fp8_by_hand() -> None:
    """Scale 1 for a row that reaches 448. Three bits of mantissa: from 16 to 32 the step is 2; 17 rounds to even."""
    assert fp8(torch.tensor([[448.0, 17.0, 19.0, 0.3]])).tolist() == [[448.0, 16.0, 20.0, pytest.approx(0.3125)]]
    assert fp8(torch.zeros(1, 3)).tolist() == [[0.0] * 3]
    x = random(5, 64)
    assert float((fp8(x) / x - 1).abs().median()) < 1 / 16


def test_kept_columns_are_rounded_up() -> None:
    assert [kept_columns(*one) for one in ((576, 0.01), (100, 0.01), (10, 0.0), (3, 0.5))] == [6, 1, 0, 2]


def test_the_salient_columns_carry_the_largest_squares() -> None:
    inputs = seen(torch.tensor([[1.0, -9.0, 3.0, 4.0], [1.0, 0.0, 3.0, -4.0]]))
    assert salient(inputs, 0.25).tolist() == [False, True, False, False]
    assert salient(inputs, 0.5).tolist() == [False, True, False, True]


def test_kept_columns_stay_and_leave_the_scales_of_the_others() -> None:
    weight = random(4, 16)
    weight[:, 3] = 1000.0
    kept = torch.zeros(16, dtype=torch.bool)
    kept[3] = True
    made = stored(weight, Variant(Format.INT4, 8), kept=kept)
    assert made[:, 3].tolist() == [1000.0] * 4
    rest = weight.clone()
    rest[:, 3] = 0.0
    expected = grouped(rest, bits=4, group=8)
    assert torch.equal(made[:, ~kept], expected[:, ~kept])


def test_bits_of_a_weight_by_hand() -> None:
    """64 rows of 130 columns in groups of 64: three scales a row. Two kept columns: 16 bits each, and an index."""
    plain = 64 * 130 * 4 + 64 * 3 * 16
    assert INT4.bits(64, 130) == plain
    assert Variant(Format.INT4, 64, keep=0.01).bits(64, 130) == plain - 64 * 2 * 4 + 2 * (64 * 16 + 32)
    assert Variant(Format.W8A8).bits(64, 130) == 64 * 130 * 8 + 64 * 16


def test_sizes_of_a_model_by_hand() -> None:
    """Two layers of 64 x (64 + 32 + 32 + 64) and 3 x 64 x 128; two embeddings of 300 x 64 and five norms of 64."""
    model = a_model()
    linears, rest = 2 * (64 * 192 + 3 * 64 * 128), 2 * 300 * 64 + 5 * 64
    assert size(model, None) == 2 * (linears + rest)
    scales_of = 2 * (192 + 64 + 2 * 128 * 1 + 64 * 2 - 64)
    assert size(model, INT4) == linears // 2 + 2 * rest + 2 * scales_of
    tied = a_model(tie_word_embeddings=True)
    assert size(tied, None) == 2 * (linears + rest - 300 * 64)


def test_names_tell_the_variant() -> None:
    assert [one.name for one in (INT4, Variant(Format.INT4, 128, keep=0.01), Variant(Format.W8))] == [
        "int4 g64",
        "int4 g128, 1 % kept",
        "w8",
    ]
    assert Variant(Format.INT6, 64, scaled=True).name == "int6 g64, scaled"


def test_scales_by_hand() -> None:
    """Means 4 and 1 at power 1/2: 2 and 1, over the root of 2 * 1."""
    linear = nn.Linear(2, 1, bias=False)
    inputs = seen(torch.tensor([[4.0, -1.0], [-4.0, 1.0]]))
    group = Group(("x",), (linear,), None)
    assert scales(group, inputs, 0.5).tolist() == pytest.approx([2 / math.sqrt(2), 1 / math.sqrt(2)])
    assert scales(group, inputs, 0.0).tolist() == [1.0, 1.0]


def test_the_search_is_never_worse_than_plain_rounding_on_its_rows() -> None:
    linear = nn.Linear(64, 32, bias=False)
    linear.weight = nn.Parameter(random(32, 64), requires_grad=False)
    rows = random(200, 64, seed=1) * torch.logspace(-1, 1.5, 64)
    group, inputs = Group(("x",), (linear,), None), seen(rows)
    wanted = rows @ linear.weight.T

    def error(by: Tensor) -> float:
        return float(((rows / by) @ stored(linear.weight * by, INT4).T - wanted).square().sum())

    by = searched(group, inputs, INT4)
    errors = [error(scales(group, inputs, step / STEPS)) for step in range(STEPS)]
    assert error(by) == pytest.approx(min(errors), rel=1e-4)
    assert error(by) < 0.8 * errors[0]


@pytest.mark.parametrize("kind", FAMILIES)
def test_scaling_channels_keeps_the_function(kind: str) -> None:
    model, ids = a_model(kind), some_ids()
    before = logits(model, ids)
    scale_channels(model, capture(model, [some_ids(60, seed=5)], keep=40), INT4)
    assert float((logits(model, ids) - before).abs().max()) < 1e-4 * float(before.abs().max())


EVERY = [Variant(one, 32 if one in GROUPED else 0) for one in Format]


@pytest.mark.parametrize("variant", [*EVERY, Variant(Format.INT4, 48, 0.02), Variant(Format.INT4, 48, scaled=True)])
def test_every_variant_runs_near_full_precision_and_leaves_the_model_alone(variant: Variant) -> None:
    model, ids = a_model(tie_word_embeddings=True), some_ids()
    kept = copy.deepcopy(model.state_dict())
    made = quantized(model, variant, capture(model, [some_ids(50, seed=2)], keep=40))
    before, after = (logits(one, ids).log_softmax(-1) for one in (model, made))
    kl = float((before.exp() * (before - after)).sum(-1).mean())
    assert 0 < kl < (0.5 if BITS[variant.format] == 4 else 0.1)
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert torch.equal(made.get_parameter("lm_head.weight"), model.get_parameter("lm_head.weight"))


def test_activations_are_quantized_where_the_format_says_so() -> None:
    model = a_model()
    inputs = capture(model, [some_ids()])
    number = sum(len(group.names) for group in groups(model))
    for one, kind in ((Format.W8A8, Int8Linear), (Format.FP8, Fp8Linear), (Format.W4A8, W4A8Linear)):
        made = quantized(model, Variant(one), inputs)
        assert sum(isinstance(part, kind) for part in made.modules()) == number


def test_an_fp8_linear_by_hand() -> None:
    linear = nn.Linear(2, 1)
    linear.weight = nn.Parameter(torch.tensor([[448.0, 17.0]]), requires_grad=False)
    linear.bias = nn.Parameter(torch.tensor([0.5]), requires_grad=False)
    assert Fp8Linear(linear)(torch.tensor([[448.0, 19.0]])).tolist() == [[448.0 * 448 + 16 * 20 + 0.5]]


PROMPTS = [a_prompt("The quick brown fox"), a_prompt("SELECT name FROM users", 1), a_prompt("def add(a, b):", 2)]


def a_bench(*, inject: float | None = None) -> Bench:
    from quantwatch.toolkit.model import Loaded  # noqa: PLC0415, beside its only use

    loaded = Loaded(a_model(vocab_size=400), tiny_tokenizer())
    if inject is not None:
        inject_outliers(loaded.model, inject, seed=0)
    calibration = [some_ids(60, seed=seed) for seed in (3, 4)]
    return Bench(loaded.model, calibration, exam(loaded, PROMPTS, limit=24), lambda _: lambda _done, _all: None)


def test_the_table_has_both_models_and_what_each_cure_wins_back() -> None:
    variants = [INT4, Variant(Format.INT4, 64, keep=0.1), Variant(Format.INT4, 64, scaled=True)]
    found = quantize_study(a_bench(), variants, inject=100.0, seed=0, tell=print)
    assert [(one.variant.name, one.injected) for one in found] == [
        (variant.name, injected) for injected in (False, True) for variant in variants
    ]
    for plain, *cures in (found[:3], found[3:]):
        assert plain.recovered is None
        for one in cures:
            assert one.recovered == pytest.approx(
                1 - one.divergence.kl_mean.value / plain.divergence.kl_mean.value, rel=1e-9
            )
    kept = found[1]
    assert kept.recovered is not None
    assert kept.recovered > 0
    assert kept.size > found[0].size == found[2].size
    assert kept.kept_quality == pytest.approx(kept.divergence.perplexity_baseline / kept.divergence.perplexity_node)


def test_injected_outliers_ruin_w8a8_and_the_study_shows_it() -> None:
    plain, injected = quantize_study(a_bench(), [Variant(Format.W8A8)], inject=100.0, seed=0, tell=print)
    assert injected.divergence.kl_mean.value > 5 * plain.divergence.kl_mean.value


@pytest.mark.parametrize("alpha", [0.5, None])
def test_smoothing_an_injected_model_shrinks_scales_and_divergence(alpha: float | None) -> None:
    bench = a_bench(inject=100.0)
    kept = copy.deepcopy(bench.model.state_dict())
    study = smooth_study(bench, alpha=alpha, deep=alpha is None)
    behind = [one for one in study.drops if one.name.endswith(("q_proj", "gate_proj"))]
    assert len(behind) == 4
    assert all(one.share > 0.8 for one in behind)
    assert all(one.share == pytest.approx(1 - one.after / one.before) for one in study.drops)
    assert study.mean_drop == pytest.approx(sum(one.share for one in study.drops) / len(study.drops))
    for scheme in (Scheme.W8A8, Scheme.W8A8_STATIC):
        assert study.naive[scheme].kl_mean.value > 3 * study.cured[scheme].kl_mean.value
    assert all(torch.equal(value, kept[name]) for name, value in bench.model.state_dict().items())


def test_a_strength_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="from 0 to 1"):
        smooth_study(a_bench(), alpha=1.5, deep=False)
