"""W4A8 as the kernel has it that vLLM runs on a CPU, which is torch's own: codes, zero points and scales to the bit."""

import pytest
import torch
from torch import Tensor

from quantwatch.toolkit.compressed import compressed
from quantwatch.toolkit.fake_quant import Memory, per_token_shifted
from quantwatch.toolkit.formats import Format, Variant
from quantwatch.toolkit.quantize_study import W4A8Linear
from quantwatch.toolkit.salience import stored

VARIANT = Variant(Format.W4A8, 64)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def kernel(x: Tensor, weight: Tensor, *, group: int = 64) -> Tensor:
    """What vLLM makes of an exported weight: codes packed two to a byte, scales in bfloat16, and torch's kernel."""
    tensors = compressed(weight, Variant(Format.W4A8, group))
    raised = tensors["weight"].add(8)
    pairs = (raised[:, 1::2] << 4 | raised[:, ::2]).to(torch.uint8)
    rows, columns = weight.shape
    scales = tensors["weight_scale"].to(torch.bfloat16)
    packed = torch.ops.aten._dyn_quant_pack_4bit_weight(pairs, scales, None, group, columns, rows)
    made: Tensor = torch.ops.aten._dyn_quant_matmul_4bit(x, packed, group, columns, rows)
    return made


def activations() -> Tensor:
    """Rows of every kind: even, with an outlier, of one sign alone, zeros, huge, tiny."""
    x = random(12, 128, seed=1)
    x[1, 5] = 300.0
    x[2], x[3], x[4] = x[2].abs(), -x[3].abs(), 0.0
    x[5], x[6] = 1e6 * x[5], 1e-6 * x[6]
    x[7, 1:] = 0.0
    return x


def test_a_linear_gives_what_the_kernel_gives() -> None:
    weight, x = 0.05 * random(24, 128, seed=2), activations()
    ours = W4A8Linear(stored(weight, VARIANT), None, Memory())(x)
    theirs = kernel(x, weight)
    assert torch.equal(theirs[4], torch.zeros(24))
    away = (ours - theirs).norm(dim=1) / theirs.norm(dim=1).clamp(min=1e-30)
    assert float(away.max()) < 2e-6


def test_symmetric_codes_would_not_give_it() -> None:
    """One sign alone: a symmetric range spends half of its codes on what never comes."""
    weight, x = 0.05 * random(24, 128, seed=2), random(1, 128, seed=3).abs()
    theirs = kernel(x, weight)
    step = x.abs().amax() / 127
    symmetric = (x / step).round() * step @ stored(weight, VARIANT).T
    assert float((symmetric - theirs).norm() / theirs.norm()) > 1e-3


def test_codes_by_hand() -> None:
    """From -1 to 4.1 in 255 steps of 0.02: the zero point is -78, so -1 is code -128 and 4.1 is 127."""
    codes, scale = per_token_shifted(torch.tensor([[-1.0, 0.0, 0.03, 4.1]]))
    assert codes.tolist() == [[-50.0, 0.0, 2.0, 205.0]]
    assert scale.item() == pytest.approx(0.02)


def test_zeros_stay_zeros_and_nan_breaks_its_own_row_alone() -> None:
    x = torch.tensor([[0.0, 0.0], [float("nan"), 1.0], [2.0, 1.0]])
    codes, scale = per_token_shifted(x)
    assert codes[0].tolist() == [0.0, 0.0]
    assert (codes * scale)[1].isnan().any()
    assert (codes * scale)[2].tolist() == pytest.approx([2.0, 1.0], abs=0.005)


@pytest.mark.parametrize("size", [1e-40, 1e-30, 1e30, 1e38])
def test_ranges_at_the_ends_of_float32_stay_finite(size: float) -> None:
    codes, scale = per_token_shifted(torch.tensor([[size, -size / 2, 0.0]]))
    assert bool((codes * scale).isfinite().all())


def test_scales_are_what_the_kernel_can_hold_and_codes_are_made_with_them() -> None:
    weight = 0.05 * random(24, 128, seed=2)
    tensors = compressed(weight, VARIANT)
    scale = tensors["weight_scale"]
    assert torch.equal(scale, scale.bfloat16().float())
    assert torch.equal((tensors["weight"].view(24, 2, 64) * scale.unsqueeze(-1)).view(24, 128), stored(weight, VARIANT))
    away = (stored(weight, VARIANT) - weight).view(24, 2, 64).abs()
    assert bool((away <= scale.unsqueeze(-1) * 0.53).all())  # 7 steps may end a little short of the largest
