"""Replies made to fill memory or time: refused before anything is built from them."""

import gzip
import json
import tracemalloc
from collections.abc import Callable

import httpx
import pytest

from quantwatch.errors import NodeFailed, ProbeError, ReplyInvalid
from quantwatch.flow.prompt import GoldenSequence
from quantwatch.net import MEBIBYTE, Answer
from quantwatch.probe import reply
from quantwatch.probe.node_metrics import read_load
from quantwatch.probe.refusal import refuse
from quantwatch.probe.reply import Asked
from quantwatch.probe.wire import LARGE, MOST_OBJECTS, TooMuch, loads
from support.builders import QUICK, doing, prober
from support.masses import MASSES, choices, entries

ASKED = Asked("node", 5)
SEQUENCE = GoldenSequence("s", (1, 2), 1)


def peak(action: Callable[[], object]) -> int:
    """Bytes that an action held at most."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", MASSES)
def test_millions_of_values_are_refused_before_they_are_built(name: str) -> None:
    body = MASSES[name](8 * MEBIBYTE)

    def read() -> None:
        with pytest.raises(NodeFailed, match="the reply holds too much to be an answer: over 1,048,576 objects"):
            reply.read(body, ASKED, choices=1)

    assert peak(read) < MEBIBYTE


@pytest.mark.parametrize("name", MASSES)
def test_other_replies_and_errors_of_millions_of_values_are_not_built_either(name: str) -> None:
    body = MASSES[name](8 * MEBIBYTE)

    def read() -> None:
        with pytest.raises(TooMuch):
            loads(body)
        with pytest.raises(ProbeError, match="HTTP 500: "):
            refuse(Answer(500, body, 0.1), node="node")

    assert peak(read) < MEBIBYTE


def test_a_large_reply_of_few_values_is_read() -> None:
    text = json.dumps({"choices": [{"index": 0, "text": "x" * LARGE}]}).encode()

    assert reply.read(text, ASKED, choices=1)[0].index == 0


def test_a_million_answers_are_not_one() -> None:
    with pytest.raises(ReplyInvalid, match="1000000 answers for 1 prompts"):
        reply.read(choices(1_000_000), ASKED, choices=1)


def test_a_position_of_a_million_entries_is_not_one_of_twenty() -> None:
    assert MOST_OBJECTS > 1_000_000
    choice = reply.read(entries(1_000_000), ASKED, choices=1)[0]

    with pytest.raises(ReplyInvalid, match="1000000 tokens listed where 5 or 6 were asked for"):
        reply.prompt_scoring(choice, SEQUENCE, ASKED, seconds=0.0)


def test_a_metrics_page_of_millions_of_lines_tells_nothing() -> None:
    line = b'vllm:num_requests_waiting{engine="0"} 1\n'
    page = line * (8 * MEBIBYTE // len(line))

    assert peak(lambda: read_load(page)) < 4 * MEBIBYTE
    assert read_load(page) is None
    assert read_load(b"\n" * 8 * MEBIBYTE) is None
    assert read_load(b"vllm:num_requests_waiting " + b"1" * 8 * MEBIBYTE) is None


async def test_a_small_reply_that_unpacks_to_a_large_one_is_cut_off() -> None:
    body = gzip.compress(b" " * 16 * MEBIBYTE)
    headers = {"content-encoding": "gzip"}
    asked = prober(
        doing(lambda request: httpx.Response(200, content=body, headers=headers, request=request)), limits=QUICK
    )

    with pytest.raises(NodeFailed, match="over the limit"):
        await asked.identify()
