"""How many weights a GGUF file holds, read from its header alone (layout: the GGUF specification, version 2 and 3)."""

import math
import struct
from pathlib import Path
from typing import BinaryIO

NUMBERS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value, by the number of its type."""

STRING, ARRAY = 8, 9
MOST_DIMENSIONS = 8


def float32_bytes(file: Path) -> int:
    """Bytes of all the weights in float32; 0 for what is no GGUF file: whoever converts it tells that.

    A file of two bits a weight grows sixteenfold and one of eight fourfold, so its size says little. Raises OSError.
    """
    try:
        with file.open("rb") as stream:
            return 4 * _weights(stream)
    except (struct.error, KeyError, ValueError, RecursionError):
        return 0


def _weights(stream: BinaryIO) -> int:
    if stream.read(4) != b"GGUF":
        return 0
    _, tensors, values = _unpack(stream, "<IQQ")
    for _ in range(values):
        _skip_string(stream)
        _skip_value(stream, _unpack(stream, "<I")[0])
    return sum(_elements(stream) for _ in range(tensors))


def _elements(stream: BinaryIO) -> int:
    """How many weights the next tensor has: its name, its dimensions, their sizes, its type and place."""
    _skip_string(stream)
    (dimensions,) = _unpack(stream, "<I")
    if dimensions > MOST_DIMENSIONS:
        raise ValueError(dimensions)
    sizes = _unpack(stream, f"<{dimensions}Q")
    _unpack(stream, "<IQ")
    return math.prod(sizes)


def _skip_value(stream: BinaryIO, kind: int) -> None:
    if kind == STRING:
        _skip_string(stream)
    elif kind == ARRAY:
        of, count = _unpack(stream, "<IQ")
        if of in NUMBERS:
            _skip(stream, NUMBERS[of] * count)
        else:
            for _ in range(count):
                _skip_value(stream, of)
    else:
        _skip(stream, NUMBERS[kind])


def _skip_string(stream: BinaryIO) -> None:
    _skip(stream, _unpack(stream, "<Q")[0])


def _skip(stream: BinaryIO, count: int) -> None:
    if count > 2**40:
        raise ValueError(count)
    stream.seek(count, 1)


def _unpack(stream: BinaryIO, layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, stream.read(struct.calcsize(layout)))
