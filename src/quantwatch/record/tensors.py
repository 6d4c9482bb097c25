"""The safetensors format: eight bytes of length, a JSON header, then the numbers. Nothing in it can be executed.

Format: https://github.com/huggingface/safetensors#format. Written and read here in a few lines, since the package's own
functions for bare bytes take raw memory addresses from version 0.8 on and something else before that.
"""

import json
import math
import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CODES = {"I32": "i", "I64": "q", "F32": "f"}
"""Type codes of array.array; each has the same size on every platform that Python runs on."""

LENGTH = 8
ALIGN = 8
METADATA = "__metadata__"


class Damage(ValueError):
    """What is wrong with a file's content; begins with the field at fault."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Numbers in row-major order. values: an array whose type code is one of CODES. shape: how they are meant."""

    shape: tuple[int, ...]
    values: "array[Any]"

    def __post_init__(self) -> None:
        if math.prod(self.shape) != len(self.values):
            raise Damage(f"{len(self.values)} numbers do not fill the shape {list(self.shape)}")

    @property
    def dtype(self) -> str:
        """What the format calls the numbers."""
        return next(name for name, code in CODES.items() if code == self.values.typecode)


def column(code: str, values: Any) -> Tensor:
    """A tensor of one dimension; code: of array.array."""
    numbers: array[Any] = array(code, values)
    return Tensor((len(numbers),), numbers)


def pack(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """A whole file. The widest numbers come first, so that every tensor is aligned."""
    order = sorted(tensors, key=lambda name: (-tensors[name].values.itemsize, name))
    header: dict[str, Any] = {METADATA: dict(metadata)}
    parts, at = [], 0
    for name in order:
        data = little(tensors[name].values)
        header[name] = {
            "dtype": tensors[name].dtype,
            "shape": list(tensors[name].shape),
            "data_offsets": [at, at + len(data)],
        }
        parts.append(data)
        at += len(data)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % ALIGN)
    return b"".join([len(head).to_bytes(LENGTH, "little"), head, *parts])


def unpack(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file. Raises Damage for any other bytes."""
    length = int.from_bytes(content[:LENGTH], "little")
    if len(content) < LENGTH or length > len(content) - LENGTH:
        raise Damage("header: the file is cut short")
    header = _header(content[LENGTH : LENGTH + length])
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(one, str) for one in metadata.values()):
        raise Damage("header: the metadata is no mapping of texts")
    body = memoryview(content)[LENGTH + length :]
    tensors, ends = {}, []
    for name, entry in header.items():
        begin, end = _place(name, entry, len(body))
        ends.append((begin, end))
        tensors[name] = _tensor(name, entry, body[begin:end])
    covered = 0
    for begin, end in sorted(ends):
        if begin != covered:
            raise Damage("header: the tensors do not follow one another")
        covered = end
    if covered != len(body):
        raise Damage(f"header: it describes {covered} bytes of numbers and {len(body)} are there")
    return tensors, metadata


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text.decode(), object_pairs_hook=_once)
    except RecursionError as exc:
        raise Damage("header: nested too deeply") from exc
    except ValueError as exc:  # also for bytes that are no UTF-8
        raise Damage(f"header: {exc}") from exc
    if not isinstance(header, dict):
        raise Damage("header: no JSON object")
    return header


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _place(name: str, entry: Any, size: int) -> tuple[int, int]:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(one) is int for one in offsets):
        raise Damage(f"{name}: no place in the file is given for it")
    begin, end = offsets
    if not 0 <= begin <= end <= size:
        raise Damage(f"{name}: its place lies outside of the file")
    return begin, end


def _tensor(name: str, entry: dict[str, Any], data: memoryview) -> Tensor:
    code, shape = CODES.get(str(entry.get("dtype"))), entry.get("shape")
    if code is None:
        raise Damage(f"{name}: numbers of type {entry.get('dtype')}, which has no use here")
    if not isinstance(shape, list) or not all(type(one) is int and one >= 0 for one in shape):
        raise Damage(f"{name}: no shape")
    values: array[Any] = array(code)
    if len(data) % values.itemsize:
        raise Damage(f"{name}: half a number at its end")
    values.frombytes(data)
    if sys.byteorder == "big":
        values.byteswap()
    try:
        return Tensor(tuple(shape), values)
    except ValueError as exc:
        raise Damage(f"{name}: {exc}") from exc


def little(values: "array[Any]") -> bytes:
    """The bytes of an array, least significant first."""
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()
