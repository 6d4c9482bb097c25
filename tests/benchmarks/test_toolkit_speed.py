"""A fake-quantized forward pass against the plain one, as ratios within one run."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from quantwatch.toolkit.capture import capture
from quantwatch.toolkit.fake_quant import quantize
from quantwatch.toolkit.formats import GROUPED, Format, Variant
from quantwatch.toolkit.model import logits
from quantwatch.toolkit.quantize_study import quantized
from quantwatch.toolkit.recipe import Scheme
from support.toolkit import a_model

pytestmark = pytest.mark.benchmark

ROUNDS = 8
TOKENS = 256
MOST = 1.6
SIZES: dict[str, dict[str, Any]] = {
    "like SmolLM2": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 4},
    # So many columns that the sums of one block are not exact in float32, and blocks are added up.
    "wide": {"hidden_size": 512, "intermediate_size": 8192, "num_hidden_layers": 1},
}


def cpu_seconds(action: Callable[[], object]) -> float:
    """CPU time of this process, so that neighbours on the machine count for less."""
    started = time.process_time()
    action()
    return time.process_time() - started


def plain(size: str) -> torch.nn.Module:
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64}
    given = heads | SIZES[size]
    return a_model(**given, vocab_size=4000, max_position_embeddings=1024, initializer_range=0.02)


@torch.inference_mode()
def ratio(changed: torch.nn.Module, model: torch.nn.Module) -> float:
    """How much more CPU time one takes, the least disturbed of each; they take turns on the machine."""
    ids = torch.randint(3, 3000, (1, TOKENS), generator=torch.Generator().manual_seed(0))
    logits(changed, ids), logits(model, ids)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(cpu_seconds(lambda: logits(changed, ids)))
        theirs.append(cpu_seconds(lambda: logits(model, ids)))
    return min(ours) / min(theirs)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", Format)
def test_a_fake_quantized_forward_costs_at_most_1_6_plain_ones(name: Format, size: str) -> None:
    torch.set_num_threads(1)
    model = plain(size)
    found = ratio(quantized(model, Variant(name, 64 if name in GROUPED else 0), {}), model)
    print(f"\n{name}, {size}: {found:.2f} plain forwards")  # noqa: T201, the point of a benchmark
    assert found <= MOST


def test_so_does_one_with_static_activations() -> None:
    torch.set_num_threads(1)
    model, changed = plain("like SmolLM2"), plain("like SmolLM2")
    quantize(changed, Scheme.W8A8_STATIC, inputs=capture(changed, [torch.arange(3, 120).unsqueeze(0)]))
    found = ratio(changed, model)
    print(f"\nstatic w8a8: {found:.2f} plain forwards")  # noqa: T201, the point of a benchmark
    assert found <= MOST
