"""Recorded and damaged replies: the table of the measurement design, section 4, one test a row."""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from quantwatch.errors import NodeFailed, ReplyInvalid
from quantwatch.flow.distribution import NO_ID, Distribution, MarkKind
from quantwatch.flow.prompt import GoldenSequence, ProbeMode
from quantwatch.probe import reply
from quantwatch.probe.contract import Ask
from quantwatch.probe.reply import Asked
from quantwatch.probe.rows import Columns
from support.recordings import K, exchange, scored

ASKED = Asked(node="node", k=5)
REQUEST, _, BODY = exchange("c_ids_prompt_logprobs5")
SEQUENCE = GoldenSequence("ftc", tuple(REQUEST["prompt"]), 10)


def score(body: bytes, asked: Asked = ASKED, sequence: GoldenSequence = SEQUENCE) -> Distribution:
    choice = reply.read(body, asked, choices=1)[0]
    return reply.prompt_scoring(choice, sequence, asked, seconds=0.2)


def damaged(change: Callable[[list[Any]], object]) -> bytes:
    """The recorded reply after a change to its prompt_logprobs."""
    raw = copy.deepcopy(json.loads(BODY))
    change(raw["choices"][0]["prompt_logprobs"])
    return json.dumps(raw).encode()


def changed(**fields: Any) -> bytes:
    """The recorded reply with other fields in its choice."""
    raw = copy.deepcopy(json.loads(BODY))
    raw["choices"][0] |= fields
    return json.dumps(raw).encode()


def entry(rows: list[Any], position: int, place: int) -> dict[str, Any]:
    found: dict[str, Any] = list(rows[position].values())[place]
    return found


def marks(body: bytes, asked: Asked = ASKED) -> list[tuple[int, MarkKind]]:
    return [(mark.row, mark.kind) for mark in score(body, asked).marks]


# ------------------------------------------------------------------ healthy


def test_a_recorded_reply_is_read_completely() -> None:
    got = score(BODY)

    assert len(got) == len(SEQUENCE.ids) - 1
    assert list(got.positions) == list(range(1, len(SEQUENCE.ids)))
    assert got.mode is ProbeMode.PROMPT_SCORING
    assert got.marks == ()
    assert got.seconds == 0.2


def test_own_token_beyond_rank_k_stands_in_the_last_column() -> None:
    """Position 1 lists the prompt's own token 132 at rank 1875 and the top five."""
    got = score(BODY)

    assert list(got.ids[:6]) == [29, 28, 198, 284, 260, 132]
    assert got.logprobs[5] == pytest.approx(-10.890298843383789)
    assert got.actual[0] == pytest.approx(-10.890298843383789)
    assert got.floor[0] == pytest.approx(-3.7643885612487793)


def test_own_token_within_the_top_k_leaves_the_last_column_empty() -> None:
    got = score(BODY)
    rows = json.loads(BODY)["choices"][0]["prompt_logprobs"]
    within = next(i for i, row in enumerate(rows) if row is not None and len(row) == 5)

    assert got.ids[within * 6 - 1] == NO_ID
    own = rows[within][str(SEQUENCE.ids[within])]["logprob"]
    assert got.actual[within - 1] == pytest.approx(own)


def test_all_recorded_sequences_are_read_without_a_mark() -> None:
    for node in ("fp32", "int8-w8a8-outlier", "int8-w8a8-smoothquant", "int4-w4g64"):
        for sequence, body in scored(node):
            got = score(body, Asked(node=node, k=K), sequence)
            assert len(got) == len(sequence.ids) - 1
            assert got.marks == ()


def test_prefixes_of_one_token_mode_are_read_by_their_index() -> None:
    request, _, body = exchange("c_batch_prefixes")
    sequence = GoldenSequence("p", tuple(request["prompt"][-1]), 2)
    raw = json.loads(body)
    raw["choices"].reverse()
    choices = reply.read(json.dumps(raw).encode(), ASKED, choices=4)

    got = reply.one_token(choices[:3], sequence, Ask(ProbeMode.ONE_TOKEN, 5, (2, 3, 4)), ASKED, seconds=0.1)

    assert list(got.ids[:5]) == [44465, 177, 178, 26986, 18645]
    assert list(got.ids[6:11]) == [112, 236, 227, 230, 117]


def test_own_token_that_one_token_mode_does_not_list_is_unknown_not_zero() -> None:
    request, _, body = exchange("c_batch_prefixes")
    sequence = GoldenSequence("p", tuple(request["prompt"][-1]), 2)
    choices = reply.read(body, ASKED, choices=4)

    got = reply.one_token(choices[:1], sequence, Ask(ProbeMode.ONE_TOKEN, 5, (2,)), ASKED, seconds=0.1)

    assert sequence.ids[2] not in list(got.ids)
    assert math.isnan(got.actual[0])


# ------------------------------------------------------------------ ids asked for by name


def named(wanted: tuple[int, ...], body: bytes | None = None) -> Distribution:
    """What the recorded reply to six named ids says of `wanted`."""
    request, _, recorded = exchange("c_logprob_token_ids")
    sequence = GoldenSequence("p", (*request["prompt"], 198), len(request["prompt"]))
    ask = Ask(ProbeMode.ONE_TOKEN, len(wanted), (len(request["prompt"]),), ids=(wanted,))
    asked = Asked("node", len(wanted))
    return reply.one_token(reply.read(body or recorded, asked, choices=1), sequence, ask, asked, seconds=0.1)


def test_named_ids_are_listed_with_the_generated_one_and_nothing_bounds_the_rest() -> None:
    got = named((1, 2, 3, 100, 200, 4000))

    assert dict(zip(got.ids, got.logprobs, strict=True)) == pytest.approx(
        {1: -20.1678, 2: -16.7879, 3: -21.5257, 100: -10.1919, 200: -15.2428, 4000: -15.5732, 198: -0.5716}, abs=1e-4
    )
    assert (got.k, got.exact, list(got.floor)) == (6, True, [math.inf])
    assert got.actual[0] == pytest.approx(-0.5716, abs=1e-4)


def test_a_server_that_lists_its_own_top_k_instead_is_refused() -> None:
    with pytest.raises(ReplyInvalid, match=r"1 of 6 ids asked for after prefix 30 are not listed.*--exact-ids"):
        named((1, 2, 3, 100, 200, 4001))


# ------------------------------------------------------------------ corrupted


@pytest.mark.parametrize("value", [None, math.nan, math.inf, "NaN", {}, True])
def test_a_value_that_is_no_number_inside_a_position_is_corruption(value: Any) -> None:
    body = damaged(lambda rows: entry(rows, 3, 1).update(logprob=value))

    assert marks(body) == [(2, MarkKind.NON_FINITE)]


def test_bare_nan_as_some_backends_write_it_is_corruption() -> None:
    body = damaged(lambda rows: entry(rows, 3, 1).update(logprob=math.nan))
    assert b"NaN" in body

    assert marks(body) == [(2, MarkKind.NON_FINITE)]


def test_rank_zero_is_corruption() -> None:
    body = damaged(lambda rows: entry(rows, 4, 2).update(rank=0))

    assert marks(body) == [(3, MarkKind.RANK_ZERO)]


@pytest.mark.parametrize("value", [-9999.0, -3.4e38])
def test_a_sentinel_within_the_top_k_is_corruption_once_raw_mode_is_proven(value: float) -> None:
    body = damaged(lambda rows: entry(rows, 5, 2).update(logprob=value))

    assert marks(body) == [(4, MarkKind.SENTINEL)]


def test_a_sentinel_of_a_server_not_proven_raw_is_an_invalid_measurement() -> None:
    body = damaged(lambda rows: entry(rows, 5, 2).update(logprob=-9999.0))

    with pytest.raises(ReplyInvalid, match="not known to answer raw"):
        score(body, Asked(node="node", k=5, raw_proven=False))


def test_a_sentinel_beyond_rank_k_is_neither_corruption_nor_a_number() -> None:
    """The own token has probability 0; -9999 in a mean would ruin it."""
    body = damaged(lambda rows: entry(rows, 1, 0).update(logprob=-9999.0))

    got = score(body)

    assert got.marks == ()
    assert math.isnan(got.actual[0])
    assert got.ids[5] == NO_ID


def test_a_uniform_row_near_minus_ln_v_is_corruption() -> None:
    def flatten(rows: list[Any]) -> None:
        for one in rows[6].values():
            one["logprob"] = -10.803

    assert marks(damaged(flatten)) == [(5, MarkKind.UNIFORM)]


def test_an_id_that_cannot_exist_is_corruption() -> None:
    def rename(rows: list[Any]) -> None:
        keys = list(rows[7])
        rows[7]["-1"] = rows[7].pop(keys[-1])

    assert marks(damaged(rename)) == [(6, MarkKind.ID_OUT_OF_RANGE)]


def test_an_id_larger_than_any_vocabulary_is_corruption() -> None:
    def rename(rows: list[Any]) -> None:
        keys = list(rows[7])
        rows[7][str(2**31)] = rows[7].pop(keys[-1])

    assert marks(damaged(rename)) == [(6, MarkKind.ID_OUT_OF_RANGE)]


@pytest.mark.parametrize("value", [-5.2, -8.0])
def test_a_flat_but_likely_row_is_no_corruption(value: float) -> None:
    """Ties of 16-bit logits are honest; only a row near -ln V is nobody's distribution."""

    def flatten(rows: list[Any]) -> None:
        for one in rows[6].values():
            one["logprob"] = value

    assert marks(damaged(flatten)) == []


def test_a_sampled_token_beyond_rank_k_is_the_added_one_when_the_own_token_is_not() -> None:
    """A server that does not sample greedily puts the sampled token before the top k; the own one stays among them."""
    columns = Columns(k=2)
    columns.add([7, 5, 6], [-4.0, -0.5, -1.5], 2)

    assert list(columns.ids) == [5, 6, 7]
    assert list(columns.floor) == [-1.5]
    assert list(columns.actual) == [-1.5]


def test_a_short_flat_row_is_no_corruption() -> None:
    columns = Columns(k=1)
    columns.add([5], [-10.8], -1)

    assert columns.marks == []


@pytest.mark.parametrize("key", ["token_id:--5", "token_id:" + "9" * 5000, "token_id:", "5", "token_id:1.0"])
def test_keys_that_name_no_id_are_invalid(key: str) -> None:
    raw = json.loads(exchange("c_batch_prefixes").body)
    row = raw["choices"][0]["logprobs"]["top_logprobs"][0]
    row[key] = row.pop(next(iter(row)))
    choices = reply.read(json.dumps(raw).encode(), ASKED, choices=4)
    sequence = GoldenSequence("p", (*exchange("c_batch_prefixes").request["prompt"][0], 1), 2)

    with pytest.raises(ReplyInvalid, match="names tokens by text"):
        reply.one_token(choices[:1], sequence, Ask(ProbeMode.ONE_TOKEN, 5, (2,)), ASKED, seconds=0.1)


def test_a_corrupted_position_leaves_the_others_readable() -> None:
    body = damaged(lambda rows: entry(rows, 3, 1).update(logprob=None))

    got, whole = score(body), score(BODY)

    assert len(got) == len(whole)
    assert got.ids[18:] == whole.ids[18:]
    assert got.logprobs[:12] == whole.logprobs[:12]


# ------------------------------------------------------------------ invalid


def test_all_zero_rows_are_invalid_as_under_speculative_decoding() -> None:
    def zero(rows: list[Any]) -> None:
        for one in rows[2].values():
            one["logprob"] = 0.0

    with pytest.raises(ReplyInvalid, match="speculative decoding"):
        score(damaged(zero))


@pytest.mark.parametrize("value", [None, [], {}, "none", 7])
def test_an_absent_or_misshapen_field_is_invalid(value: Any) -> None:
    with pytest.raises(ReplyInvalid, match=r"no prompt_logprobs|0 positions"):
        score(changed(prompt_logprobs=value))


def test_fewer_positions_than_asked_are_invalid() -> None:
    with pytest.raises(ReplyInvalid, match="29 positions for 30 prompt tokens"):
        score(damaged(lambda rows: rows.pop()))


def test_null_logprobs_as_one_backend_sends_them_with_200_are_invalid() -> None:
    """`[null]` and nothing more (vllm-metal 680)."""
    with pytest.raises(ReplyInvalid, match="1 positions for 30"):
        score(changed(prompt_logprobs=[None]))


def test_a_null_position_is_invalid() -> None:
    def drop(rows: list[Any]) -> None:
        rows[4] = None

    with pytest.raises(ReplyInvalid, match="position 4 of prompt_logprobs is null"):
        score(damaged(drop))


def test_text_keys_are_invalid() -> None:
    def rename(rows: list[Any]) -> None:
        rows[3] = {one["decoded_token"] + "x": one for one in rows[3].values()}

    with pytest.raises(ReplyInvalid, match="names tokens by text"):
        score(damaged(rename))


def test_text_keys_of_a_recorded_text_reply_are_invalid() -> None:
    choices = reply.read(exchange("c_text_logprobs5").body, ASKED, choices=1)
    choices[0].prompt_token_ids = [1, 2]

    with pytest.raises(ReplyInvalid, match="names tokens by text"):
        reply.one_token(
            choices, GoldenSequence("t", (1, 2, 3), 2), Ask(ProbeMode.ONE_TOKEN, 5, (2,)), ASKED, seconds=0.1
        )


def test_repeated_ids_lose_entries_and_are_invalid() -> None:
    """JSON keeps one of two equal keys, so the list comes up short."""

    def repeat(rows: list[Any]) -> None:
        rows[3].pop(list(rows[3])[-1])
        if len(rows[3]) == 5:
            rows[3].pop(list(rows[3])[-1])

    with pytest.raises(ReplyInvalid, match="4 tokens listed where 5 or 6 were asked for"):
        score(damaged(repeat))


def test_more_entries_than_asked_are_invalid() -> None:
    def add(rows: list[Any]) -> None:
        rows[3] |= {str(90_000 + i): {"logprob": -9.0 - i, "rank": 9 + i} for i in range(3)}

    with pytest.raises(ReplyInvalid, match="tokens listed where 5 or 6"):
        score(damaged(add))


def test_logits_instead_of_logprobs_are_invalid() -> None:
    def lift(rows: list[Any]) -> None:
        for one in rows[3].values():
            one["logprob"] += 17.0

    with pytest.raises(ReplyInvalid, match="logits"):
        score(damaged(lift))


def test_probabilities_that_sum_over_one_are_invalid() -> None:
    def lift(rows: list[Any]) -> None:
        for one in rows[3].values():
            one["logprob"] = -1.0

    with pytest.raises(ReplyInvalid, match="not raw log-probabilities"):
        score(damaged(lift))


def test_other_ids_than_sent_are_invalid() -> None:
    ids = list(SEQUENCE.ids)

    with pytest.raises(ReplyInvalid, match="other token ids than were sent"):
        score(changed(prompt_token_ids=[0, *ids[1:]]))


def test_ids_that_are_not_repeated_are_invalid() -> None:
    with pytest.raises(ReplyInvalid, match="does not repeat the prompt's token ids"):
        score(changed(prompt_token_ids=None))


def test_own_token_missing_from_its_position_is_invalid() -> None:
    with pytest.raises(ReplyInvalid, match="does not list the prompt's own token"):
        score(damaged(lambda rows: rows[1].pop(str(SEQUENCE.ids[1]))))


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"choices": 5}', b'{"choices": [7]}', b'{"choices": [{"text": ""}]}'])
def test_json_that_is_no_completion_is_invalid(body: bytes) -> None:
    with pytest.raises(ReplyInvalid):
        score(body)


@pytest.mark.parametrize("indices", [[], [0, 0], [1], [0, 2]])
def test_answers_that_cannot_be_told_apart_are_invalid(indices: list[int]) -> None:
    raw = json.loads(BODY)
    raw["choices"] = [raw["choices"][0] | {"index": index} for index in indices]

    with pytest.raises(ReplyInvalid, match="answers for"):
        reply.read(json.dumps(raw).encode(), ASKED, choices=max(len(indices), 1))


def test_a_web_page_is_invalid_and_says_where_to_look() -> None:
    with pytest.raises(ReplyInvalid, match=r"web page.*Probe the node's own address"):
        score(b"<!doctype html><html>502</html>")


# ------------------------------------------------------------------ unknown


@pytest.mark.parametrize("cut", [0, 1, 1000, -2])
def test_truncated_json_is_unknown(cut: int) -> None:
    with pytest.raises(NodeFailed, match="no complete JSON"):
        score(BODY[:cut])


def test_bytes_that_are_no_text_are_unknown() -> None:
    with pytest.raises(NodeFailed, match="no complete JSON"):
        score(b"\xff\xfe\x00{")


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"choices":' * 100_000])
def test_json_nested_beyond_reason_is_unknown(body: bytes) -> None:
    with pytest.raises(NodeFailed, match="no complete JSON"):
        score(body)


def test_both_decoding_paths_agree_on_a_healthy_reply() -> None:
    """A harmless oddity sends the reply down the tolerant path; the numbers must not change."""
    odd = changed(index=0, token_ids={})

    got, plain = score(odd), score(BODY)

    assert got.ids == plain.ids
    assert got.logprobs == plain.logprobs
    assert list(got.actual) == list(plain.actual)
