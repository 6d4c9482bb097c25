"""Keys and values rounded on their way into the cache."""

from typing import Any

from torch import Tensor

from quantwatch.toolkit.fake_quant import absmax_codes
from quantwatch.toolkit.library import transformers
from quantwatch.toolkit.recipe import KvBits

BITS = {KvBits.INT8: 8, KvBits.INT4: 4}


def stored(states: Tensor, *, bits: int) -> Tensor:
    """Keys or values as a cache of so many bits gives them back: (batch, heads, n, head_dim) float32.

    Symmetric, one scale per token and head, max|x| / (2^(bits-1) - 1) over head_dim.
    """
    codes, scale = absmax_codes(states, bits=bits)
    return codes * scale


class RoundedCache(transformers.DynamicCache):  # type: ignore[misc]  # transformers is used untyped
    """A growing cache whose keys and values have gone through so many bits.

    One scale per token and head is what vLLM offers as per-token-head quantization of its cache: dynamic, without
    calibration, and a token is never rounded twice. Keys come with their rotary position applied. It is not KIVI (Liu
    et al. 2024), which takes keys per channel because their outliers sit in fixed channels, and so holds up at 2 bits.
    Also the newest tokens are read back rounded, as where attention reads them from the cache; engines that attend
    to a prompt's fresh keys before storing them differ there. Nothing is packed: the memory is that of float32.
    """

    def __init__(self, config: Any, *, bits: int) -> None:
        super().__init__(config=config)
        self._bits = bits

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store what one layer adds; returns all its keys and values: (batch, heads, all, head_dim) each."""
        keys, values = stored(key_states, bits=self._bits), stored(value_states, bits=self._bits)
        held: tuple[Tensor, Tensor] = super().update(keys, values, layer_idx, *args, **kwargs)
        return held


def new_cache(config: Any, kv: KvBits | None) -> Any:
    """An empty cache for a model of this config; plain where kv is None."""
    return transformers.DynamicCache(config=config) if kv is None else RoundedCache(config, bits=BITS[kv])
