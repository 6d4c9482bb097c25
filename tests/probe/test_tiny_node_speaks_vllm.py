"""The tests' own node against recordings of vLLM 0.32: the same fields, the same shapes, the same refusals."""

import json
from typing import Any

import httpx
import pytest

from support.recordings import exchange
from support.tiny_node import TinyNode

IDS = [256, 72, 101, 108, 108, 111]


async def ask(path: str, body: dict[str, Any], *, node: TinyNode | None = None) -> tuple[int, Any]:
    transport = httpx.ASGITransport(app=(node or TinyNode()).app())
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        answer = await client.post(path, json={"model": "tiny", **body})
    return answer.status_code, answer.json()


def shape(value: Any) -> Any:
    """Types instead of values: of a list its second element (the first may be null), of an object by ids one value."""
    if isinstance(value, list):
        return [shape(value[min(1, len(value) - 1)])] if value else []
    if isinstance(value, dict):
        if value and all(key.lstrip("-").isdigit() for key in value):
            return {"<id>": shape(next(iter(value.values())))}
        if value and all(key.startswith("token_id:") for key in value):
            return {"token_id:<id>": shape(next(iter(value.values())))}
        return {key: shape(one) for key, one in value.items()}
    return type(value).__name__


def choice_shape(reply: Any) -> dict[str, Any]:
    keys = ("index", "token_ids", "prompt_token_ids", "prompt_logprobs", "logprobs", "finish_reason")
    return {key: shape(reply["choices"][0][key]) for key in keys}


@pytest.mark.parametrize(
    ("call", "asked"),
    [
        ("c_ids_prompt_logprobs5", {"prompt": IDS, "max_tokens": 1, "prompt_logprobs": 5}),
        ("c_ids_logprobs5_tokids", {"prompt": IDS, "max_tokens": 3, "logprobs": 5}),
        ("c_logprob_token_ids", {"prompt": IDS, "max_tokens": 1, "logprobs": 1, "logprob_token_ids": [1, 2, 3, 100]}),
        ("c_batch_prefixes", {"prompt": [IDS[:2], IDS[:3], IDS[:4], IDS], "max_tokens": 1, "logprobs": 5}),
    ],
)
async def test_completions_have_the_recorded_shape(call: str, asked: dict[str, Any]) -> None:
    status, reply = await ask("/v1/completions", {**asked, "return_token_ids": True})

    assert status == 200
    assert choice_shape(reply) == choice_shape(json.loads(exchange(call).body))


@pytest.mark.parametrize(
    ("call", "asked", "node"),
    [
        ("c_over_cap", {"prompt": IDS, "max_tokens": 1, "logprobs": 500}, TinyNode(cap=100)),
        ("c_over_cap_prompt", {"prompt": IDS, "max_tokens": 1, "prompt_logprobs": 500}, TinyNode(cap=100)),
    ],
)
async def test_over_the_cap_is_the_recorded_refusal(call: str, asked: dict[str, Any], node: TinyNode) -> None:
    got = await ask("/v1/completions", asked, node=node)

    assert got == (exchange(call).status, json.loads(exchange(call).body))


async def test_nan_is_the_recorded_refusal() -> None:
    recorded = exchange("c_ids_prompt_logprobs5", node="nan")

    got = await ask(
        "/v1/completions", {"prompt": IDS, "max_tokens": 1, "prompt_logprobs": 5}, node=TinyNode(nan_on=lambda _: True)
    )

    assert got == (recorded.status, json.loads(recorded.body))


async def test_tokenize_has_the_recorded_fields() -> None:
    _, reply = await ask("/tokenize", {"prompt": "abc"})

    assert set(reply) == set(json.loads(exchange("tokenize").body))


async def test_the_model_card_has_the_recorded_fields_that_are_read() -> None:
    recorded = json.loads(exchange("models").body)["data"][0]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=TinyNode().app()), base_url="http://t") as client:
        card = (await client.get("/v1/models")).json()["data"][0]

    assert {key: shape(value) for key, value in card.items()} == {key: shape(recorded[key]) for key in card}
