"""Checks a checkpoint on disk, tensor by tensor, without ever holding more than a block of one."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from quantwatch.errors import InputError

INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"^(.+)-(\d{5})-of-(\d{5})\.safetensors$")
LFS = b"version https://git-lfs"
BLOCK = 2**24
"""Elements of a tensor that are looked at together: 64 MB in float32."""


class Level(StrEnum):
    """A fault breaks what is computed; a risk may, or tells that something is odd."""

    FAULT = "fault"
    RISK = "risk"


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that is wrong. place: the file or the tensor."""

    level: Level
    place: str
    what: str

    @property
    def layer(self) -> int | None:
        """The layer of the tensor, None for what belongs to no layer."""
        found = re.search(r"\.(?:layers|h|blocks)\.(\d+)\.", self.place)
        return None if found is None else int(found[1])


def fault(place: str, what: str) -> Complaint:
    """Something that breaks what is computed."""
    return Complaint(Level.FAULT, place, what)


def risk(place: str, what: str) -> Complaint:
    """Something that may."""
    return Complaint(Level.RISK, place, what)


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor on disk: where it is, its shape and its type as safetensors names it (F32, BF16, I8, F8_E4M3)."""

    name: str
    file: Path
    shape: tuple[int, ...]
    kind: str

    def blocks(self) -> Iterator[Tensor]:
        """Its content piece by piece along the first dimension. Raises SafetensorError and OSError."""
        with safe_open(self.file, framework="pt") as tensors:
            if len(self.shape) < 2:
                yield tensors.get_tensor(self.name)
                return
            held, width = tensors.get_slice(self.name), _product(self.shape[1:])
            step = max(BLOCK // max(width, 1), 1)
            for start in range(0, self.shape[0], step):
                yield held[start : start + step]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a folder or a file holds. config: config.json, empty where there is none. complaints: about the files."""

    path: Path
    tensors: Mapping[str, Stored]
    config: Mapping[str, Any] = field(default_factory=dict)
    complaints: tuple[Complaint, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every file could be read, so that a missing tensor is really missing."""
        return not any(one.level is Level.FAULT for one in self.complaints)


def _product(sizes: Sequence[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def open_checkpoint(path: Path) -> Checkpoint:
    """Read headers, index and configuration; nothing is loaded. path: a folder, or one safetensors file.

    Raises InputError for what is no checkpoint in safetensors.
    """
    if path.is_file() and path.suffix == ".safetensors":
        tensors, complaints = _read([path])
        return Checkpoint(path, tensors, complaints=tuple(complaints))
    if not path.is_dir():
        raise InputError(f"{path}: no such folder and no .safetensors file")
    files = sorted(path.glob("*.safetensors"))
    if not files and not (path / INDEX).is_file():
        other = next((one.name for one in sorted(path.iterdir()) if one.suffix in (".bin", ".pt", ".gguf")), None)
        hint = f"; {other} is of another format, which is not read" if other else ""
        raise InputError(f"{path}: no .safetensors file here{hint}")
    tensors, complaints = _read(files)
    complaints += _index_complaints(path, files, tensors)
    config, about_config = _config(path)
    return Checkpoint(path, tensors, config, (*complaints, *about_config))


def _read(files: Sequence[Path]) -> tuple[dict[str, Stored], list[Complaint]]:
    tensors: dict[str, Stored] = {}
    complaints: list[Complaint] = []
    for file in files:
        try:
            with safe_open(file, framework="np") as opened:  # torch maps a file as if it were to be written to
                names = opened.keys()
                for name in names:
                    held = opened.get_slice(name)
                    if name in tensors:
                        complaints.append(fault(name, f"stands in {tensors[name].file.name} and in {file.name}"))
                    tensors[name] = Stored(name, file, tuple(held.get_shape()), held.get_dtype())
        except (SafetensorError, OSError) as exc:
            complaints.append(fault(file.name, _unreadable(file, exc)))
    return tensors, complaints


def _unreadable(file: Path, exc: Exception) -> str:
    with file.open("rb") as opened:
        if opened.read(len(LFS)) == LFS:
            return "only a pointer of Git LFS; the weights were never fetched (git lfs pull)"
    return f"truncated or damaged, {file.stat().st_size} bytes: {exc}"


def _index_complaints(folder: Path, files: Sequence[Path], tensors: Mapping[str, Stored]) -> list[Complaint]:
    names = {file.name for file in files}
    if not (folder / INDEX).is_file():
        return list(_lonely_shards(names))
    try:
        where = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
        listed = {str(name): str(file) for name, file in where.items()}
    except (ValueError, LookupError, TypeError, AttributeError, OSError) as exc:
        return [fault(INDEX, f"cannot be read: {exc!r}")]
    found = [fault(file, "missing; the index names it") for file in sorted(set(listed.values()) - names)]
    for name, file in sorted(listed.items()):
        if file in names and (name not in tensors or tensors[name].file.name != file):
            found.append(fault(name, f"missing; the index says that it stands in {file}"))
    unnamed = names - set(listed.values())
    found += [risk(file, "is not named by the index, so loaders skip it") for file in sorted(unnamed)]
    lost = (name for name, one in sorted(tensors.items()) if name not in listed and one.file.name not in unnamed)
    return found + [risk(name, "is not named by the index, so loaders skip it") for name in lost]


def _lonely_shards(names: set[str]) -> Iterator[Complaint]:
    """Shards say in their names how many there are."""
    shards = [match for name in sorted(names) if (match := SHARD.match(name)) is not None]
    if shards:
        yield fault(INDEX, "missing; the weights stand in several files, which loaders cannot find without it")
    for stem, of in sorted({(match[1], match[3]) for match in shards}):
        for number in range(1, int(of) + 1):
            name = f"{stem}-{number:05d}-of-{of}.safetensors"
            if name not in names:
                yield fault(name, "missing; the other shards count it")


def _config(folder: Path) -> tuple[Mapping[str, Any], list[Complaint]]:
    try:
        read = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, [risk("config.json", "missing; what tensors there should be is not known")]
    except (ValueError, OSError) as exc:
        return {}, [fault("config.json", f"cannot be read: {exc}")]
    return (read, []) if isinstance(read, dict) else ({}, [fault("config.json", "holds no object")])


Heard = Callable[[int, int], None]
"""Hears how many tensors of how many were looked at."""


@contextmanager
def reading(stored: Stored, complaints: list[Complaint]) -> Iterator[None]:
    """Turn what cannot be read into a complaint about the tensor.

    Raises InputError for a file that this machine cannot map, which says nothing about the file.
    """
    try:
        yield
    except (SafetensorError, OSError, RuntimeError) as exc:
        if "unable to mmap" in str(exc):
            size = stored.file.stat().st_size / 1e9
            raise InputError(
                f"{stored.file}: {size:.1f} GB in one file are more than this machine can map at once; "
                "a checkpoint of several smaller files can be read, or a larger machine"
            ) from exc
        complaints.append(fault(stored.name, f"cannot be read from {stored.file.name}: {exc}"))
