"""Tokens are taken beside a run: a fault of ours in it costs nothing but them."""

from dataclasses import replace
from pathlib import Path

import pytest

from quantwatch.flow.tokens import PromptsShown
from quantwatch.flows.compare import Comparison
from quantwatch.flows.evidence import evidence
from support.builders import prober
from support.recordings import pairs
from support.runs import plan
from support.tiny_node import Network, TinyNode


def gathered(folder: Path, *, known: bool) -> Comparison:
    """A comparison that has one answer of its draw. known: with its golden tokens."""
    asked = prober(Network(node=TinyNode()))
    comparison = Comparison(asked, [asked], plan(), cache=folder, tell=lambda _: None)
    one = comparison.nodes[0].sets[0]
    name, answer = next(iter(one.planned.weights)), pairs("int4-w4g64")[0]
    one.answers[name] = answer if known else replace(answer, sequence=())
    return comparison


async def test_tokens_are_taken_where_they_may_be_kept(tmp_path: Path) -> None:
    seen = await evidence(gathered(tmp_path, known=True), PromptsShown.IDS)

    assert seen is not None
    assert [len(one.tokens) for one in seen.prompts] == [48]
    assert await evidence(gathered(tmp_path, known=True), PromptsShown.OFF) is None


async def test_a_fault_of_ours_costs_the_tokens_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert await evidence(gathered(tmp_path, known=False), PromptsShown.FULL) is None
    assert "the tokens of a run could not be kept, by a fault in quantwatch" in caplog.text


async def test_without_answers_there_are_no_tokens(tmp_path: Path) -> None:
    comparison = gathered(tmp_path, known=True)
    comparison.nodes[0].sets[0].answers.clear()

    assert await evidence(comparison, PromptsShown.FULL) is None


async def test_numbers_of_two_processes_leave_no_tokens(tmp_path: Path) -> None:
    comparison = gathered(tmp_path, known=True)
    comparison.nodes[0].void("the server restarted")

    assert await evidence(comparison, PromptsShown.FULL) is None
