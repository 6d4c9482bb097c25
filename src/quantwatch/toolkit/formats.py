"""Number formats of the linear layers, and cures for them, as data. No torch here: the command line reads it."""

from dataclasses import dataclass
from enum import StrEnum


class Format(StrEnum):
    """How the linears of the decoder store and compute: weights alone, or `a8`: activations by token as well."""

    INT4 = "int4"
    INT6 = "int6"
    W4A8 = "w4a8"
    W8 = "w8"
    W8A8 = "w8a8"
    FP8 = "fp8-e4m3"


BITS = {Format.INT4: 4, Format.INT6: 6, Format.W4A8: 4, Format.W8: 8, Format.W8A8: 8, Format.FP8: 8}

GROUPED = {Format.INT4, Format.INT6, Format.W4A8}
"""Formats whose columns share a scale in groups; the others have one for each output row."""

WEIGHT_ONLY = {Format.INT4, Format.INT6, Format.W8}
"""Formats whose kernels compute in the activations' type, and hold their scales in it."""

ACTIVATIONS = set(Format) - WEIGHT_ONLY
"""Formats that quantize activations too."""

SCALE_BITS = 16
FULL_BITS = 16
INDEX_BITS = 32


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to quantize.

    group: columns that share a scale, 0 for the whole row. keep: share of input channels, the salient ones, that stay
    in 16 bits. scaled: search per-channel scales before, which keeps the format uniform. rest: type of everything that
    is not quantized, in which the engine computes, as torch calls it.
    """

    format: Format
    group: int = 0
    keep: float = 0.0
    scaled: bool = False
    rest: str = "float32"

    @property
    def scales(self) -> str:
        """The type that an engine rounds scales to, as torch calls it: codes are made with scales that it can hold."""
        if self.format is Format.W4A8:
            return "bfloat16"  # torch's kernel takes no other for groups
        return self.rest if self.format in WEIGHT_ONLY else "float32"

    @property
    def name(self) -> str:
        """How tables call it: `int4 g64, 1 % kept`."""
        parts = [f"{self.format} g{self.group}" if self.format in GROUPED else str(self.format)]
        if self.keep:
            parts.append(f"{100 * self.keep:g} % kept")
        return ", ".join([*parts, "scaled"] if self.scaled else parts)

    def bits(self, rows: int, columns: int) -> int:
        """Bits that a weight of this shape takes: codes, scales, kept columns in 16 bits, and an index for each."""
        kept = kept_columns(columns, self.keep)
        group = self.group if self.format in GROUPED and self.group else columns
        scales = rows * -(-columns // group) * SCALE_BITS
        return rows * (columns - kept) * BITS[self.format] + scales + kept * (rows * FULL_BITS + INDEX_BITS)


def kept_columns(columns: int, keep: float) -> int:
    """How many columns so large a share is, rounded up: 1 % of 576 are 6."""
    return min(-int(-columns * keep // 1), columns)
