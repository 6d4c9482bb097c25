"""Weights rounded while the few input channels that matter most stay in high precision."""

import torch
from torch import Tensor
from torch.nn import functional

from quantwatch.toolkit.capture import Inputs
from quantwatch.toolkit.fake_quant import TINY, Codes, absmax_codes
from quantwatch.toolkit.formats import BITS, GROUPED, Variant, kept_columns

FP8_TOP = 448.0
"""Largest number of E4M3."""


def salient(inputs: Inputs, keep: float) -> Tensor:
    """The columns with the largest mean square activation: (columns,) bool, share `keep` of them, rounded up.

    An error of column j reaches the output times x_j, so its expected square weighs as much as the mean of x_j^2.
    """
    number = kept_columns(len(inputs.mean_square), keep)
    chosen = torch.zeros(len(inputs.mean_square), dtype=torch.bool)
    chosen[inputs.mean_square.topk(number).indices] = True
    return chosen


def grouped(weight: Tensor, *, bits: int, group: int, scales: str = "float32") -> Tensor:
    """Weights rounded symmetrically in groups of columns, back in floating point: (out, in).

    scale = max|w| / (2^(bits-1) - 1), codes clamped to -2^(bits-1) .. 2^(bits-1) - 1; a group of zeros stays zeros. The
    last group may have fewer columns.
    """
    codes, scale = group_codes(weight, bits=bits, group=group, scales=scales)
    return (codes * scale).view(len(weight), -1)[:, : weight.shape[1]]


def group_codes(weight: Tensor, *, bits: int, group: int, scales: str = "float32") -> Codes:
    """The codes and scales of `grouped`: (out, groups, group) and (out, groups, 1), ragged groups filled with zeros.

    scales: type that they are rounded to before codes are made with them, as torch calls it; float32 all the same.
    """
    rows, columns = weight.shape
    padded = functional.pad(weight, (0, -columns % group))
    blocks, top = padded.view(rows, -1, group), 2 ** (bits - 1)
    codes, scale = absmax_codes(blocks, bits=bits)
    if scales != "float32":
        kind = getattr(torch, scales)
        least = torch.finfo(kind).smallest_normal * torch.finfo(kind).eps
        scale = scale.to(kind).float().clamp_(min=max(least, TINY))
        codes = (blocks / scale).round_()
    return Codes(codes.clamp_(-top, top - 1), scale)


def fp8(x: Tensor) -> Tensor:
    """X as E4M3 with a scale for each row gives it back: scale = max|x| / 448, the nearest of its numbers. (..., n)."""
    codes, scale = fp8_codes(x)
    return codes.to(x.dtype) * scale


def fp8_codes(x: Tensor) -> Codes:
    """The numbers and scales of `fp8`: (..., n) of type float8_e4m3fn, and (..., 1)."""
    scale = x.abs().amax(-1, keepdim=True).div(FP8_TOP).clamp_(min=TINY)
    return Codes((x / scale).to(torch.float8_e4m3fn), scale)


def stored(weight: Tensor, variant: Variant, *, kept: Tensor | None = None) -> Tensor:
    """A weight (out, in) as the variant's format gives it back. kept: (in,) bool, columns that stay as they are.

    Kept columns do not take part in the scales of the others.
    """
    rest = weight if kept is None else weight.masked_fill(kept.to(weight.device), 0.0)
    if variant.format not in GROUPED:
        whole = weight.shape[1]
        made = fp8(rest) if variant.format == "fp8-e4m3" else grouped(rest, bits=8, group=whole, scales=variant.scales)
    else:
        group = variant.group or weight.shape[1]
        made = grouped(rest, bits=BITS[variant.format], group=group, scales=variant.scales)
    return made if kept is None else torch.where(kept.to(weight.device), weight, made)
