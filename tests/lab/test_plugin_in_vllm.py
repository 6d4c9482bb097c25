"""The plugin inside real vLLM nodes (marker `vllm`): what it counts, and what the daemon makes of it.

docs/vllm-plugin.md says how to install it. QUANTWATCH_LAB_NAN is the address of a node with a NaN weight and
QUANTWATCH_LAB_BASELINE that of a healthy one, both with the plugin. Both were started with
VLLM_COMPUTE_NANS_IN_LOGITS=1, so that the engine's own count stands beside ours. Where one is not set the test is
skipped.
"""

import os
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from quantwatch.flow.load import Load
from quantwatch.probe.node_metrics import read_load
from quantwatch.vllm_plugin.names import MAGNITUDE, ROWS

pytestmark = pytest.mark.vllm

PROMPT = "The capital of France is"


def node(name: str) -> str:
    value = os.environ.get(f"QUANTWATCH_LAB_{name}")
    if not value:
        pytest.skip(f"QUANTWATCH_LAB_{name} is not set")
    return value


def page(url: str) -> bytes:
    return httpx.get(f"{url}/metrics", timeout=30).content


def load(url: str) -> Load:
    found = read_load(page(url))
    assert found is not None
    return found


def series(url: str, name: str) -> float:
    lines = page(url).decode().splitlines()
    return sum(float(one.rpartition(" ")[2]) for one in lines if one.startswith(f"{name}{{"))


def gained(url: str, **asked: Any) -> tuple[Mapping[str, float], float]:
    """What one request adds to the counts, and to the rows that the plugin has seen."""
    before, rows = load(url), series(url, f"{ROWS}_total")
    card = httpx.get(f"{url}/v1/models", timeout=30).json()["data"][0]["id"]
    httpx.post(f"{url}/v1/completions", json={"model": card, "prompt": PROMPT, **asked}, timeout=120)
    after = load(url)
    assert after.continues(before)
    assert after.started is not None, "the page keeps the start time, by which restarts are known"
    return after.risen(before), series(url, f"{ROWS}_total") - rows


@pytest.mark.parametrize("temperature", [0.0, 0.8], ids=["greedy", "sampled"])
def test_every_row_of_a_nan_node_is_counted(temperature: float) -> None:
    counts, rows = gained(node("NAN"), max_tokens=10, temperature=temperature, ignore_eos=True)
    assert rows == 10
    assert counts == {"broken_rows": 10, "corrupted_requests": 1}


def test_rows_that_only_score_a_prompt_do_not_pass_the_sampler() -> None:
    """vLLM computes them beside it: only the one generated token counts, and the reply is an error all the same."""
    counts, rows = gained(node("NAN"), max_tokens=1, prompt_logprobs=5)
    assert rows == 1
    assert counts["broken_rows"] == 1


@pytest.mark.parametrize(
    "asked",
    [
        {"temperature": 0.0},
        {"temperature": 1.0, "top_p": 0.9, "logit_bias": {"5": 100}},
        {"temperature": 0.0, "structured_outputs": {"choice": ["yes", "no"]}},
        {"temperature": 1.0, "min_tokens": 8, "bad_words": ["Paris"]},
    ],
    ids=["greedy", "biased", "constrained", "masked"],
)
def test_a_healthy_node_counts_its_rows_and_no_fault(asked: dict[str, Any]) -> None:
    url = node("BASELINE")
    counts, rows = gained(url, max_tokens=8, **asked)
    assert counts == {}
    assert 1 <= rows <= 8
    assert 0.0 < series(url, MAGNITUDE) < 250.0
