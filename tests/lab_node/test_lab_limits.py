"""Limits of vLLM that a lab node shares."""

import threading
from pathlib import Path
from typing import Any

import pytest

from quantwatch.lab.app import Node
from quantwatch.lab.refused import Refused
from quantwatch.lab.request import MOST_PROMPTS, completion_request
from quantwatch.lab.words import Words
from support.lab_nodes import ask, complete, lab_node


@pytest.fixture(scope="module")
def lab(tiny: Path) -> Node:
    return lab_node(tiny)


@pytest.mark.parametrize("ids", [[999_999], [-1], [5, 400], [2**70]])
async def test_tokens_to_stop_at_must_be_tokens(lab: Node, ids: list[int]) -> None:
    body = {"prompt": [5], "max_tokens": 3, "min_tokens": 1, "stop_token_ids": ids}
    answer = await ask(lab, "/v1/completions", body)

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stop_token_ids")
    assert str(ids[-1]) in answer.json()["error"]["message"]


def test_max_tokens_of_null_is_16() -> None:
    assert completion_request({"prompt": "a", "max_tokens": None}).max_tokens == 16


@pytest.mark.parametrize(("least", "most"), [(5, 4), (17, None), (2, 1)])
def test_more_tokens_at_least_than_at_most_are_refused(least: int, most: int | None) -> None:
    with pytest.raises(Refused, match="min_tokens must be less than or equal to max_tokens") as caught:
        completion_request({"prompt": "a", "min_tokens": least, "max_tokens": most})

    assert caught.value.param == "min_tokens"


@pytest.mark.parametrize(("least", "most", "echo"), [(4, 4, False), (16, None, False), (1, 0, True)])
def test_as_many_tokens_at_least_as_at_most_are_fine(least: int, most: int | None, *, echo: bool) -> None:
    asked = completion_request({"prompt": "a", "min_tokens": least, "max_tokens": most, "echo": echo})

    assert asked.sampling.min_tokens == least


def test_a_request_holds_1024_prompts_at_most() -> None:
    assert len(completion_request({"prompt": [[5]] * MOST_PROMPTS}).prompts) == 1024
    assert len(completion_request({"prompt": [5] * (MOST_PROMPTS + 1)}).prompts) == 1

    with pytest.raises(Refused, match="1024 prompts, got 1025") as caught:
        completion_request({"prompt": ["a"] * (MOST_PROMPTS + 1)})
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(("logprobs", "entries"), [(0, {1}), (2, {2, 3}), (7, {5, 6})])
async def test_an_echo_lists_no_more_than_logprobs_asks_for(lab: Node, logprobs: int, entries: set[int]) -> None:
    """Though prompt_logprobs asks for five: as many as those, and the token's own."""
    asked = {"logprobs": logprobs, "prompt_logprobs": 5, "echo": True, "return_tokens_as_token_ids": True}
    choice = await complete(lab, prompt=[5, 6, 7, 8, 9, 10], max_tokens=0, **asked)

    sizes = {len(row) for row in choice["logprobs"]["top_logprobs"][1:]}
    assert sizes <= entries
    assert max(sizes) == min(logprobs, 5) + 1
    assert {len(row) for row in choice["prompt_logprobs"][1:]} <= {5, 6}


class Meeting:
    """A tokenizer that notices when two threads are in it at once."""

    chat_template = "any"

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2)
        self.met = False

    def _pass(self) -> None:
        try:
            self._barrier.wait(timeout=0.2)
            self.met = True
        except threading.BrokenBarrierError:
            self._barrier.reset()

    def decode(self, *_: Any, **__: Any) -> str:
        self._pass()
        return ""

    def convert_ids_to_tokens(self, *_: Any) -> list[str]:
        self._pass()
        return []

    def apply_chat_template(self, *_: Any, **__: Any) -> str:
        self._pass()
        return ""

    def __call__(self, *_: Any, **__: Any) -> dict[str, list[int]]:
        self._pass()
        return {"input_ids": []}


@pytest.mark.parametrize("other", ["decode", "pieces", "encode", "conversation"])
def test_one_thread_at_a_time_is_in_the_tokenizer(other: str) -> None:
    tokenizer = Meeting()
    words = Words(tokenizer)
    ways = {
        "decode": lambda: words.decode([1]),
        "pieces": lambda: words.pieces([1]),
        "encode": lambda: words.encode("a", special=False),
        "conversation": lambda: words.conversation([], begin_answer=True),
    }
    threads = [threading.Thread(target=ways[one]) for one in ("decode", other)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert not tokenizer.met
