"""One contract, three servers: what the product's probe relies on holds for the lab node, recorded vLLM and vLLM."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.errors import Misconfigured, OverBudget, OverCap, ReplyCorrupted, ReplyInvalid
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.handshake import Point
from quantwatch.flow.prompt import GoldenSequence, ProbeMode
from quantwatch.net import Answer, Limits
from quantwatch.probe import reply
from quantwatch.probe.contract import Ask
from quantwatch.probe.handshake import introduce
from quantwatch.probe.ledger import Ledger
from quantwatch.probe.node_metrics import read_load
from quantwatch.probe.refusal import refuse
from quantwatch.probe.vllm import VllmProber
from support.builders import prober
from support.contract_servers import Server, broken_server, contract_server
from support.recordings import exchange

TEXT = "请推导微积分基本定理并写出 C++ 实现:"
"""The recorded prompt; its characters are cut in the middle by many tokenizers."""

ENGLISH = "Analyze the following transactional SQL deadlock scenario step-by-step:"
KINDS = ["lab", "recorded", pytest.param("vllm", marks=pytest.mark.vllm)]
SCORED = {"max_tokens": 1, "prompt_logprobs": 5, "return_token_ids": True}
NAMED = {"logprobs": 5, "return_tokens_as_token_ids": True, "return_token_ids": True}
PATIENT = Limits(connect_seconds=5, total_seconds=120, response_bytes=10_000_000, attempts=1)


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tiny: Path) -> Server:
    return contract_server(request.param, tiny)


@pytest.fixture(params=KINDS)
def broken(request: pytest.FixtureRequest, tiny: Path) -> Server:
    return broken_server(request.param, tiny)


def asking(server: Server) -> VllmProber:
    return prober(server.transport, host=httpx.URL(server.url).netloc.decode(), model=None, limits=PATIENT)


async def ids_of(server: Server) -> list[int]:
    ids: list[int] = (await server.post("/tokenize", prompt=TEXT)).json()["tokens"]
    return ids


async def completion(server: Server, **body: Any) -> dict[str, Any]:
    answer = await server.post("/v1/completions", **{"temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


def answer_of(response: httpx.Response) -> Answer:
    return Answer(response.status_code, response.content, 0.0)


def shape(value: Any) -> Any:
    """Types instead of values: of a list its last element, of an object by tokens one value."""
    if isinstance(value, list):
        return [shape(value[-1])] if value else []
    if isinstance(value, dict):
        by_token = value and all(key.isdigit() or key.startswith("token_id:") for key in value)
        return {"token": shape(next(iter(value.values())))} if by_token else {key: shape(value[key]) for key in value}
    return type(value).__name__


def recorded_shape(call: str) -> Any:
    return shape(json.loads(exchange(call).body))


async def scored(server: Server) -> Distribution:
    sequence = GoldenSequence("s", tuple(await ids_of(server)), 4)
    probe = asking(server)
    await probe.identify()
    return await probe.distribution(sequence, Ask(ProbeMode.PROMPT_SCORING, 5))


async def test_it_introduces_itself(server: Server) -> None:
    who = await asking(server).identify()

    assert who.model == (await server.get("/v1/models")).json()["data"][0]["id"]
    assert who.max_model_len
    assert who.version == "0.32.0"
    assert who.started is not None


async def test_the_handshake_succeeds(server: Server) -> None:
    ledger = Ledger()
    met = await introduce(asking(server), k=20, modes=[ProbeMode.PROMPT_SCORING], ledger=ledger)

    seen = {one.point: one.ok for one in ledger.seen}
    assert met.k == 20
    assert met.identity.tokenizer
    assert ledger.complete
    assert not [point for point, ok in seen.items() if ok is False]
    assert seen[Point.LOGPROBS_MODE] is seen[Point.FIELDS] is seen[Point.ONE_SERVER] is True


async def test_health_is_an_empty_200(server: Server) -> None:
    answer = await server.get("/health")

    assert (answer.status_code, answer.content) == (200, b"")


async def test_the_metrics_page_tells_load_and_start(server: Server) -> None:
    load = read_load((await server.get("/metrics")).content)

    assert load is not None
    assert load.waiting == 0
    assert load.kv_usage == 0
    assert load.started is not None


async def test_tokenize_counts_and_names_the_pieces(server: Server) -> None:
    told = (await server.post("/tokenize", prompt=TEXT, return_token_strs=True)).json()

    assert shape(told) == recorded_shape("tokenize")
    assert told["count"] == len(told["tokens"]) == len(told["token_strs"])


async def test_the_model_list_has_the_recorded_shape(server: Server) -> None:
    assert shape((await server.get("/v1/models")).json()) == recorded_shape("models")


async def test_every_position_is_scored(server: Server) -> None:
    got = await scored(server)

    assert list(got.positions) == list(range(1, len(await ids_of(server))))
    assert got.marks == ()
    assert max(got.actual) <= 0


async def test_scoring_replies_have_the_recorded_shape(server: Server) -> None:
    got = await completion(server, prompt=await ids_of(server), **SCORED)

    assert shape(got) == recorded_shape("c_ids_prompt_logprobs5")


async def test_the_own_token_comes_first_and_ranks_follow(server: Server) -> None:
    ids = await ids_of(server)
    rows = (await completion(server, prompt=ids, **SCORED))["choices"][0]["prompt_logprobs"]

    assert rows[0] is None
    for own, row in zip(ids[1:], rows[1:], strict=True):
        keys = list(row)
        assert keys[0] == str(own)
        assert len(row) in (5, 6)
        assert {row[key]["rank"] for key in keys[1:]} | {row[str(own)]["rank"]} >= {1, 2, 3, 4, 5}
        others = [row[key]["logprob"] for key in keys[1:]]
        assert all(a >= b for a, b in pairwise(others))


async def test_prefixes_give_the_numbers_of_scoring(server: Server) -> None:
    """The same positions by two ways of asking; a batch that shares its forward pass changes nothing."""
    ids = await ids_of(server)
    lengths = [2, 3, 4, 5]
    body = {"prompt": [ids[:i] for i in lengths], "max_tokens": 1, **NAMED}
    raw = await server.post("/v1/completions", temperature=0, **body)
    asked = reply.Asked(node="n", k=5)
    choices = reply.read(raw.content, asked, choices=4)

    ask = Ask(ProbeMode.ONE_TOKEN, 5, tuple(lengths))
    got = reply.one_token(choices, GoldenSequence("s", tuple(ids), 2), ask, asked, seconds=0)
    whole = await scored(server)

    for i, position in enumerate(lengths):
        mine, theirs = slice(i * 6, i * 6 + 5), slice((position - 1) * 6, (position - 1) * 6 + 5)
        assert list(got.logprobs[mine]) == pytest.approx(list(whole.logprobs[theirs]), abs=1e-3)
    assert shape(raw.json()) == recorded_shape("c_batch_prefixes")


async def test_generation_names_tokens_and_their_places(server: Server) -> None:
    got = await completion(server, prompt=await ids_of(server), max_tokens=3, **NAMED)

    (choice,) = got["choices"]
    names = [f"token_id:{token}" for token in choice["token_ids"]]
    assert shape(got) == recorded_shape("c_ids_logprobs5_tokids")
    assert choice["logprobs"]["tokens"] == names
    assert choice["logprobs"]["text_offset"] == [0, len(names[0]), len(names[0]) + len(names[1])]
    assert got["usage"]["completion_tokens"] == 3


async def test_text_in_and_text_out(server: Server) -> None:
    got = await completion(server, prompt=ENGLISH, max_tokens=3, logprobs=5)

    (choice,) = got["choices"]
    assert choice["token_ids"] is None
    assert choice["prompt_token_ids"] is None
    assert len(choice["logprobs"]["tokens"]) == 3
    assert set(choice) == set(json.loads(exchange("c_text_logprobs5").body)["choices"][0])


async def test_an_echo_scores_the_prompt(server: Server) -> None:
    ids = await ids_of(server)

    (choice,) = (await completion(server, prompt=ids, max_tokens=0, echo=True, **NAMED))["choices"]

    assert choice["logprobs"]["tokens"] == [f"token_id:{token}" for token in ids]
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert len(choice["prompt_logprobs"]) == len(ids)
    assert choice["text"] == ""
    assert len(choice["token_ids"]) == 1


@pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
async def test_over_the_cap_is_told_with_what_is_allowed(server: Server, name: str) -> None:
    answer = await server.post("/v1/completions", prompt=await ids_of(server), max_tokens=1, **{name: 500})

    with pytest.raises(OverCap) as caught:
        refuse(answer_of(answer), node="n")
    cap = caught.value.allowed
    assert cap in (20, 100)  # vLLM's own, and what the recorded server was started with
    recorded = json.loads(exchange("c_over_cap" if name == "logprobs" else "c_over_cap_prompt").body)
    recorded["error"]["message"] = recorded["error"]["message"].replace("allowed: 100", f"allowed: {cap}")
    assert answer.json() == recorded


async def test_an_unknown_model_is_not_found(server: Server) -> None:
    answer = await server.post("/v1/completions", model="nope", prompt=await ids_of(server), max_tokens=1)

    with pytest.raises(Misconfigured):
        refuse(answer_of(answer), node="n")
    assert shape(answer.json()) == recorded_shape("c_unknown_model")


async def test_a_prompt_that_is_too_long_is_over_the_budget(server: Server) -> None:
    answer = await server.post("/v1/completions", prompt=[5] * 3000, max_tokens=1)

    with pytest.raises(OverBudget):
        refuse(answer_of(answer), node="n")
    assert shape(answer.json()) == recorded_shape("c_too_long")


async def test_an_id_that_is_no_token_is_refused_by_number(server: Server) -> None:
    answer = await server.post("/v1/completions", prompt=[999999], max_tokens=1)

    with pytest.raises(ReplyInvalid, match="999999"):
        refuse(answer_of(answer), node="n")
    assert answer.json() == json.loads(exchange("c_bad_id").body)


@pytest.mark.parametrize("body", [SCORED, {"max_tokens": 3, **NAMED}])
async def test_a_nan_weight_shows_as_the_recorded_refusal(broken: Server, body: dict[str, Any]) -> None:
    answer = await broken.post("/v1/completions", prompt=await ids_of(broken), **body)

    with pytest.raises(ReplyCorrupted):
        refuse(answer_of(answer), node="n")
    assert answer.json() == json.loads(exchange("c_ids_prompt_logprobs5", node="nan").body)
