"""The values of stored tensors: broken numbers, useless scales, codes out of range, what FP16 cannot hold."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from quantwatch.toolkit.checkpoint import Checkpoint, Complaint, Heard, Stored, fault, reading, risk

FP16_END = 65520.0
"""From here on a number rounds to infinity in FP16: half a step over its largest, 65504."""

FLOATS = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
SMALL_FLOATS = {"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}
WIDER = {"F64", "F32", "BF16"}
"""Types that hold numbers which FP16 does not."""

INTEGERS = {"I8", "U8", "I16", "I32", "I64"}
SCALES = ("scale", "scales", "scale_inv", "global_scale")
NEEDS: dict[str, tuple[str, ...]] = {"weight_packed": ("weight_scale",), "qweight": ("scales",)}
"""By the last part of a tensor's name: without what beside it, it means nothing."""

WORD = 32


@dataclass(slots=True)
class Values:
    """What was counted in a tensor; the counts of zero, negative, denormal and over are of finite numbers."""

    count: int = 0
    nan: int = 0
    infinite: int = 0
    zero: int = 0
    negative: int = 0
    denormal: int = 0
    over: int = 0
    largest: float = 0.0

    def add(self, block: Tensor, *, tiny: float) -> None:
        """Take in a block of any float type; tiny: its type's smallest normal number."""
        wide = block.float() if block.dtype != torch.float64 else block
        finite, sizes = wide.isfinite(), wide.abs()
        self.count += wide.numel()
        self.nan += int(wide.isnan().sum())
        self.infinite += int(wide.isinf().sum())
        self.zero += int((wide == 0).sum())
        self.negative += int(((wide < 0) & finite).sum())
        self.denormal += int(((sizes > 0) & (sizes < tiny)).sum())
        self.over += int(((sizes >= FP16_END) & finite).sum())
        if bool(finite.any()):
            self.largest = max(self.largest, float(sizes[finite].max()))


def last(name: str) -> str:
    """The last part of a tensor's name."""
    return name.rpartition(".")[2]


def is_scale(name: str) -> bool:
    """Whether a tensor holds scales: `weight_scale`, `scales`, `k_scale`, `weight_scale_inv`."""
    return last(name).endswith(SCALES)


def values_complaints(checkpoint: Checkpoint, *, heard: Heard = lambda _done, _all: None) -> list[Complaint]:
    """Look at every tensor once. heard: hears how far it is."""
    complaints: list[Complaint] = []
    bits = weight_bits(checkpoint.config)
    for number, stored in enumerate(checkpoint.tensors.values(), 1):
        with reading(stored, complaints):
            complaints += _about(stored, bits=bits)
        complaints += _alone(stored, checkpoint.tensors)
        heard(number, len(checkpoint.tensors))
    return complaints


def weight_bits(config: Mapping[str, object]) -> int | None:
    """Bits of a quantized weight by config.json, None where it does not say or layers differ."""
    given = config.get("quantization_config")
    if not isinstance(given, dict):
        return None
    if isinstance(given.get("bits"), int):
        return int(given["bits"])
    groups = given.get("config_groups")
    weights = [one.get("weights") for one in groups.values()] if isinstance(groups, dict) else []
    found = {one["num_bits"] for one in weights if isinstance(one, dict) and isinstance(one.get("num_bits"), int)}
    return found.pop() if len(found) == 1 else None


def _about(stored: Stored, *, bits: int | None) -> Iterable[Complaint]:
    if stored.kind in FLOATS or stored.kind in SMALL_FLOATS:
        return _about_floats(stored)
    return _about_codes(stored, bits=bits) if stored.kind in INTEGERS else ()


def _about_floats(stored: Stored) -> Iterator[Complaint]:
    tiny = torch.finfo((FLOATS | SMALL_FLOATS)[stored.kind]).tiny
    seen = Values()
    for block in stored.blocks():
        seen.add(block, tiny=tiny)
    name, of = stored.name, f"of {seen.count}"
    if seen.nan:
        yield fault(name, f"{seen.nan} NaN {of}")
    if seen.infinite:
        yield fault(name, f"{seen.infinite} infinite {of}")
    if is_scale(name):
        yield from _about_scales(name, seen)
    elif seen.count and seen.zero == seen.count and len(stored.shape) > 1:
        yield risk(name, "zero throughout")
    if seen.over and stored.kind in WIDER:
        what = f"{seen.over} {of} become infinite in FP16, the largest is {seen.largest:.4g}; serve it in BF16 or FP32"
        yield risk(name, what)


def _about_scales(name: str, seen: Values) -> Iterator[Complaint]:
    if seen.zero:
        yield fault(name, f"{seen.zero} scales of {seen.count} are zero: whatever they scale becomes 0, or NaN")
    if seen.negative:
        yield risk(name, f"{seen.negative} scales of {seen.count} are negative")
    if seen.denormal:
        yield risk(name, f"{seen.denormal} scales of {seen.count} are denormal: imprecise, or flushed to 0")


def _about_codes(stored: Stored, *, bits: int | None) -> Iterator[Complaint]:
    part = last(stored.name)
    if bits is None or not 1 <= bits <= 8:
        return
    if part == "weight_packed" and stored.kind == "I32":
        unused = WORD % bits
        low, high = (0, 2 ** (WORD - unused) - 1) if unused else (-(2**31), 2**31 - 1)
        what = f"words with bits beyond the {WORD // bits} codes of {bits} bits"
    elif part in ("weight", "weight_zero_point", "zero_point") and stored.kind == "I8":
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        what = f"codes outside {low} to {high}, the range of {bits} bits"
    else:
        return
    wrong = sum(int(((block < low) | (block > high)).sum()) for block in stored.blocks())
    if wrong:
        yield fault(stored.name, f"{wrong} {what}")


def _alone(stored: Stored, tensors: Mapping[str, Stored]) -> Iterator[Complaint]:
    """A quantized weight whose scale is missing, and a packed one whose shape does not fit."""
    stem, part = stored.name.removesuffix(last(stored.name)), last(stored.name)
    wanted = NEEDS.get(part, ())
    if part == "weight" and (stored.kind in SMALL_FLOATS or stored.kind == "I8"):
        wanted = ("weight_scale", "weight_scale_inv", "scale", "SCB")
    if wanted and not any(stem + one in tensors for one in wanted):
        yield fault(stored.name, f"quantized, and its {wanted[0]} is missing")
