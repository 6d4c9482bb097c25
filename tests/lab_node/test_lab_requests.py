"""What a lab node refuses, and what it lets pass."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.lab.app import Node
from quantwatch.lab.fields import json_object
from quantwatch.lab.refused import Refused
from quantwatch.lab.request import NEUTRAL, completion_request
from quantwatch.probe.vllm import NEUTRAL as SENT_BY_THE_PROBE
from support.lab_nodes import ask, lab_node
from support.tiny_llama import tiny_llama


@pytest.fixture(scope="module")
def lab(tiny: Path) -> Node:
    return lab_node(tiny)


def test_what_the_probe_always_sends_is_understood() -> None:
    asked = completion_request({"prompt": [1, 2], "max_tokens": 1, **SENT_BY_THE_PROBE})

    assert asked.sampling.temperature == 0
    assert asked.names_ids


def test_left_out_fields_are_vllms_defaults() -> None:
    asked = completion_request({"prompt": "a"})

    assert (asked.max_tokens, asked.sampling.temperature, asked.logprobs, asked.special_tokens) == (16, 1.0, None, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2),
        ("stream", True),
        ("presence_penalty", 0.5),
        ("logit_bias", {"5": 1}),
        ("logprob_token_ids", [1]),
        ("suffix", "x"),
        ("temperature", -1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", 10**400),
        ("temperature", "hot"),
        ("top_p", 0),
        ("top_p", 1.1),
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("logprobs", -2),
        ("echo", 1),
        ("stop", [""]),
        ("stop", 5),
        ("stop_token_ids", ["a"]),
        ("seed", "x"),
        ("prompt", []),
        ("prompt", None),
        ("prompt", [[1], 2]),
        ("prompt", {"a": 1}),
    ],
)
def test_a_wrong_field_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(Refused) as caught:
        completion_request({"prompt": "a", name: value})

    assert caught.value.param == name
    assert name in caught.value.message


@pytest.mark.parametrize(("name", "values"), NEUTRAL.items())
def test_values_that_change_nothing_pass(name: str, values: tuple[Any, ...]) -> None:
    for value in (*values, None):
        completion_request({"prompt": "a", name: value})


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ("a",)),
        ([1, 2], ((1, 2),)),
        (["a", "b"], ("a", "b")),
        ([[1], [2, 3]], ((1,), (2, 3))),
        (["a", [2, 3]], ("a", (2, 3))),
    ],
)
def test_prompts_are_texts_or_ids_or_lists_of_them(prompt: Any, prompts: Any) -> None:
    assert completion_request({"prompt": prompt}).prompts == prompts


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(Refused):
        json_object(body)


def posted(lab: Node, path: str, body: bytes) -> httpx.Response:
    """What a client sees, also where the node meets a fault of its own."""

    async def post() -> httpx.Response:
        transport = httpx.ASGITransport(app=lab.app(), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://lab") as client:
            return await client.post(path, content=body)

    return asyncio.run(post())


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", rb'{"prompt": "a\ud800", "max_tokens": 1}', "prompt"),
        ("/v1/completions", rb'{"prompt": [[5], "\udc00"], "max_tokens": 1}', "prompt"),
        ("/v1/completions", rb'{"prompt": [5], "model": "\uD800"}', "model"),
        ("/v1/completions", rb'{"prompt": [5], "stop": ["\ud800"]}', "stop"),
        ("/v1/completions", rb'{"prompt": [5], "\ud800": 1}', r"\ud800"),
        ("/v1/completions", b'{"prompt": "\xed\xa0\x80", "max_tokens": 1}', None),
        ("/v1/completions", b'{"prompt": [5], "temperature": 1' + b"0" * 400 + b"}", "temperature"),
        ("/tokenize", rb'{"prompt": "\ud800"}', "prompt"),
        ("/tokenize", rb'{"messages": [{"role": "user", "content": "\ud800"}]}', "messages"),
        ("/detokenize", rb'{"tokens": [5], "model": "\ud800"}', "model"),
    ],
)
def test_what_no_encoding_or_number_can_hold_is_refused_by_its_name(
    lab: Node, path: str, body: bytes, param: str | None
) -> None:
    answer = posted(lab, path, body)

    assert answer.status_code == 400
    told = answer.json()["error"]
    assert (told["type"], told["param"], told["code"]) == ("BadRequestError", param, 400)


def test_a_whole_surrogate_pair_is_text(lab: Node) -> None:
    assert posted(lab, "/tokenize", rb'{"prompt": "\ud83d\ude00"}').status_code == 200


@pytest.mark.parametrize("template", ["{{ raise_exception('roles must alternate') }}", "{{ 1 + 'a' }}", "{% broken %}"])
def test_a_chat_template_that_does_not_take_the_messages_is_told(tmp_path: Path, template: str) -> None:
    folder = tiny_llama(tmp_path / "tiny")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")

    answer = posted(lab_node(folder), "/tokenize", b'{"messages": [{"role": "user", "content": "hi"}]}')

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")
    assert "chat template" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "fits"),
    [
        ([5] * 511, 1, True),
        ([5] * 511, 2, False),
        ([5] * 512, 1, False),
        ([5] * 513, 1, False),
        ([5] * 496, None, True),
        ([5] * 497, None, False),
    ],
)
async def test_prompt_and_answer_must_fit_together(lab: Node, prompt: Any, max_tokens: Any, *, fits: bool) -> None:
    answer = await ask(lab, "/v1/completions", {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0})

    assert answer.status_code == (200 if fits else 400)
    if not fits:
        assert answer.json()["error"]["param"] == "input_tokens"
        assert "512" in answer.json()["error"]["message"]


async def test_the_whole_vocabulary_is_over_the_cap(lab: Node) -> None:
    answer = await ask(lab, "/v1/completions", {"prompt": [5], "max_tokens": 1, "logprobs": -1})

    assert answer.json()["error"]["param"] == "logprobs"
    assert "max allowed: 20" in answer.json()["error"]["message"]


async def test_the_whole_vocabulary_is_given_where_allowed(tiny: Path) -> None:
    lab = lab_node(tiny, max_logprobs=-1)

    answer = await ask(lab, "/v1/completions", {"prompt": [5, 6], "max_tokens": 1, "prompt_logprobs": -1})

    rows = answer.json()["choices"][0]["prompt_logprobs"]
    assert len(rows[1]) == 400


@pytest.mark.parametrize("prompt", ["", [], [[]]])
async def test_an_empty_prompt_is_refused(lab: Node, prompt: Any) -> None:
    assert (await ask(lab, "/v1/completions", {"prompt": prompt})).status_code == 400


@pytest.mark.parametrize(("path", "status"), [("/v1/embeddings", 404), ("/v1/completions", 405)])
async def test_what_is_not_there_is_told_as_vllm_does(lab: Node, path: str, status: int) -> None:
    answer = await ask(lab, path)

    assert answer.status_code == status
    assert answer.json()["error"]["code"] == status


async def test_tokens_become_text_and_text_tokens(lab: Node) -> None:
    text = "The quick 今天 <|im_start|>fox"
    ids = (await ask(lab, "/tokenize", {"prompt": text})).json()["tokens"]

    assert (await ask(lab, "/detokenize", {"tokens": ids})).json() == {"prompt": text}


async def test_a_conversation_goes_through_the_chat_template(lab: Node) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": True}
    ids = (await ask(lab, "/tokenize", body)).json()["tokens"]

    told = (await ask(lab, "/detokenize", {"tokens": ids})).json()["prompt"]

    assert told == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("body", [{}, {"messages": []}, {"messages": [{"role": "user"}]}, {"prompt": 5}])
async def test_tokenize_needs_a_text_or_a_conversation(lab: Node, body: dict[str, Any]) -> None:
    assert (await ask(lab, "/tokenize", body)).status_code == 400


async def test_named_tokens_are_listed_with_the_generated_one_and_their_own_values(lab: Node) -> None:
    asked = {"prompt": [1, 2, 3], "max_tokens": 1, "temperature": 0, "return_tokens_as_token_ids": True}
    whole = (await ask(lab, "/v1/completions", {**asked, "logprobs": 20})).json()["choices"][0]["logprobs"]
    (top,) = whole["top_logprobs"]
    third, ninth = [*top][2], [*top][8]

    named = [int(name.removeprefix("token_id:")) for name in (ninth, third)]
    got = (await ask(lab, "/v1/completions", {**asked, "logprobs": 1, "logprob_token_ids": named})).json()

    listed = got["choices"][0]["logprobs"]
    assert listed["tokens"] == whole["tokens"]
    assert listed["top_logprobs"] == [{name: top[name] for name in (*whole["tokens"], ninth, third)}]


@pytest.mark.parametrize(
    ("named", "said"),
    [([5] * 129, "128 tokens at most"), ([1_000_000], "out-of-vocab"), ([-1], "out-of-vocab")],
)
async def test_tokens_that_cannot_be_named_are_refused(lab: Node, named: list[int], said: str) -> None:
    body = {"prompt": [1], "max_tokens": 1, "logprobs": 1, "logprob_token_ids": named}
    answer = await ask(lab, "/v1/completions", body)

    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == "logprob_token_ids"
