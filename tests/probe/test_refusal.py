"""Replies that are no answer: whose fault they are."""

import json

import pytest

from quantwatch.errors import (
    Misconfigured,
    NodeBusy,
    NodeFailed,
    OverBudget,
    OverCap,
    ProbeError,
    ReplyCorrupted,
    ReplyInvalid,
)
from quantwatch.net import Answer
from quantwatch.probe.refusal import refuse
from support.recordings import exchange


def error_of(status: int, body: bytes) -> ProbeError:
    with pytest.raises(ProbeError) as caught:
        refuse(Answer(status, body, 0.1), node="node-a")
    return caught.value


@pytest.mark.parametrize("call", ["c_ids_prompt_logprobs5", "c_batch_prefixes", "c_ids_logprobs5_tokids"])
def test_a_nan_node_that_cannot_write_its_numbers_is_corrupted(call: str) -> None:
    _, status, body = exchange(call, node="nan")

    assert status == 400
    assert isinstance(error_of(status, body), ReplyCorrupted)


def test_older_servers_say_the_same_with_500() -> None:
    body = b"Internal Server Error: Out of range float values are not JSON compliant: nan"

    assert isinstance(error_of(500, body), ReplyCorrupted)


@pytest.mark.parametrize("call", ["c_over_cap", "c_over_cap_prompt"])
def test_over_the_cap_reads_the_cap_from_the_message(call: str) -> None:
    _, status, body = exchange(call)
    error = error_of(status, body)

    assert isinstance(error, OverCap)
    assert error.allowed == 100


def test_over_the_cap_of_a_nan_node_is_still_about_the_cap() -> None:
    _, status, body = exchange("c_over_cap_prompt", node="nan")

    assert isinstance(error_of(status, body), OverCap)


def test_an_unknown_model_is_configuration() -> None:
    _, status, body = exchange("c_unknown_model")
    error = error_of(status, body)

    assert isinstance(error, Misconfigured)
    assert "nope" in str(error)


def test_too_long_a_prompt_is_our_budget() -> None:
    _, status, body = exchange("c_too_long")

    assert isinstance(error_of(status, body), OverBudget)


def test_a_bad_id_is_an_invalid_request_not_a_bad_node() -> None:
    _, status, body = exchange("c_bad_id")

    assert isinstance(error_of(status, body), ReplyInvalid)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, Misconfigured),
        (403, Misconfigured),
        (404, Misconfigured),
        (429, NodeBusy),
        (503, NodeBusy),
        (500, NodeFailed),
        (502, NodeFailed),
        (400, ReplyInvalid),
        (422, ReplyInvalid),
    ],
)
def test_status_decides_where_the_message_says_nothing(status: int, kind: type[ProbeError]) -> None:
    assert type(error_of(status, b'{"error": "Unauthorized"}')) is kind


@pytest.mark.parametrize("body", [b"", b"<html>x</html>", b"\xff\xfe", b'"text"', b"[1]", b'{"error": {"param": 5}}'])
def test_bodies_of_any_shape_are_told_in_one_line(body: bytes) -> None:
    text = str(error_of(500, body))

    assert "\n" not in text
    assert text.startswith("node-a: HTTP 500: ")


def test_a_long_message_is_cut() -> None:
    body = json.dumps({"error": {"message": "x" * 5000}}).encode()

    assert len(error_of(500, body).reason) < 350


@pytest.mark.parametrize(
    "repeated",
    [
        "'input': {'model': 'm', 'prompt': 'PRIVATE'}}",
        '"input":{"model":"m","prompt":"PRIVATE"}}',
        "{'prompt': 'PRIVATE'}",
        '"messages": [{"content": "PRIVATE"}]',
        "'text' : 'PRIVATE'",
        "\n  'body': 'PRIVATE'",
    ],
)
@pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 503])
@pytest.mark.parametrize("shape", ["vllm", "fastapi", "text"])
def test_a_request_that_a_server_repeats_is_not_told(repeated: str, status: int, shape: str) -> None:
    message = f"1 validation error: {{'type': 'value_error', 'msg': 'too large', {repeated}"
    bodies = {"vllm": json.dumps({"error": {"message": message}}), "fastapi": json.dumps([message]), "text": message}
    text = str(error_of(status, bodies[shape].encode()))

    assert "PRIVATE" not in text
    assert "too large" in text


def test_a_validation_error_of_fastapi_is_told_without_the_request() -> None:
    detail = [{"type": "missing", "loc": ["body"], "msg": "Field required", "input": {"prompt": "PRIVATE"}}]
    text = str(error_of(422, json.dumps({"detail": detail}).encode()))

    assert "Field required" in text
    assert "PRIVATE" not in text


def test_a_message_that_ends_with_a_full_stop_gets_no_second_one() -> None:
    body = json.dumps({"error": {"message": "EngineCore encountered an issue."}}).encode()

    assert ".." not in str(error_of(500, body))
