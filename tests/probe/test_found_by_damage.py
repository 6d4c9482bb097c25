"""Replies that damaged recordings led to, kept as they were found: what broke, and what becomes of it now."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest

from quantwatch.errors import Misconfigured, NodeFailed, ProbeError, ReplyCorrupted, ReplyInvalid
from quantwatch.flow.acceptance import Footprint
from quantwatch.flow.distribution import Distribution, MarkKind
from quantwatch.flow.load import Load
from quantwatch.flow.prompt import GoldenSequence, ProbeMode
from quantwatch.net import Answer
from quantwatch.probe import reply
from quantwatch.probe.contract import Ask
from quantwatch.probe.node_metrics import MOST_LINES, read_footprint, read_load
from quantwatch.probe.refusal import refuse
from quantwatch.probe.reply import Asked
from quantwatch.probe.vllm import VllmProber
from support.builders import doing, prober
from support.recordings import exchange

ASKED = Asked(node="node", k=5)
REQUEST, _, BODY = exchange("c_ids_prompt_logprobs5")
SEQUENCE = GoldenSequence("ftc", tuple(REQUEST["prompt"]), 10)
BATCH = exchange("c_batch_prefixes")


def score(body: bytes) -> Distribution:
    choice = reply.read(body, ASKED, choices=1)[0]
    return reply.prompt_scoring(choice, SEQUENCE, ASKED, seconds=0.2)


def edited(body: bytes, change: Callable[[Any], object]) -> bytes:
    raw = json.loads(body)
    change(raw["choices"])
    return json.dumps(raw).encode()


def first_prefix(body: bytes) -> Distribution:
    choices = reply.read(body, ASKED, choices=4)[:1]
    sequence = GoldenSequence("p", (*BATCH.request["prompt"][0], 1), 2)
    return reply.one_token(choices, sequence, Ask(ProbeMode.ONE_TOKEN, 5, (2,)), ASKED, seconds=0.1)


def error_of(status: int, body: bytes) -> ProbeError:
    with pytest.raises(ProbeError) as caught:
        refuse(Answer(status, body, 0.1), node="node-a")
    return caught.value


def serving(replies: Mapping[str, bytes], *, model: str | None = None) -> VllmProber:
    """A prober of a server that has one reply for each path."""
    return prober(
        doing(lambda request: httpx.Response(200, content=replies.get(request.url.path, b""), request=request)),
        model=model,
    )


def introducing(card: Any) -> VllmProber:
    body = json.dumps({"data": card if isinstance(card, list) else [card]}).encode()
    return serving({"/v1/models": body})


# ------------------------------------------------------------------ keys that stand for the same


def test_an_entry_lost_to_a_repeated_key_makes_the_reply_invalid() -> None:
    """Position 1 lists six tokens; with one named twice five are left, and they look like a complete list."""
    twice = BODY.replace(b'"28": {', b'"29": {', 1)
    assert twice != BODY

    with pytest.raises(ReplyInvalid, match="the same key twice"):
        score(twice)


def test_an_entry_with_two_values_makes_the_reply_invalid() -> None:
    with pytest.raises(ReplyInvalid, match="the same key twice"):
        score(BODY.replace(b'"logprob": ', b'"logprob": -0.5, "logprob": ', 1))


def test_a_position_list_given_twice_makes_the_reply_invalid() -> None:
    other = b'"prompt_logprobs": [null, {"5": {"logprob": -1.0}}], '

    with pytest.raises(ReplyInvalid, match="the same key twice"):
        score(BODY.replace(b'"prompt_logprobs": ', other + b'"prompt_logprobs": '))


def test_a_repeated_key_of_a_prefix_makes_the_reply_invalid() -> None:
    with pytest.raises(ReplyInvalid, match="the same key twice"):
        first_prefix(BATCH.body.replace(b'"token_id:177": ', b'"token_id:177": -3.0, "token_id:177": ', 1))


@pytest.mark.parametrize("key", ["05", "+5", " 5", "5.0", "٥"])
def test_another_way_to_write_an_id_is_text(key: str) -> None:
    """`05` beside `5` would be the same token twice."""

    def rename(choices: Any) -> None:
        row = choices[0]["prompt_logprobs"][3]
        row[key] = row.pop(next(reversed(row)))

    with pytest.raises(ReplyInvalid, match="names tokens by text"):
        score(edited(BODY, rename))


@pytest.mark.parametrize("key", ["token_id:05", "token_id:-0", "token_id:٥"])
def test_another_way_to_write_an_id_of_a_prefix_is_text(key: str) -> None:
    def rename(choices: Any) -> None:
        row = choices[0]["logprobs"]["top_logprobs"][0]
        row[key] = row.pop(next(reversed(row)))

    with pytest.raises(ReplyInvalid, match="names tokens by text"):
        first_prefix(edited(BATCH.body, rename))


@pytest.mark.parametrize("entry", [-1, -1.5, "-1.5", True, [], [-1.5]])
def test_a_bare_value_in_the_place_of_an_entry_is_no_measurement(entry: Any) -> None:
    """A plain -1 was taken for the log-probability of its token."""

    def bare(choices: Any) -> None:
        row = choices[0]["prompt_logprobs"][3]
        row[next(reversed(row))] = entry

    with pytest.raises(ReplyInvalid, match="an entry of prompt_logprobs is no object"):
        score(edited(BODY, bare))


@pytest.mark.parametrize("entry", [None, math.nan, math.inf, {}, {"logprob": None}])
def test_nothing_in_the_place_of_an_entry_is_corruption(entry: Any) -> None:
    def bare(choices: Any) -> None:
        row = choices[0]["prompt_logprobs"][3]
        row[next(reversed(row))] = entry

    assert [(one.row, one.kind) for one in score(edited(BODY, bare)).marks] == [(2, MarkKind.NON_FINITE)]


def test_an_index_that_is_no_number_is_none() -> None:
    def rename(choices: Any) -> None:
        choices[1]["index"] = True

    with pytest.raises(ReplyInvalid, match="no index"):
        first_prefix(edited(BATCH.body, rename))


# ------------------------------------------------------------------ nested deeper than Python can show


@pytest.mark.parametrize("depth", [300, 700, 900, 960, 980, 990, 5000])
def test_an_error_nested_to_any_depth_is_told(depth: int) -> None:
    message = b'{"a":' * depth + b"1" + b"}" * depth

    assert len(str(error_of(400, b'{"error": {"message": ' + message + b"}}"))) < 400
    assert len(str(error_of(400, message))) < 400


@pytest.mark.parametrize("depth", [300, 700, 900, 960, 980, 990])
def test_a_token_nested_to_any_depth_is_no_text(depth: int) -> None:
    """Nearly as deep as Python goes it is no JSON to us; before that it is a token without a text."""
    nested = b"[" * depth + b"]" * depth
    body = BATCH.body.replace(b'"tokens": ["token_id:44465"]', b'"tokens": [' + nested + b"]", 1)
    assert nested in body

    try:
        found = list(first_prefix(body).ids[:5])
    except NodeFailed:
        found = []

    assert found == [44465, 177, 178, 26986, 18645] or (depth > 900 and found == [])


def test_a_message_of_opening_braces_is_cut_before_it_is_searched() -> None:
    """Searching all of it for a repeated request takes the square of its length: years."""
    error = error_of(400, json.dumps({"error": {"message": "{" * 10**7}}).encode())

    assert len(str(error)) < 400


# ------------------------------------------------------------------ words that cannot be written


@pytest.mark.parametrize("message", ["half \ud800 a pair", "\x1b[2J\x1b[31mred", "a\x00b", "\u202eright to left"])
def test_an_error_message_can_be_shown_and_stored(message: str) -> None:
    text = str(error_of(400, json.dumps({"error": {"message": message}}).encode()))

    assert text.isprintable()
    text.encode()


@pytest.mark.parametrize("name", ["half \ud800 a pair", "a\nb", "\x1b[31m", "x" * 2000])
async def test_a_model_name_that_cannot_be_sent_back_is_none(name: str) -> None:
    with pytest.raises(Misconfigured, match="serves several models or none; it serves nothing"):
        await introducing({"id": name}).identify()


async def test_a_server_of_many_models_names_ten() -> None:
    with pytest.raises(Misconfigured, match=r"it serves m0, .*, m9 and 990 more"):
        await introducing([{"id": f"m{i}"} for i in range(1000)]).identify()


@pytest.mark.parametrize("length", [True, -1, 0, 10**400, 1.5, "8192", None])
async def test_a_context_length_that_is_none_is_not_told(length: Any) -> None:
    card = {"id": "m", "max_model_len": length, "root": "half \ud800 a pair"}
    identity = await introducing(card).identify()

    assert identity.max_model_len is None
    assert identity.root is None


# ------------------------------------------------------------------ numbers that nothing can hold


def test_a_metric_of_a_number_that_no_float_holds_is_not_told() -> None:
    page = f"process_start_time_seconds {'9' * 400}\nvllm:num_requests_waiting {'9' * 400}\nx {'9' * 400}\n".encode()

    assert read_load(page) == Load()
    assert read_footprint(page, "x") == Footprint()


def test_a_metric_of_nan_is_not_told() -> None:
    page = b"vllm:num_requests_waiting NaN\nvllm:kv_cache_usage_perc NaN\nprocess_start_time_seconds NaN\n"

    assert read_load(page) == Load()


def test_a_page_of_more_engines_than_there_are_tells_nothing() -> None:
    line = b'vllm:num_requests_waiting{engine="0"} 1\n'

    assert getattr(read_load(line * MOST_LINES), "waiting", None) == MOST_LINES
    assert read_load(line * (MOST_LINES + 1)) is None


def test_a_page_with_other_line_ends_is_read() -> None:
    assert read_load(b"x 1\r\nvllm:num_requests_waiting 3\r\ny 2\r\n") == Load(waiting=3)


@pytest.mark.parametrize("ids", [[-1], [2**31], [10**400], [1.0], [True], ["5"], None])
async def test_tokens_that_are_no_ids_are_no_tokenization(ids: Any) -> None:
    with pytest.raises(ReplyInvalid, match="no list of ids"):
        await serving({"/tokenize": json.dumps({"tokens": ids}).encode()}, model="m").tokenize_text("x", special=True)


async def generated(ids: Any) -> None:
    body = json.dumps({"choices": [{"index": 0, "token_ids": ids}]}).encode()
    await serving({"/v1/completions": body}, model="m").generate([1, 2], limit=2)


async def test_a_generated_id_beyond_any_vocabulary_is_corruption() -> None:
    with pytest.raises(ReplyCorrupted, match="larger than any vocabulary"):
        await generated([5, 2**31])


async def test_more_tokens_than_asked_for_are_invalid() -> None:
    with pytest.raises(ReplyInvalid, match="3 tokens generated where 2 were asked for"):
        await generated([5, 6, 7])


# ------------------------------------------------------------------ what a node counts of its own numbers


def test_counts_of_all_engines_are_added_and_odd_ones_are_not_told() -> None:
    page = (
        b"process_start_time_seconds 5.0\n"
        b'quantwatch_vllm_broken_logit_rows_total{engine="0"} 3.0\n'
        b'quantwatch_vllm_broken_logit_rows_total{engine="1"} 4.0\n'
        b'quantwatch_vllm_runaway_logit_rows_total{engine="0"} NaN\n'
        b'vllm:corrupted_requests_total{engine="0",model_name="m"} 2.0\n'
        b'vllm:corrupted_requests_created{engine="0",model_name="m"} 1.7e9\n'
    )
    load = read_load(page)

    assert load is not None
    assert load.counted == {"broken_rows": 7.0, "corrupted_requests": 2.0}


def test_a_count_rises_from_what_was_counted_and_from_nothing_in_another_process() -> None:
    before = Load(started=5.0, prompt_tokens=10.0, generated_tokens=10.0, broken_rows=3.0)
    after = Load(started=5.0, prompt_tokens=20.0, generated_tokens=20.0, broken_rows=5.0, corrupted_requests=0.0)
    other = Load(started=900.0, prompt_tokens=1.0, generated_tokens=1.0, broken_rows=2.0)

    assert after.risen(before) == {"broken_rows": 2.0}
    assert after.risen(after) == {}
    assert other.risen(after) == {"broken_rows": 2.0}
