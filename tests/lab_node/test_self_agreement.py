"""A node agrees with itself: a text gets the same numbers alone, as a prefix and scored.

Below 16 positions, and so where an int8 node writes token by token, a code may still flip: products of few rows are
summed in another order than those of many. Probes never compare what a quantized node has written.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from quantwatch.lab.app import Node
from quantwatch.toolkit.recipe import Recipe, Scheme
from support.lab_nodes import ask, complete, lab_node
from support.real_model import smollm2
from support.recordings import scored
from support.tiny_llama import tiny_llama

LENGTHS = (16, 17, 24, 33, 50, 64)
ASKED = {"max_tokens": 1, "logprobs": 20, "return_tokens_as_token_ids": True}
OUTLIERS = Recipe(Scheme.W8A8, outliers=100.0)

Top = Mapping[int, float]


def tops(choice: dict[str, Any]) -> list[Top]:
    """The distributions behind generated tokens, by token id."""
    rows = choice["logprobs"]["top_logprobs"]
    return [{int(name.removeprefix("token_id:")): value for name, value in row.items()} for row in rows]


async def rows_of(lab: Node, ids: Sequence[int]) -> list[Top]:
    """The distribution after each prefix that the text goes on behind, beginning with one token."""
    choice = await complete(lab, prompt=list(ids), max_tokens=1, prompt_logprobs=20)
    return [{int(token): one["logprob"] for token, one in row.items()} for row in choice["prompt_logprobs"][1:]]


def furthest(some: Sequence[Top], others: Sequence[Top]) -> float:
    """Largest difference in nats of a token that both list."""
    assert len(some) == len(others) > 0
    pairs = [(a[token], b[token]) for a, b in zip(some, others, strict=True) for token in a.keys() & b.keys()]
    assert len(pairs) >= 5 * len(some)
    return max(math.fabs(a - b) for a, b in pairs)


async def disagreements(lab: Node, ids: list[int]) -> dict[str, float]:
    """How far each way to ask is from scoring the whole text, in nats."""
    rows = await rows_of(lab, ids)
    prefixes, wanted = [ids[:length] for length in LENGTHS], [rows[length - 1] for length in LENGTHS]
    alone = [tops(await complete(lab, prompt=one, **ASKED))[0] for one in prefixes]
    batch = await ask(lab, "/v1/completions", {"prompt": prefixes, "temperature": 0, **ASKED})
    written = await complete(lab, prompt=ids[:40], ignore_eos=True, **{**ASKED, "max_tokens": 16})
    again = await rows_of(lab, ids[:40] + written["token_ids"])
    return {
        "alone": furthest(alone, wanted),
        "batch": furthest([tops(one)[0] for one in batch.json()["choices"]], wanted),
        "written": furthest(tops(written), again[39:]),
    }


async def test_a_random_int8_node_with_outliers_agrees_with_itself(tmp_path: Path) -> None:
    folder = tiny_llama(
        tmp_path / "deep",
        hidden_size=192,
        intermediate_size=384,
        num_hidden_layers=6,
        num_attention_heads=3,
        num_key_value_heads=1,
        initializer_range=0.08,
    )
    lab = lab_node(folder, recipe=OUTLIERS)

    found = await disagreements(lab, [(7 * i) % 397 + 3 for i in range(300)])

    assert max(found["alone"], found["batch"]) < 1e-3, found


@pytest.mark.model
@pytest.mark.parametrize("recipe", [OUTLIERS, Recipe(Scheme.W8A8_STATIC, outliers=100.0), Recipe()], ids=str)
async def test_the_real_model_agrees_with_itself(recipe: Recipe) -> None:
    lab = lab_node(smollm2(), recipe=recipe)

    found = await disagreements(lab, list(scored("fp32")[0][0].ids))

    assert max(found["alone"], found["batch"]) < 1e-3, found
    assert recipe.scheme is not Scheme.FP32 or found["written"] < 1e-3
