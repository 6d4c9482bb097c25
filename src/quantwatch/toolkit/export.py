"""A quantized model as a folder that vLLM loads: shards in safetensors, configuration, tokenizer."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from quantwatch.errors import InputError
from quantwatch.toolkit.capture import Heard, capture
from quantwatch.toolkit.checkpoint import INDEX
from quantwatch.toolkit.compressed import (
    compressed,
    decompressed,
    quantization_config,
    refuse_inexpressible,
    refuse_unfit,
)
from quantwatch.toolkit.dequantize import disk_errors, save_tokenizer
from quantwatch.toolkit.families import groups
from quantwatch.toolkit.formats import Variant
from quantwatch.toolkit.model import Loaded
from quantwatch.toolkit.scaling import scale_channels
from quantwatch.toolkit.smoothing import smooth
from quantwatch.toolkit.strength import SAMPLE, strengths

SHARD = 4 * 10**9
"""Bytes of tensors in one file, which is what is held in memory beside the model."""

OUTPUT = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class Written:
    """What an export has made. size: bytes of all tensors. linears: how many are quantized."""

    files: tuple[str, ...]
    size: int
    linears: int


@dataclass(frozen=True, slots=True)
class Cure:
    """What is done to a model before it is rounded.

    alpha: strength of smoothing, None for the best of each group. smooth: whether to smooth at all. deep: as there.
    """

    smooth: bool = False
    alpha: float | None = 0.5
    deep: bool = False


def cure(
    model: nn.Module, texts: Sequence[Tensor], cures: Cure, variant: Variant, *, hearer: Callable[[str], Heard]
) -> None:
    """Smooth and scale a model in place, as wished; in full precision it computes the same afterwards.

    texts: (1, n) ids each, to calibrate with. Raises InputError for an alpha outside 0 to 1.
    """
    if cures.smooth:
        keep = 0 if cures.alpha is not None else SAMPLE
        inputs = capture(model, texts, keep=keep, heard=hearer("calibrating"))
        searching = hearer("searching strengths")
        alpha = cures.alpha if keep == 0 else strengths(model, inputs, deep=cures.deep, heard=searching)
        smooth(model, inputs, alpha=0.5 if alpha is None else alpha, deep=cures.deep)
    if variant.scaled:
        inputs = capture(model, texts, keep=SAMPLE, heard=hearer("calibrating"))
        scale_channels(model, inputs, variant, heard=hearer("searching scales"))


def refuse_unexportable(model: nn.Module, variant: Variant) -> None:
    """Raise InputError for a variant, a model or a weight that cannot be written, before anything is."""
    refuse_inexpressible(variant)
    for name, weight in _weights(model).items():
        refuse_unfit(name, weight, variant)


@torch.no_grad()
def export(
    loaded: Loaded,
    variant: Variant,
    folder: Path,
    *,
    shard: int = SHARD,
    heard: Heard = lambda _done, _all: None,
) -> Written:
    """Write the model with the linears of its decoder quantized into an existing folder, tensor after tensor.

    What is quantized is what `quantized` makes of this model in this variant, without searching scales. A tied output
    layer is left out. config.json is written last: a folder whose export was cut short is no model to anybody.

    shard: bytes of tensors a file. Raises InputError as refuse_unexportable does, and for values that are infinite in
    the variant's type of what is not quantized; OSError when the folder cannot be written.
    """
    refuse_unexportable(loaded.model, variant)
    linears = _weights(loaded.model)
    files, places, size = _write_shards(_tensors(loaded.model, variant, linears, heard), folder, shard)
    if len(files) > 1:
        index = {"metadata": {"total_size": size}, "weight_map": places}
        _write_json(folder / INDEX, index)
    save_tokenizer(loaded.tokenizer, folder)
    model: Any = loaded.model
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.save_pretrained(folder)
    _write_json(folder / "config.json", _config(model, variant))
    return Written(files, size, len(linears))


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1), encoding="utf-8")
    part.replace(path)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights that are quantized, by name."""
    return {
        f"{name}.weight": linear.weight
        for group in groups(model)
        for name, linear in zip(group.names, group.linears, strict=True)
    }


def _config(model: Any, variant: Variant) -> dict[str, Any]:
    given: dict[str, Any] = json.loads(model.config.to_json_string())
    given |= {"architectures": [type(model).__name__], "dtype": variant.rest}
    return given | {"quantization_config": quantization_config(variant)}


def _tensors(
    model: nn.Module, variant: Variant, linears: Mapping[str, Tensor], heard: Heard
) -> Iterator[tuple[str, Tensor]]:
    config: Any = model.config
    rest = getattr(torch, variant.rest)
    held = model.state_dict()
    for number, (name, value) in enumerate(held.items(), 1):
        if name in linears:
            stem = name.removesuffix("weight")
            for part, tensor in compressed(value, variant).items():
                yield stem + part, tensor
        elif not (name == OUTPUT and config.tie_word_embeddings):
            made = value.to(rest)
            if not bool(made.isfinite().all()):
                raise InputError(f"{name}: holds values that are not finite in {rest}; --dtype bfloat16 has the range")
            yield name, made
        heard(number, len(held))


def _write_shards(
    tensors: Iterator[tuple[str, Tensor]], folder: Path, most: int
) -> tuple[tuple[str, ...], dict[str, str], int]:
    """Names of the files, the file of each tensor, bytes of all. Files get their names when their number is known."""
    kept: list[list[str]] = []
    shard: dict[str, Tensor] = {}
    room, size = most, 0

    def flush() -> None:
        with disk_errors():
            part = folder / f"{len(kept)}.part"
            save_file(shard, part, metadata={"format": "pt"})
            part.chmod(0o644)  # it is written for its owner alone, and the server may run as another user
        kept.append(list(shard))
        shard.clear()

    for name, tensor in tensors:
        if shard and tensor.nbytes > room:
            flush()
            room = most
        shard[name] = tensor.cpu().contiguous().clone()
        room, size = room - tensor.nbytes, size + tensor.nbytes
    flush()
    files = _names(len(kept))
    for number, name in enumerate(files):
        (folder / f"{number}.part").replace(folder / name)
    return files, {name: file for file, names in zip(files, kept, strict=True) for name in names}, size


def _names(count: int) -> tuple[str, ...]:
    if count == 1:
        return ("model.safetensors",)
    return tuple(f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1))


def read_back(folder: Path) -> dict[str, Tensor]:
    """All weights of an exported folder in float32, quantized ones as their codes and scales give them back."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (group,) = config["quantization_config"]["config_groups"].values()
    held: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            names = opened.keys()
            held |= {name: opened.get_tensor(name) for name in names}
    stems = {name.removesuffix("weight_scale") for name in held if name.endswith(".weight_scale")}
    parts = ("weight", "weight_packed", "weight_scale", "weight_shape")
    found = {name: value.float() for name, value in held.items() if name.rpartition(".")[0] + "." not in stems}
    for stem in stems:
        own = {part: held[stem + part] for part in parts if stem + part in held}
        found[f"{stem}weight"] = decompressed(own, bits=group["weights"]["num_bits"])
        if f"{stem}bias" in held:
            found[f"{stem}bias"] = held[f"{stem}bias"].float()
    return found
