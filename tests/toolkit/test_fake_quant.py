"""The quantized linears give the very numbers of integer arithmetic, and zeros and broken numbers pass sanely."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from quantwatch.errors import InputError
from quantwatch.toolkit.capture import capture
from quantwatch.toolkit.fake_quant import (
    EXACT,
    Codes,
    Int8Linear,
    Memory,
    Quantize,
    absmax_codes,
    exact_block,
    per_tensor,
    per_token,
    quantize,
    rounded,
)
from quantwatch.toolkit.families import FAMILIES, groups
from quantwatch.toolkit.recipe import Observer, Scheme
from support.toolkit import a_model, logits, some_ids


def random(*shape: int, seed: int = 0, spread: float = 1.0) -> Tensor:
    """Normal numbers whose rows differ in size by powers of ten."""
    chance = torch.Generator().manual_seed(seed)
    rows = 10 ** (spread * torch.randn(shape[0], 1, generator=chance))
    return torch.randn(shape, generator=chance) * rows


def a_linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias, requires_grad=False)
    return linear


def int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Symmetric absmax int8 by rows, in NumPy's manner: the reference."""
    scale = torch.tensor([max(float(row.abs().max()), 1e-30) / 127 for row in x], dtype=torch.float32)
    return (x / scale.unsqueeze(1)).round().clamp(-128, 127).to(torch.int8), scale


def by_integers(x: Tensor, weight: Tensor) -> Tensor:
    """What a W8A8 kernel computes: int8 codes, an int32 accumulator, and two scales."""
    (codes, token), (weights, row) = int8(x), int8(weight)
    accumulator = codes.to(torch.int32) @ weights.to(torch.int32).T
    return accumulator.float() * token.unsqueeze(1) * row


@pytest.mark.parametrize("columns", [1, 3, 64, 576, 1536, 5000])
def test_w8a8_is_integer_arithmetic_to_the_last_bit(columns: int) -> None:
    x, weight = random(17, columns, seed=1), random(23, columns, seed=2)
    ours = Int8Linear(a_linear(weight), per_token, Memory())(x)
    assert torch.equal(ours, by_integers(x, weight))


@pytest.mark.parametrize("columns", [1100, 3000, 9001])
def test_even_the_largest_sums_are_exact(columns: int) -> None:
    """Every product is 127 x 127: one float32 accumulator would leave the whole numbers."""
    x, weight = torch.ones(2, columns), torch.ones(3, columns)
    weight[:, -1] = 126 / 127
    accumulator = 127 * 127 * (columns - 1) + 127 * 126
    assert accumulator > EXACT
    out = Int8Linear(a_linear(weight), per_token, Memory())(x)
    codes, scale = absmax_codes(x, bits=8)
    assert torch.equal(codes, torch.full_like(codes, 127))
    expected = (
        torch.tensor(accumulator, dtype=torch.int32).float() * scale[0, 0] * absmax_codes(weight, bits=8).scale[0]
    )
    assert torch.equal(out, expected.expand(2, 3))


@given(columns=st.integers(1, 3000), size=st.integers(0, 127))
def test_no_block_can_leave_the_whole_numbers(columns: int, size: int) -> None:
    codes = torch.full((2, columns), float(size))
    block = exact_block(codes)
    assert 1 <= block <= columns
    assert block * size * 128 <= EXACT or block == 1


def test_small_codes_need_no_blocks() -> None:
    assert exact_block(torch.ones(4, 5000)) == 5000


def test_a_bias_is_added_in_full_precision() -> None:
    x, weight, bias = random(5, 64, seed=1), random(7, 64, seed=2), random(1, 7, seed=3)[0]
    ours = Int8Linear(a_linear(weight, bias), per_token, Memory())(x)
    assert torch.equal(ours, by_integers(x, weight) + bias)


def test_leading_dimensions_are_kept() -> None:
    x, weight = random(6, 64), random(7, 64, seed=2)
    ours = Int8Linear(a_linear(weight), per_token, Memory())(x.view(2, 3, 64))
    assert torch.equal(ours.view(6, 7), by_integers(x, weight))


def test_a_token_does_not_feel_its_neighbours() -> None:
    x, linear = random(4, 64), Int8Linear(a_linear(random(7, 64, seed=2)), per_token, Memory())
    loud = torch.cat([x[:3], 1e6 * x[3:]])
    assert torch.equal(linear(loud)[:3], linear(x)[:3])


def test_zeros_stay_zeros() -> None:
    weight = random(5, 64)
    weight[2] = 0.0
    x = random(3, 64, seed=1)
    x[1] = 0.0
    out = Int8Linear(a_linear(weight), per_token, Memory())(x)
    assert bool(out.isfinite().all())
    assert not out[1].any()
    assert not out[:, 2].any()
    assert bool(out[0, 0])


@pytest.mark.parametrize("size", [1e-44, 1e-38, 1e-30, 1e30, 3e38])
def test_sizes_at_the_ends_of_float32_stay_finite(size: float) -> None:
    codes, scale = absmax_codes(torch.tensor([[size, -size / 2, 0.0]]), bits=8)
    assert bool(codes.isfinite().all())
    assert bool(scale.isfinite().all())
    assert float(codes.abs().max()) <= 127


def test_a_broken_token_breaks_itself_alone() -> None:
    x = random(3, 64)
    x[1, 5] = float("nan")
    out = Int8Linear(a_linear(random(5, 64, seed=1)), per_token, Memory())(x)
    assert out.isnan().all(1).tolist() == [False, True, False]


@given(bits=st.sampled_from([4, 8]), seed=st.integers(0, 1000))
def test_codes_use_the_whole_range_and_miss_by_half_a_step_at_most(bits: int, seed: int) -> None:
    x = random(4, 32, seed=seed)
    codes, scale = absmax_codes(x, bits=bits)
    assert codes.abs().amax(1).tolist() == [2 ** (bits - 1) - 1] * 4
    assert torch.equal(codes, codes.round())
    assert bool(((codes * scale - x).abs() <= 0.5001 * scale).all())


def test_a_half_rounds_to_even() -> None:
    codes, _ = absmax_codes(torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]]), bits=8)
    assert codes.tolist() == [[127.0, 0.0, 2.0, 2.0, 0.0, -2.0]]


def test_a_static_scale_clips_what_is_larger() -> None:
    codes, scale = per_tensor(2.0)(torch.tensor([[0.0, 1.0, 2.0, 5.0, -2.0, -5.0]]))
    assert codes.tolist() == [[0.0, 64.0, 127.0, 127.0, -127.0, -128.0]]
    assert float(scale) == pytest.approx(2.0 / 127)


def test_static_scales_are_integer_arithmetic_too() -> None:
    x, weight = random(9, 200, seed=1), random(7, 200, seed=2)
    ours = Int8Linear(a_linear(weight), per_tensor(1.5), Memory())(x)
    scale = torch.tensor(1.5 / 127)
    codes = (x / scale).round().clamp(-128, 127).to(torch.int32)
    weights, row = int8(weight)
    assert torch.equal(ours, (codes @ weights.to(torch.int32).T).float() * scale * row)


def test_a_static_scale_of_zeros_is_finite() -> None:
    codes, scale = per_tensor(0.0)(torch.zeros(1, 4))
    assert codes.tolist() == [[0.0] * 4]
    assert bool(scale.isfinite())


class Counting:
    """A quantizer that counts its calls."""

    def __init__(self, quantize: Quantize) -> None:
        self.calls, self._quantize = 0, quantize

    def __call__(self, x: Tensor) -> Codes:
        self.calls += 1
        return self._quantize(x)


def test_linears_that_read_one_tensor_quantize_it_once() -> None:
    memory, counting, x = Memory(), Counting(per_token), random(3, 64)
    q, k = (Int8Linear(a_linear(random(5, 64, seed=seed)), counting, memory) for seed in (1, 2))
    outs = [q(x), k(x)]
    assert counting.calls == 1
    assert torch.equal(outs[1], by_integers(x, random(5, 64, seed=2)))


def test_an_equal_tensor_is_another_tensor() -> None:
    memory, counting = Memory(), Counting(per_token)
    linear = Int8Linear(a_linear(random(5, 64)), counting, memory)
    x = random(3, 64)
    first, second = linear(x), linear(2 * x)
    assert counting.calls == 2
    torch.testing.assert_close(second, 2 * first)


def test_two_quantizers_of_one_tensor_do_not_mix() -> None:
    memory, x = Memory(), random(3, 64)
    assert memory.codes(x, per_tensor(1.0)).scale != memory.codes(x, per_tensor(2.0)).scale


def test_weights_are_rounded_by_rows_or_by_groups() -> None:
    weight = random(4, 128, seed=3)
    by_rows, by_groups = rounded(weight, bits=4, group=128), rounded(weight, bits=4, group=64)
    for row in range(4):
        scale = weight[row].abs().max() / 7
        torch.testing.assert_close(by_rows[row], (weight[row] / scale).round() * scale)
        for start in (0, 64):
            part = weight[row, start : start + 64]
            scale = part.abs().max() / 7
            torch.testing.assert_close(by_groups[row, start : start + 64], (part / scale).round() * scale)
    assert float((by_groups - weight).norm()) < float((by_rows - weight).norm())


QUANTIZED = [Scheme.W8A8, Scheme.W8A8_STATIC, Scheme.W8, Scheme.W4_G64]


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("scheme", QUANTIZED)
def test_every_family_runs_near_its_full_precision_self(kind: str, scheme: Scheme) -> None:
    model, ids = a_model(kind), some_ids()
    before = logits(model, ids).log_softmax(-1)
    quantize(model, scheme, inputs=capture(model, [ids]))
    after = logits(model, ids).log_softmax(-1)
    kl = float((before.exp() * (before - after)).sum(-1).mean())
    assert 0 < kl < (0.5 if scheme is Scheme.W4_G64 else 0.05)


def test_w8a8_replaces_all_decoder_linears_and_nothing_else() -> None:
    model = a_model()
    names = [name for group in groups(model) for name in group.names]
    quantize(model, Scheme.W8A8)
    replaced = [name for name, part in model.named_modules() if isinstance(part, Int8Linear)]
    plain = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    assert sorted(replaced) == sorted(names)
    assert plain == ["lm_head"]


@pytest.mark.parametrize("scheme", [Scheme.W8, Scheme.W4_G64])
def test_weight_only_schemes_round_the_decoder_weights_alone(scheme: Scheme) -> None:
    model = a_model()
    before = {name: value.clone() for name, value in model.named_parameters()}
    names = {f"{name}.weight" for group in groups(model) for name in group.names}
    quantize(model, scheme)
    changed = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert changed == names


def test_fp32_changes_nothing() -> None:
    model, ids = a_model(), some_ids()
    before = logits(model, ids)
    quantize(model, Scheme.FP32)
    assert torch.equal(logits(model, ids), before)


def test_columns_that_64_does_not_divide_are_refused_before_anything_changes() -> None:
    model, ids = a_model(intermediate_size=96), some_ids()
    before = logits(model, ids)
    with pytest.raises(InputError, match="down_proj has 96 columns"):
        quantize(model, Scheme.W4_G64)
    assert torch.equal(logits(model, ids), before)


def test_static_scales_without_calibration_are_a_fault_of_the_program() -> None:
    with pytest.raises(ValueError, match="capture"):
        quantize(a_model(), Scheme.W8A8_STATIC)


def test_linears_of_a_group_share_the_scale_and_groups_do_not() -> None:
    model = a_model()
    inputs = capture(model, [some_ids()])
    quantize(model, Scheme.W8A8_STATIC, inputs=inputs, observer=Observer.MINMAX)
    layer = "model.layers.0.self_attn"

    def scale_of(name: str) -> float:
        part = model.get_submodule(f"{layer}.{name}")
        assert isinstance(part, Int8Linear)
        return float(part._quantize(torch.ones(1, 64)).scale)

    q, k, o = scale_of("q_proj"), scale_of("k_proj"), scale_of("o_proj")
    assert q == k == pytest.approx(float(inputs[f"{layer}.q_proj"].absmax.max()) / 127)
    assert o == pytest.approx(float(inputs[f"{layer}.o_proj"].absmax.max()) / 127)
    assert o != q


@pytest.mark.parametrize(
    ("largest", "value", "code"),
    [
        (1.162853479385376, -0.10529775172472, -12),
        (0.8081977367401123, 0.022273164242506027, 4),
        (0.9385755658149719, -0.2549673914909363, -35),
        (1.0777254104614258, -0.09758930653333664, -11),
        (1.3308426141738892, -0.43488162755966187, -41),
        (2.3714606761932373, -0.08402813971042633, -4),
    ],
)
def test_codes_are_those_of_vllm_where_a_division_would_round_the_other_way(
    largest: float, value: float, code: int
) -> None:
    """Found in a real forward pass; the codes are those that vLLM 0.32's own CPU kernel gave back."""
    x = torch.tensor([[largest, value]])
    assert per_token(x).values.tolist() == [[127, code]]
    assert absmax_codes(x, bits=8).values[0, 1] != code
