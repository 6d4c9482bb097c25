"""Quantized linear layers in floating point that give the very numbers of integer arithmetic.

An int8 times int8 matmul with an int32 accumulator is played with whole numbers in float32, which are exact up to
2^24. What is not simulated: the speed and memory that quantization is for.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from quantwatch.errors import InputError
from quantwatch.toolkit.capture import Inputs
from quantwatch.toolkit.families import Group, groups
from quantwatch.toolkit.observers import TOP, clip
from quantwatch.toolkit.recipe import Observer, Scheme

EXACT = 2**24
"""Whole numbers up to this size are exact in float32."""

STEPS = 255
"""From the least int8 code to the largest."""

GROUP = 64
"""Columns that share a scale in w4-g64."""

TINY = torch.finfo(torch.float32).tiny
"""Floor of a scale, so that zeros are divided by something."""


class Codes(NamedTuple):
    """Whole numbers as floats, and what one step is worth: x is about values times scale."""

    values: Tensor
    scale: Tensor


Quantize = Callable[[Tensor], Codes]


def absmax_codes(x: Tensor, *, bits: int) -> Codes:
    """Symmetric codes over the last dimension: scale = max|x| / (2^(bits-1) - 1), half rounds to even.

    x: (..., n) float32; values: (..., n), scale: (..., 1). Zeros stay zeros; a NaN makes its whole row NaN.
    """
    scale = x.abs().amax(-1, keepdim=True).div_(2 ** (bits - 1) - 1).clamp_(min=TINY)
    return Codes((x / scale).round_(), scale)


def per_token(x: Tensor) -> Codes:
    """Dynamic int8 activations: every token has a scale of its own, max|x| / 127.

    The codes are x times the scale's reciprocal, as vLLM 0.32 has them on a CPU, whose linears this gives but for
    float32's last bit; dividing rounds one code in some millions the other way.
    """
    scale = x.abs().amax(-1, keepdim=True).div_(TOP).clamp_(min=TINY)
    return Codes((x * scale.reciprocal()).round_(), scale)


def per_token_shifted(x: Tensor) -> Codes:
    """Dynamic int8 activations with a zero point: every token spreads its own range, 0 included, over 256 codes.

    scale = (max - min) / 255; values are codes less the zero point, -255 to 255. So vLLM's W4A8 has them on a CPU,
    whatever config.json says of symmetry: the kernel is torch's own, which tests hold against this.
    """
    low, high = x.amin(-1, keepdim=True).clamp_(max=0.0), x.amax(-1, keepdim=True).clamp_(min=0.0)
    inverse = torch.where(high == low, torch.ones_like(high), STEPS / (high - low).clamp_(min=STEPS * TINY))
    below, above = low * inverse, high * inverse
    # Both ends give the same zero point but for the last bit; the kernel reckons it from the nearer one.
    zero = torch.where(below + above > 1, -TOP - 1 - below, TOP - above).clamp_(-TOP - 1, TOP).round_()
    codes = (x * inverse).round_().add_(zero).clamp_(-TOP - 1, TOP)
    return Codes(codes.sub_(zero), inverse.reciprocal())


def per_tensor(largest: float) -> Quantize:
    """Static int8 activations: one scale for all, largest / 127; what is larger is clipped, down to -128."""
    scale = torch.tensor(largest / TOP).clamp(min=TINY)

    def quantize(x: Tensor) -> Codes:
        return Codes((x / scale).round_().clamp_(-TOP - 1, TOP), scale)

    return quantize


class Memory:
    """The codes of the last tensor, so that linears which read the same one after another quantize it once."""

    def __init__(self) -> None:
        self._last: tuple[Tensor, Quantize, Codes] | None = None

    def codes(self, x: Tensor, quantize: Quantize) -> Codes:
        """quantize(x) in float32, remembered for this very x until another comes. Nobody may change x meanwhile."""
        last = self._last
        if last is not None and last[0] is x and last[1] is quantize:
            return last[2]
        codes = quantize(x.float())
        self._last = (x, quantize, codes)
        return codes


class Int8Linear(nn.Module):
    """y = (q_x q_W^T) s_x s_W + b with q_W in int8 per output row (symmetric absmax) and q_x as given.

    The accumulator is exact: columns are cut into blocks whose partial sums cannot leave the whole numbers of float32.
    """

    codes: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear, quantize: Quantize, memory: Memory) -> None:
        super().__init__()
        codes, scale = absmax_codes(linear.weight.detach(), bits=8)
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale.squeeze(-1))
        self.bias: Tensor | None = linear.bias
        self._quantize, self._memory = quantize, memory
        self._block = exact_block(codes)

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., in), of any floating type; returns (..., out) of the same, computed in float32."""
        codes, scale = self._memory.codes(x, self._quantize)
        out = self._accumulated(codes).mul_(scale).mul_(self.scale)
        return (out if self.bias is None else out.add_(self.bias)).to(x.dtype)

    def _accumulated(self, codes: Tensor) -> Tensor:
        if self._block >= codes.shape[-1]:
            return functional.linear(codes, self.codes)
        blocks = zip(_blocks(codes, self._block), _blocks(self.codes, self._block), strict=True)
        # Each block is exact; adding them in float64 and rounding once is what converting an int32 does.
        return torch.stack([functional.linear(x, w).double() for x, w in blocks]).sum(0).float()


def exact_block(codes: Tensor) -> int:
    """Largest number of columns, halved from all of them, in which no sum of 128 |codes| passes EXACT.

    codes: (out, in). 128 is the largest |activation code|; one column is always small enough.
    """
    block, sizes = codes.shape[1], codes.abs()
    while block > 1 and max(float(part.sum(1).max()) for part in _blocks(sizes, block)) * (TOP + 1) > EXACT:
        block = (block + 1) // 2
    return block


def _blocks(x: Tensor, columns: int) -> tuple[Tensor, ...]:
    """Views of so many columns each; the last may have fewer."""
    return tuple(x[..., start : start + columns] for start in range(0, x.shape[-1], columns))


def rounded(weight: Tensor, *, bits: int, group: int) -> Tensor:
    """Round-to-nearest weights, (out, in), symmetric per row and group of columns; back in floating point.

    This is all there is to weight-only quantization: its kernels compute in the activations' precision.
    """
    codes, scale = absmax_codes(weight.view(weight.shape[0], -1, group), bits=bits)
    return (codes * scale).view_as(weight)


@torch.no_grad()
def quantize(
    model: nn.Module,
    scheme: Scheme,
    *,
    inputs: Mapping[str, Inputs] | None = None,
    observer: Observer = Observer.MINMAX,
) -> None:
    """Quantize every linear of the decoder layers in place; embeddings, norms and output layer stay as they are.

    inputs: from capture, of this very model, for w8a8-static. Raises InputError for columns that a scheme cannot cut
    into groups, and ValueError where w8a8-static lacks its inputs.
    """
    found = groups(model) if scheme is not Scheme.FP32 else []
    if scheme is Scheme.W4_G64:
        _refuse_uneven(found)
    memory = Memory()
    for group in found:
        if scheme in (Scheme.W8, Scheme.W4_G64):
            _round_weights(group, scheme)
        else:
            activations = per_token if scheme is Scheme.W8A8 else _static(group, inputs, observer)
            for name, linear in zip(group.names, group.linears, strict=True):
                model.set_submodule(name, Int8Linear(linear, activations, memory))


def _round_weights(group: Group, scheme: Scheme) -> None:
    for linear in group.linears:
        bits, columns = (8, linear.in_features) if scheme is Scheme.W8 else (4, GROUP)
        linear.weight.copy_(rounded(linear.weight, bits=bits, group=columns))


def _static(group: Group, inputs: Mapping[str, Inputs] | None, observer: Observer) -> Quantize:
    if inputs is None:
        raise ValueError("static scales need what capture has seen")
    return per_tensor(clip(inputs[group.names[0]], observer))


def _refuse_uneven(found: list[Group]) -> None:
    for group in found:
        if group.columns % GROUP:
            raise InputError(
                f"w4-g64: {group.names[0]} has {group.columns} columns, which groups of {GROUP} do not divide; "
                "serve this model with another scheme"
            )
