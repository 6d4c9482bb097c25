"""The vLLM prober against a tiny real model: what is sent, what comes back, and every way it can go wrong."""

import json
import math

import pytest
from starlette.responses import PlainTextResponse, Response

from quantwatch.errors import Misconfigured, NodeFailed, OverBudget, OverCap, ReplyCorrupted, ReplyInvalid
from quantwatch.flow.prompt import LengthBucket, Message, ProbeMode, Prompt
from quantwatch.probe.budget import Budget
from quantwatch.probe.contract import Ask
from quantwatch.probe.vllm import NEUTRAL, VllmProber
from support.builders import SEQUENCE, prober
from support.tiny_node import Network, TinyModel, TinyNode, said

SCORING = Ask(ProbeMode.PROMPT_SCORING, 20)


def asking(node: TinyNode, *, budget: Budget | None = None, model: str | None = "tiny") -> VllmProber:
    return prober(Network(node=node), budget=budget, model=model)


async def test_scoring_gives_the_models_own_log_probabilities() -> None:
    node = TinyNode()

    got = await asking(node).distribution(SEQUENCE, SCORING)

    for row, position in enumerate(got.positions):
        after = node.model.logprobs(list(SEQUENCE.ids[:position]))
        assert got.actual[row] == pytest.approx(float(after[SEQUENCE.ids[position]]), abs=1e-5)
        ids = got.ids[row * 21 : row * 21 + 20]
        assert sorted(ids) == sorted(after.topk(20).indices.tolist())


async def test_one_token_mode_gives_the_same_numbers_as_scoring() -> None:
    node, places = TinyNode(), (4, 6, 9)

    scored = await asking(node).distribution(SEQUENCE, SCORING)
    got = await asking(node).distribution(SEQUENCE, Ask(ProbeMode.ONE_TOKEN, 20, places))

    assert list(got.positions) == list(places)
    for row, position in enumerate(places):
        theirs = scored.ids[(position - 1) * 21 : (position - 1) * 21 + 20]
        assert sorted(got.ids[row * 21 : row * 21 + 20]) == sorted(theirs)


async def test_every_sampling_field_is_sent_neutral_and_explicit() -> None:
    node = TinyNode()
    await asking(node).distribution(SEQUENCE, SCORING)

    sent = node.completions()[0]

    assert sent | dict(NEUTRAL) == sent
    assert sent["prompt"] == list(SEQUENCE.ids)
    assert sent["prompt_logprobs"] == 20
    assert sent["max_tokens"] == 1
    assert sent["stream"] is False
    for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty"):
        assert name in sent


async def test_logprob_token_ids_are_never_sent() -> None:
    """They spoil the logprobs of other users in the same batch."""
    node = TinyNode()
    await asking(node).distribution(SEQUENCE, SCORING)
    await asking(node).distribution(SEQUENCE, Ask(ProbeMode.ONE_TOKEN, 20, (4, 5)))

    assert all("logprob_token_ids" not in body for body in node.completions())


async def test_prefixes_go_out_in_batches_the_first_alone() -> None:
    node = TinyNode()
    await asking(node, budget=Budget(prefixes=2)).distribution(SEQUENCE, Ask(ProbeMode.ONE_TOKEN, 5, (4, 5, 6, 7)))

    assert [[len(prefix) for prefix in body["prompt"]] for body in node.completions()] == [[4], [5, 6], [7]]


async def test_a_sequence_over_the_budget_is_never_sent() -> None:
    node = TinyNode()

    with pytest.raises(OverBudget):
        await asking(node, budget=Budget(scored_tokens=5)).distribution(SEQUENCE, SCORING)

    assert node.completions() == []


async def test_generation_is_greedy_and_names_ids() -> None:
    node = TinyNode()
    expected = list(SEQUENCE.ids)
    for _ in range(5):
        expected.append(int(node.model.logprobs(expected).argmax()))

    got = await asking(node).generate(SEQUENCE.ids, limit=5)

    assert list(SEQUENCE.ids) + list(got.ids) == expected
    assert (got.text, got.finish_reason) == (said(got.ids), "length")


async def test_a_negative_generated_id_is_corruption() -> None:
    def edit(reply: dict[str, list[dict[str, object]]]) -> object:
        reply["choices"][0]["token_ids"] = [5, -1]
        return reply

    with pytest.raises(ReplyCorrupted):
        await asking(TinyNode(edit=edit)).generate(SEQUENCE.ids, limit=2)


async def test_more_logprobs_than_the_cap_are_over_the_cap() -> None:
    with pytest.raises(OverCap) as caught:
        await asking(TinyNode(cap=5)).distribution(SEQUENCE, SCORING)

    assert caught.value.allowed == 5


async def test_a_nan_node_is_corrupted() -> None:
    with pytest.raises(ReplyCorrupted):
        await asking(TinyNode(nan_on=lambda _: True)).distribution(SEQUENCE, SCORING)


async def test_sentinels_count_as_corruption_only_of_a_server_proven_raw() -> None:
    def edit(reply: dict[str, list[dict[str, object]]]) -> object:
        rows = reply["choices"][0]["prompt_logprobs"]
        assert isinstance(rows, list)
        list(rows[3].values())[2]["logprob"] = -9999.0
        return reply

    asked = asking(TinyNode(edit=edit))
    with pytest.raises(ReplyInvalid):
        await asked.distribution(SEQUENCE, SCORING)
    asked.raw_proven = True

    assert len((await asked.distribution(SEQUENCE, SCORING)).marks) == 1


async def test_an_unknown_model_names_what_is_served() -> None:
    with pytest.raises(Misconfigured, match=r"does not serve 'llama'; it serves tiny"):
        await asking(TinyNode(), model="llama").identify()


async def test_the_only_model_needs_no_name() -> None:
    identity = await asking(TinyNode(name="just-one"), model=None).identify()

    assert identity.model == "just-one"
    assert identity.version == "0.32.0"
    assert identity.max_model_len == 8192
    assert identity.started == 1_700_000_000.0


async def test_a_choice_of_models_must_be_made() -> None:
    def two(path: str) -> Response | None:
        cards = [{"id": "a"}, {"id": "b"}]
        return Response(json.dumps({"data": cards})) if path == "/v1/models" else None

    with pytest.raises(Misconfigured, match="serves several models or none; it serves a, b"):
        await asking(TinyNode(replace=two), model=None).identify()


async def test_adapters_are_no_second_model() -> None:
    def lora(path: str) -> Response | None:
        cards = [{"id": "base", "parent": None}, {"id": "lora", "parent": "base"}]
        return Response(json.dumps({"data": cards})) if path == "/v1/models" else None

    assert (await asking(TinyNode(replace=lora), model=None).identify()).model == "base"


async def test_a_missing_key_is_configuration() -> None:
    with pytest.raises(Misconfigured, match=r"HTTP 401: Unauthorized. Check the API key"):
        await asking(TinyNode(api_key="k")).identify()


async def test_version_and_start_are_optional() -> None:
    def only_models(path: str) -> Response | None:
        return PlainTextResponse("no", 404) if path in ("/version", "/metrics") else None

    identity = await asking(TinyNode(replace=only_models)).identify()

    assert identity.version is None
    assert identity.started is None


@pytest.mark.parametrize("data", [5, "x", None, [7], [{"id": 7}]])
async def test_a_model_list_of_another_shape_serves_nothing(data: object) -> None:
    def odd(path: str) -> Response | None:
        return Response(json.dumps({"data": data})) if path == "/v1/models" else None

    with pytest.raises(Misconfigured, match="it serves nothing"):
        await asking(TinyNode(replace=odd)).identify()


@pytest.mark.parametrize("body", ["<html>portal</html>", "[1, 2]", "oops"])
async def test_other_answers_than_a_model_list_are_invalid(body: str) -> None:
    def page(path: str) -> Response | None:
        return PlainTextResponse(body) if path == "/v1/models" else None

    with pytest.raises(ReplyInvalid, match="node's own address"):
        await asking(TinyNode(replace=page)).identify()


async def test_a_conversation_goes_through_the_chat_template() -> None:
    messages = (Message("system", "be brief"), Message("user", "hi"))
    prompt = Prompt("c", "en", LengthBucket.SHORT, ("x",), messages=messages)

    ids = await asking(TinyNode()).tokenize(prompt)

    assert bytes(ids[1:]) == b"<system>be brief<user>hi<assistant>"


async def test_raw_text_gets_the_servers_own_beginning() -> None:
    ids = await asking(TinyNode()).tokenize(Prompt("t", "en", LengthBucket.SHORT, ("x",), text="ab"))

    assert ids == (256, 97, 98)
    assert await asking(TinyNode()).tokenize_text("ab", special=False) == (97, 98)


@pytest.mark.parametrize("tokens", [None, "abc", [1, "2"], [1, True]])
async def test_a_tokenizer_that_gives_no_ids_is_invalid(tokens: object) -> None:
    def odd(path: str) -> Response | None:
        return Response(json.dumps({"tokens": tokens})) if path == "/tokenize" else None

    with pytest.raises(ReplyInvalid, match="no list of ids"):
        await asking(TinyNode(replace=odd)).tokenize_text("ab", special=True)


async def test_a_truncated_reply_is_unknown() -> None:
    def cut(reply: dict[str, object]) -> object:
        return Response(json.dumps(reply)[:500], media_type="application/json")

    with pytest.raises(NodeFailed, match="no complete JSON"):
        await asking(TinyNode(edit=cut)).distribution(SEQUENCE, SCORING)


async def test_own_token_of_a_damaged_model_differs() -> None:
    """Guards the fake itself: damage must move the numbers."""
    healthy = await asking(TinyNode()).distribution(SEQUENCE, SCORING)
    damaged = await asking(TinyNode(model=TinyModel(damage=1.0))).distribution(SEQUENCE, SCORING)

    assert max(abs(a - b) for a, b in zip(healthy.actual, damaged.actual, strict=True)) > 0.1
    assert not any(map(math.isnan, damaged.actual))


@pytest.mark.parametrize(("given", "text"), [("né", "né"), ("a\ud83d.", "a\ufffd."), (None, ""), (5, "")])
async def test_a_generated_text_is_always_valid_unicode(given: object, text: str) -> None:
    def edit(reply: dict[str, list[dict[str, object]]]) -> object:
        reply["choices"][0] |= {"text": given, "finish_reason": None}
        return reply

    got = await asking(TinyNode(edit=edit)).generate(SEQUENCE.ids, limit=2)

    assert (got.text, got.finish_reason) == (text, None)


async def test_an_id_is_turned_into_its_text_alone() -> None:
    node = TinyNode()

    assert await asking(node).token_text(97) == "a"
    assert await asking(node).token_text(200) == "\ufffd"
    assert node.detokenized == [{"model": "tiny", "tokens": [97]}, {"model": "tiny", "tokens": [200]}]
    assert node.completions() == []


@pytest.mark.parametrize("body", ["{}", '{"prompt": 5}', '{"prompt": null}', json.dumps({"prompt": "x" * 1001}), "[]"])
async def test_a_text_that_is_none_is_invalid(body: str) -> None:
    def odd(path: str) -> Response | None:
        return Response(body) if path == "/detokenize" else None

    with pytest.raises(ReplyInvalid, match=r"/detokenize gave no text for an id|no JSON object"):
        await asking(TinyNode(replace=odd)).token_text(97)


async def test_a_server_that_turns_no_ids_into_text_says_so() -> None:
    with pytest.raises(Misconfigured, match="404"):
        await asking(TinyNode(replace=lambda _: Response("Not Found", 404))).token_text(97)
