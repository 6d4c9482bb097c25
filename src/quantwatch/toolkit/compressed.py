"""The checkpoint format of compressed-tensors: how a quantized linear lies on disk, and what config.json says of it.

Names, words and configuration are those that the package compressed-tensors 0.20 of the vLLM project reads and writes
(its QuantizationConfig, and its compressors int-quantized, float-quantized and pack-quantized).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from quantwatch.errors import InputError
from quantwatch.toolkit.formats import BITS, GROUPED, Format, Variant
from quantwatch.toolkit.salience import fp8_codes, group_codes

WORD = 32
"""Bits of a word that holds packed codes."""

LAYOUTS = {
    Format.INT4: "pack-quantized",
    Format.W8: "pack-quantized",
    Format.W4A8: "int-quantized",
    Format.W8A8: "int-quantized",
    Format.FP8: "float-quantized",
}
"""Packed: several codes in an int32 word. The others have a byte for each code, also for those of 4 bits."""


def refuse_inexpressible(variant: Variant) -> None:
    """Raise InputError for what no linear of the format can hold, or no usual kernel of vLLM computes."""
    if variant.keep:
        raise InputError(
            f"{variant.name}: compressed-tensors has one number format for a whole weight, so columns in 16 bits "
            "cannot stand among quantized ones; --scaled keeps the format uniform and protects such channels too"
        )
    if variant.format not in LAYOUTS:
        raise InputError(
            f"{variant.format}: vLLM's usual kernels take weights of 4 or 8 bits, not of {BITS[variant.format]}; "
            f"export {', '.join(LAYOUTS)} instead"
        )


def refuse_unfit(name: str, weight: Tensor, variant: Variant) -> None:
    """Raise InputError for a weight (out, in) that the format cannot hold as it is."""
    columns, group = weight.shape[1], _group(weight, variant)
    if columns % group:
        fitting = ", ".join(str(one) for one in (32, 64, 128, 256) if columns % one == 0)
        raise InputError(
            f"{name}: groups of {group} do not divide its {columns} columns, and kernels want whole groups"
            + (f"; --group may be one of {fitting}" if fitting else "; export w8 or w8a8 instead")
        )
    if LAYOUTS[variant.format] == "pack-quantized" and columns % (WORD // BITS[variant.format]):
        raise InputError(f"{name}: {columns} columns do not fill whole words of {WORD} bits; export w8a8 instead")
    if not bool(weight.isfinite().all()):
        raise InputError(f"{name}: holds NaN or infinite weights; `quantwatch toolkit check-checkpoint` tells more")


def quantization_config(variant: Variant) -> dict[str, Any]:
    """What stands in config.json under `quantization_config`: every linear but the output layer has the format."""
    kind = "float" if variant.format is Format.FP8 else "int"
    weights: dict[str, Any] = {"num_bits": BITS[variant.format], "type": kind, "symmetric": True, "dynamic": False}
    if variant.format in GROUPED and variant.group:
        weights |= {"strategy": "group", "group_size": variant.group}
    else:
        weights |= {"strategy": "channel"}
    inputs = None
    if variant.format in (Format.W8A8, Format.W4A8, Format.FP8):
        inputs = {"num_bits": 8, "type": kind, "symmetric": True, "strategy": "token", "dynamic": True}
    layout = LAYOUTS[variant.format]
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "format": layout}
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


def compressed(weight: Tensor, variant: Variant) -> dict[str, Tensor]:
    """The tensors that stand for a weight (out, in), by what follows the linear's name.

    `weight` or, packed, `weight_packed` (out, words) int32 with `weight_shape`; `weight_scale` (out, groups) float32,
    which is 1 where all codes are 0.
    """
    if variant.format is Format.FP8:
        values, scale = fp8_codes(weight)
        return {"weight": values, "weight_scale": _no_zeros(scale, weight.abs().amax(1, keepdim=True))}
    group = _group(weight, variant)
    found = group_codes(weight, bits=BITS[variant.format], group=group, scales=variant.scales)
    codes = found.values.view(weight.shape).to(torch.int8)
    scale = _no_zeros(found.scale, weight.view(len(weight), -1, group).abs().amax(2, keepdim=True)).squeeze(-1)
    if LAYOUTS[variant.format] == "int-quantized":
        return {"weight": codes, "weight_scale": scale}
    return {
        "weight_packed": packed(codes, bits=BITS[variant.format]),
        "weight_scale": scale,
        "weight_shape": torch.tensor(weight.shape),
    }


def decompressed(tensors: Mapping[str, Tensor], *, bits: int) -> Tensor:
    """The weight (out, in) in float32 that the tensors of `compressed` stand for."""
    if "weight_packed" in tensors:
        columns = int(tensors["weight_shape"][1])
        codes = unpacked(tensors["weight_packed"], bits=bits, columns=columns).float()
    else:
        codes = tensors["weight"].float()
    scale = tensors["weight_scale"].float()
    return (codes.view(len(codes), scale.shape[1], -1) * scale.unsqueeze(-1)).view(codes.shape)


def packed(codes: Tensor, *, bits: int) -> Tensor:
    """Signed codes (out, in) as words (out, in * bits / 32) of int32.

    Each code is stored as code + 2^(bits-1), the first column in the lowest bits. bits: 4 or 8; in: whole words.
    """
    each = WORD // bits
    raised = codes.long().view(len(codes), -1, each) + 2 ** (bits - 1)
    words: Tensor = (raised << (bits * torch.arange(each, device=codes.device))).sum(-1)
    return torch.where(words >= 1 << (WORD - 1), words - (1 << WORD), words).to(torch.int32)


def unpacked(words: Tensor, *, bits: int, columns: int) -> Tensor:
    """The signed codes (out, columns) int8 that `packed` has put into words (out, n)."""
    places = bits * torch.arange(WORD // bits, device=words.device)
    raised: Tensor = (words.long().unsqueeze(-1) >> places) & (2**bits - 1)
    codes: Tensor = (raised - 2 ** (bits - 1)).to(torch.int8)
    return codes.view(len(words), -1)[:, :columns]


def _group(weight: Tensor, variant: Variant) -> int:
    return variant.group if variant.format in GROUPED and variant.group else weight.shape[1]


def _no_zeros(scale: Tensor, largest: Tensor) -> Tensor:
    """A scale of 1 where there is nothing to scale: the smallest number would become 0 in half precision."""
    return torch.where(largest == 0, torch.ones_like(scale), scale)
