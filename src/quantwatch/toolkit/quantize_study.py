"""What formats and cures are worth: a model quantized each way, held against full precision."""

import copy
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from quantwatch.flow.divergence import Divergence
from quantwatch.toolkit.capture import Heard, Inputs, capture
from quantwatch.toolkit.fake_quant import Int8Linear, Memory, per_token, per_token_shifted
from quantwatch.toolkit.families import groups
from quantwatch.toolkit.formats import FULL_BITS, Format, Variant
from quantwatch.toolkit.outliers import inject_outliers
from quantwatch.toolkit.salience import fp8, salient, stored
from quantwatch.toolkit.scaling import scale_channels
from quantwatch.toolkit.score import divergence
from quantwatch.toolkit.smooth_study import Bench
from quantwatch.toolkit.strength import SAMPLE

COPIES = 3


class Fp8Linear(nn.Module):
    """y = Q(x) Q(W)^T + b with both in E4M3, a scale for each token and each output row."""

    weight: Tensor

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.register_buffer("weight", fp8(linear.weight.detach()))
        self.bias: Tensor | None = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., in), of any floating type; returns (..., out) of the same, computed in float32."""
        return functional.linear(fp8(x.float()), self.weight, self.bias).to(x.dtype)


class W4A8Linear(nn.Module):
    """y = Q(x) W^T + b with a weight that is rounded already, and int8 activations with a range for each token."""

    weight: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None, memory: Memory) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.bias = bias
        self._memory = memory

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., in), of any floating type; returns (..., out) of the same, computed in float32."""
        codes, scale = self._memory.codes(x, per_token_shifted)
        return functional.linear(codes * scale, self.weight, self.bias).to(x.dtype)


OWN_PRECISION = (Int8Linear, Fp8Linear, W4A8Linear)
"""Linears that compute in float32 whatever comes in, as their kernels' accumulators do."""


@torch.no_grad()
def served(model: nn.Module, rest: str) -> nn.Module:
    """The same quantized model, in place, computing in the type `rest` where an engine does that serves it so.

    Only parameters change: what positions are rotated by is kept in float32, as engines do.
    """
    for part in model.modules():
        if not isinstance(part, OWN_PRECISION):
            for weight in part.parameters(recurse=False):
                weight.data = weight.data.to(getattr(torch, rest))
    return model


@torch.no_grad()
def quantized(
    model: nn.Module,
    variant: Variant,
    inputs: Mapping[str, Inputs],
    *,
    heard: Heard = lambda _done, _all: None,
) -> nn.Module:
    """A copy of the model with every linear of the decoder quantized; embeddings, norms and output layer stay.

    inputs: from capture, of this very model, with rows kept where the variant is scaled.
    """
    made = copy.deepcopy(model)
    if variant.scaled:
        scale_channels(made, inputs, variant, heard=heard)
    memory = Memory()
    for group in groups(made):
        kept = salient(inputs[group.names[0]], variant.keep) if variant.keep else None
        for name, linear in zip(group.names, group.linears, strict=True):
            if variant.format is Format.W8A8:
                made.set_submodule(name, Int8Linear(linear, per_token, memory))
            elif variant.format is Format.FP8:
                made.set_submodule(name, Fp8Linear(linear))
            elif variant.format is Format.W4A8:
                made.set_submodule(name, W4A8Linear(stored(linear.weight, variant, kept=kept), linear.bias, memory))
            else:
                linear.weight.copy_(stored(linear.weight, variant, kept=kept))
    return made


def size(model: nn.Module, variant: Variant | None, *, full: Container[str] = ()) -> int:
    """Bytes of all weights: linears of the decoder in the variant's format, 16 bits for the rest; None: 16 for all.

    full: names of linears that stay in 16 bits.
    """
    named = [pair for group in groups(model) for pair in zip(group.names, group.linears, strict=True)]
    linears = [linear for name, linear in named if name not in full]
    held = {id(value): value.numel() for value in model.parameters()}
    for linear in linears:
        del held[id(linear.weight)]
    rest = FULL_BITS * sum(held.values())
    if variant is None:
        return (rest + FULL_BITS * sum(one.weight.numel() for one in linears)) // 8
    return (rest + sum(variant.bits(one.out_features, one.in_features) for one in linears)) // 8


@dataclass(frozen=True, slots=True)
class Result:
    """One variant of one model. injected: whether outlier channels were injected before. size: bytes of all weights.

    recovered: share of the divergence of plain rounding in the same format that is gone, None for plain rounding.
    """

    variant: Variant
    injected: bool
    divergence: Divergence
    size: int
    recovered: float | None

    @property
    def kept_quality(self) -> float:
        """Perplexity of full precision over that of the variant: 1 where nothing is lost."""
        return self.divergence.perplexity_baseline / self.divergence.perplexity_node


def quantize_study(
    bench: Bench, variants: Sequence[Variant], *, inject: float | None, seed: int, tell: Callable[[str], None]
) -> tuple[Result, ...]:
    """Quantize the model every way, as it is and with injected outlier channels if so wished. It stays as it is.

    variants: the first is plain rounding, which the others are held against.
    """
    found = list(_results(bench, bench.model, variants, injected=False))
    if inject is not None:
        tell(f"injecting outlier channels x{inject:g}")
        injected = copy.deepcopy(bench.model)
        inject_outliers(injected, inject, seed=seed)
        found += _results(bench, injected, variants, injected=True)
    return tuple(found)


def _results(bench: Bench, model: nn.Module, variants: Sequence[Variant], *, injected: bool) -> list[Result]:
    which = "injected, " if injected else ""
    inputs = capture(model, bench.calibration, keep=SAMPLE, heard=bench.hearer(f"{which}calibrating"))
    found: list[Result] = []
    for variant in variants:
        made = quantized(model, variant, inputs, heard=bench.hearer(f"{which}searching scales"))
        measured = divergence(bench.asked, made, heard=bench.hearer(f"{which}{variant.name}"))
        recovered = 1.0 - measured.kl_mean.value / found[0].divergence.kl_mean.value if found else None
        found.append(Result(variant, injected, measured, size(model, variant), recovered))
    return found
