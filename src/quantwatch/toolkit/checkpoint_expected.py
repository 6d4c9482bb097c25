"""Which tensors a model of known family needs, and whether a checkpoint has them in the right shape."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from quantwatch.toolkit.checkpoint import Checkpoint, Complaint, Stored, fault, risk
from quantwatch.toolkit.families import FAMILIES
from quantwatch.toolkit.library import UNREADABLE, transformers

QUANTIZED = ("weight_packed", "qweight")
"""What may stand in the place of `weight`."""


def expected_complaints(checkpoint: Checkpoint) -> list[Complaint]:
    """Tensors that are missing or of the wrong shape, held against the model that config.json describes.

    Only for the families that are known here: others may store their tensors under other names than they compute with.
    A tied output layer may be left out. Says nothing about tensors in a checkpoint whose files are not whole.
    """
    kind = checkpoint.config.get("model_type")
    if not checkpoint.config:
        return []
    if kind not in FAMILIES:
        known = ", ".join(FAMILIES)
        return [
            risk(
                "config.json", f"models of type {kind!r} are not known here, so no missing tensor is found; {known} are"
            )
        ]
    try:
        shapes = _shapes(checkpoint.config)
    except UNREADABLE as exc:
        return [fault("config.json", f"no model can be made of it: {exc}")]
    return list(_compared(checkpoint, shapes))


def _shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all weights, without any memory for them."""
    given = {name: value for name, value in config.items() if name not in ("quantization_config", "model_type")}
    made = transformers.AutoConfig.for_model(config["model_type"], **given)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(made)
    left_out = {"lm_head.weight"} if made.tie_word_embeddings else set()
    return {name: tuple(value.shape) for name, value in model.state_dict().items() if name not in left_out}


def _compared(checkpoint: Checkpoint, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Complaint]:
    for name, shape in shapes.items():
        stored = checkpoint.tensors.get(name)
        if stored is not None:
            yield from _shape(stored, shape)
        elif checkpoint.whole and not _quantized(name, checkpoint.tensors):
            yield fault(name, "missing")


def _shape(stored: Stored, shape: tuple[int, ...]) -> Iterator[Complaint]:
    if stored.shape != shape:
        yield fault(stored.name, f"has shape {list(stored.shape)}, and config.json asks for {list(shape)}")


def _quantized(name: str, tensors: Mapping[str, Stored]) -> bool:
    stem = name.removesuffix("weight")
    return name.endswith(".weight") and any(stem + one in tensors for one in QUANTIZED)
