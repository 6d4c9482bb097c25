"""A prompt becomes a sequence, or says why it cannot."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.responses import Response

from quantwatch.errors import ReplyInvalid
from quantwatch.flow.identity import Identity
from quantwatch.flows.golden import GoldenMaker
from quantwatch.record.continuations import Continuations
from support.builders import prober
from support.runs import POOL
from support.tiny_node import Network, TinyModel, TinyNode

PROMPT = POOL.prompts[0]
GIVEN = replace(PROMPT, continuation="and so on")


def maker(node: TinyNode, cache: Path) -> GoldenMaker:
    kept = Continuations(cache, Identity("baseline", "http://baseline", "tiny"))
    return GoldenMaker(prober(Network(node=node)), kept, limit=24)


def kept_answers(cache: Path) -> list[Path]:
    return list(cache.rglob("*.json"))


async def test_a_given_continuation_is_taken_instead_of_an_answer(tmp_path: Path) -> None:
    node = TinyNode()

    made = await maker(node, tmp_path).sequence(GIVEN)

    assert bytes(made.continuation) == b"and so on"
    assert node.completions() == []


async def test_a_given_continuation_of_no_tokens_cannot_be_scored(tmp_path: Path) -> None:
    """One-token mode would be left without a single position to ask about."""
    calls: list[str] = []

    def second_is_empty(path: str) -> Response | None:
        calls.append(path)
        return Response(json.dumps({"tokens": []})) if len(calls) == 2 else None

    with pytest.raises(ReplyInvalid, match="letters-0: the given continuation is empty"):
        await maker(TinyNode(replace=second_is_empty), tmp_path).sequence(GIVEN)


async def test_an_answer_of_one_token_is_refused_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ReplyInvalid, match="the baseline's own answer is one token over and over"):
        await maker(TinyNode(model=TinyModel(stuck_on=33)), tmp_path).sequence(PROMPT)

    assert kept_answers(tmp_path) == []
