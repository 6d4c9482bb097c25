"""Keys and values go through the cache's bits, when scoring as when generating."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from quantwatch.toolkit.kv_cache import RoundedCache, new_cache, stored
from quantwatch.toolkit.model import hidden_states
from quantwatch.toolkit.prepare import prepare
from quantwatch.toolkit.recipe import KvBits, Recipe
from support.tiny_llama import tiny_llama
from support.toolkit import a_model, some_ids


def states(seed: int = 0) -> Tensor:
    """Keys of two texts, three heads, five tokens: (2, 3, 5, 16)."""
    return torch.randn(2, 3, 5, 16, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bits", [4, 8])
def test_every_token_and_head_has_a_scale_of_its_own(bits: int) -> None:
    x, top = states(), 2 ** (bits - 1) - 1
    out = stored(x, bits=bits)
    for text in range(2):
        for head in range(3):
            for token in range(5):
                row = x[text, head, token]
                scale = row.abs().max() / top
                torch.testing.assert_close(out[text, head, token], (row / scale).round() * scale)


def test_a_zero_key_stays_zero() -> None:
    x = states()
    x[0, 1, 2] = 0.0
    out = stored(x, bits=4)
    assert not out[0, 1, 2].any()
    assert bool(out.isfinite().all())


def test_the_cache_gives_back_what_it_has_stored() -> None:
    cache = RoundedCache(a_model().config, bits=4)
    keys, values = states(1), states(2)
    cache.update(keys, values, 0)
    held = cache.update(keys[:, :, :1], values[:, :, :1], 0)
    for got, given in zip(held, (keys, values), strict=True):
        assert torch.equal(got, torch.cat([stored(given, bits=4), stored(given[:, :, :1], bits=4)], dim=2))
    assert cache.get_seq_length() == 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"))


def divergence(folder: Path, kv: KvBits) -> float:
    plain, rounded = (prepare(folder, Recipe(kv=one), tell=print) for one in (None, kv))
    p, q = (one.logits(some_ids(40)).log_softmax(-1) for one in (plain, rounded))
    return float((p.exp() * (p - q)).sum(-1).mean())


def test_fewer_bits_diverge_more(folder: Path) -> None:
    eight, four = divergence(folder, KvBits.INT8), divergence(folder, KvBits.INT4)
    assert 0 < eight < 1e-3
    assert four > 20 * eight


@pytest.mark.parametrize("kv", [None, *KvBits])
def test_scoring_gives_what_generating_token_by_token_gives(folder: Path, kv: KvBits | None) -> None:
    prepared, ids = prepare(folder, Recipe(kv=kv), tell=print), some_ids(20)
    at_once, cache = prepared.logits(ids), prepared.new_cache()
    one_by_one = torch.cat([prepared.logits(ids[:, i : i + 1], cache) for i in range(20)], dim=1)
    # A key at the edge between two codes may fall on either side, so int4 is compared by its typical distance.
    distance = (at_once - one_by_one).abs()
    assert float(distance.median()) < 1e-4
    assert cache.get_seq_length() == 20


def test_a_cropped_cache_goes_on_from_there(folder: Path) -> None:
    prepared, ids = prepare(folder, Recipe(kv=KvBits.INT8), tell=print), some_ids(12)
    cache = prepared.new_cache()
    whole = prepared.logits(ids, cache)
    cache.crop(-4)
    again = prepared.logits(ids[:, 8:], cache)
    torch.testing.assert_close(again, whole[:, 8:], atol=1e-3, rtol=1e-3)


def test_a_plain_cache_rounds_nothing() -> None:
    model, ids = a_model(), some_ids()
    cache = new_cache(model.config, None)
    torch.testing.assert_close(hidden_states(model, ids, cache), hidden_states(model, ids))
    assert not isinstance(cache, RoundedCache)
