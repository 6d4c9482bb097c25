"""Which linear layers of a decoder read which norm, as data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from quantwatch.errors import InputError


@dataclass(frozen=True, slots=True)
class Family:
    """How the decoder layers of one model type are wired.

    reads: for each norm the linears that read it, and nothing else may read it. alone: linears whose input no norm
    makes, each with the linear whose output channels scale it: nothing else may read those, and between the two every
    channel is only weighted and added up over tokens, or multiplied by another tensor. Where the maker has fewer
    channels, heads share them (grouped-query attention). All are names within a decoder layer; the norms are root mean
    square norms whose gain multiplies last.
    """

    reads: Mapping[str, tuple[str, ...]]
    alone: Mapping[str, str]


GATED = Family(
    reads={
        "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
    },
    alone={"self_attn.o_proj": "self_attn.v_proj", "mlp.down_proj": "mlp.up_proj"},
)
"""Pre-norm attention and a gated MLP."""

FAMILIES = {"llama": GATED, "mistral": GATED, "qwen2": GATED, "qwen3": GATED}
"""By the model type of config.json. Qwen3's further norms of queries and keys stand behind the projections."""


@dataclass(frozen=True, slots=True)
class Group:
    """Linear layers that read one and the same tensor.

    names: of the linears, within the model. norm: what makes the tensor, None where it is not a norm. maker: then the
    linear whose output channels scale it. channels: (columns,) int64, which of them scales each column.
    """

    names: tuple[str, ...]
    linears: tuple[nn.Linear, ...]
    norm: nn.Module | None
    maker: nn.Linear | None = None
    channels: Tensor | None = None

    @property
    def columns(self) -> int:
        """Length of the tensor's last dimension."""
        return self.linears[0].in_features

    @property
    def gain(self) -> Tensor:
        """The norm's gain: (columns,). Raises ValueError where no norm makes the tensor."""
        if self.norm is None:
            raise ValueError(f"{self.names[0]} reads no norm")
        return self.norm.get_parameter("weight")


def groups(model: nn.Module) -> list[Group]:
    """All linear layers of the decoder, layer by layer, by what they read. Raises InputError for an unknown family."""
    config: Any = model.config
    family = family_of(config.model_type)
    return [
        group for i in range(config.num_hidden_layers) for group in _in_layer(model, f"model.layers.{i}", family=family)
    ]


def family_of(kind: object) -> Family:
    """The family of a model type. Raises InputError for an unknown one, with what to do about it."""
    family = FAMILIES.get(str(kind))
    if family is None:
        raise InputError(
            f"models of type {kind!r} cannot be quantized here; known types: {', '.join(FAMILIES)}. "
            "A new one is a line of data: FAMILIES in quantwatch/toolkit/families.py, which says what reads what"
        )
    return family


def _in_layer(model: nn.Module, layer: str, *, family: Family) -> Iterator[Group]:
    for norm, readers in family.reads.items():
        yield _group(model, [f"{layer}.{name}" for name in readers], norm=f"{layer}.{norm}")
    for name, maker in family.alone.items():
        alone = _group(model, [f"{layer}.{name}"], norm=None)
        made = _group(model, [f"{layer}.{maker}"], norm=None).linears[0]
        yield replace(alone, maker=made, channels=_channels(model, made.out_features, alone.columns))


def _channels(model: nn.Module, made: int, columns: int) -> Tensor:
    """Which of the made channels each column is: its own, or that of the head which its head shares."""
    if made == columns:
        return torch.arange(columns)
    config: Any = model.config
    heads, shared = int(config.num_attention_heads), int(config.num_key_value_heads)
    size = columns // heads
    place = torch.arange(columns)
    head = place // size // (heads // shared)
    return head * size + place % size


def _group(model: nn.Module, names: list[str], *, norm: str | None) -> Group:
    linears = [model.get_submodule(name) for name in names]
    if not all(isinstance(linear, nn.Linear) for linear in linears):
        raise InputError(f"{names[0]} is quantized already; a full-precision model is wanted")
    plain = tuple(linear for linear in linears if isinstance(linear, nn.Linear))
    return Group(tuple(names), plain, None if norm is None else model.get_submodule(norm))
