"""One pass over prompts: what every linear of the decoder reads and what every layer caches, channel by channel."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor, nn

from quantwatch.errors import InputError
from quantwatch.toolkit.families import groups
from quantwatch.toolkit.library import transformers
from quantwatch.toolkit.model import hidden_states
from quantwatch.toolkit.statistics import ChannelStatistics


class Kind(StrEnum):
    """What the channels of a site are."""

    INPUT = "input"
    KEYS = "keys"
    VALUES = "values"


@dataclass(frozen=True, slots=True)
class Site:
    """A place in one layer where activations were watched.

    layer: counted from 0. readers: names within the layer of the linears that read it; none for keys and values.
    """

    layer: int
    kind: Kind
    readers: tuple[str, ...]
    statistics: ChannelStatistics

    @property
    def place(self) -> str:
        """Which site of a layer, the same in every layer: `keys`, or `q_proj k_proj v_proj`."""
        return " ".join(name.rpartition(".")[2] for name in self.readers) or str(self.kind)

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"layer {self.layer}, {self.place}"

    @property
    def short(self) -> str:
        """Its name within the columns of a table: `28 q k v`."""
        return f"{self.layer} {self.place.replace('_proj', '')}"


Heard = Callable[[int, int], None]
"""Hears how many prompts of how many were read."""


class WatchedCache(transformers.DynamicCache):  # type: ignore[misc]  # transformers is used untyped
    """A growing cache that shows each layer's new keys and values, keys with their rotary position, as stored."""

    def __init__(self, config: Any, hear: Callable[[int, Tensor, Tensor], None]) -> None:
        super().__init__(config=config)
        self._hear = hear

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store what one layer adds; returns all its keys and values: (batch, heads, all, head_dim) each."""
        self._hear(layer_idx, key_states, value_states)
        held: tuple[Tensor, Tensor] = super().update(key_states, value_states, layer_idx, *args, **kwargs)
        return held


@torch.no_grad()
def survey(model: nn.Module, texts: Sequence[Tensor], *, heard: Heard = lambda _done, _all: None) -> tuple[Site, ...]:
    """Let the model read texts, each (1, n) ids, once; returns every site, layer by layer.

    Memory does not grow with the number of texts. Raises InputError where there is no text, for an unknown family, and
    where activations are not finite: statistics of them would mean nothing.
    """
    if not texts:
        raise InputError("nothing to look at: one prompt at least is wanted")
    sites, cached = _linear_sites(model), _cache_sites(model)
    config: Any = model.config
    with ExitStack() as hooks:
        for site, linear in sites:
            hooks.callback(_watch(linear, site.statistics))
        for number, ids in enumerate(texts, 1):
            cache = WatchedCache(config, lambda layer, k, v: _add(cached[layer], k, v))
            hidden_states(model, ids, cache)
            heard(number, len(texts))
    found = sorted([site for site, _ in sites] + [one for pair in cached for one in pair], key=lambda one: one.layer)
    _refuse_broken(found)
    return tuple(found)


def _linear_sites(model: nn.Module) -> list[tuple[Site, nn.Linear]]:
    found = []
    for group in groups(model):
        layer = int(group.names[0].split(".")[2])
        readers = tuple(name.split(".", 3)[3] for name in group.names)
        site = Site(layer, Kind.INPUT, readers, ChannelStatistics(group.columns))
        found.append((site, group.linears[0]))
    return found


def _cache_sites(model: nn.Module) -> list[tuple[Site, Site]]:
    config: Any = model.config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    channels = config.num_key_value_heads * head
    return [
        (
            Site(layer, Kind.KEYS, (), ChannelStatistics(channels)),
            Site(layer, Kind.VALUES, (), ChannelStatistics(channels)),
        )
        for layer in range(config.num_hidden_layers)
    ]


def _add(sites: tuple[Site, Site], keys: Tensor, values: Tensor) -> None:
    for site, states in zip(sites, (keys, values), strict=True):
        site.statistics.add(states.transpose(1, 2).flatten(2))  # a channel is one place in one head


def _watch(linear: nn.Linear, statistics: ChannelStatistics) -> Callable[[], None]:
    def hook(_: nn.Module, args: tuple[Any, ...]) -> None:
        statistics.add(args[0])

    return linear.register_forward_pre_hook(hook).remove


def _refuse_broken(sites: Sequence[Site]) -> None:
    broken = next((site for site in sites if site.statistics.broken), None)
    if broken is not None:
        raise InputError(
            f"{broken.name}: numbers that are not finite (NaN or infinity); the model is broken from here on. "
            "`quantwatch toolkit check-checkpoint` looks at its weights"
        )
