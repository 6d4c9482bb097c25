"""Every mismatch that a handshake can find, in whole runs: the state is invalid and the reason says what to do."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from quantwatch.flow.handshake import Handshake, Point
from quantwatch.flow.report import TargetReport
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import Quality
from support.runs import compared, node, only
from support.tiny_node import TinyModel, TinyNode
from support.watching import settings, watching


def wrong_name(path: str) -> Response | None:
    card = {"id": "another", "root": "tiny", "parent": None, "max_model_len": 100}
    cards = [card, {**card, "id": "one more"}]
    return Response(json.dumps({"data": cards})) if path == "/v1/models" else None


RAW = "--logprobs-mode raw_logprobs"
FAULTS: dict[str, tuple[dict[str, Any], Point, str]] = {
    "another tokenizer": ({"tokenizer_shift": 1}, Point.TOKENIZER, "first on accents (56 ids each, and others)"),
    "processed log-probabilities": (
        {"mode": "processed_logprobs"},
        Point.LOGPROBS_MODE,
        "--logprobs-mode raw_logprobs",
    ),
    "raw logits": ({"mode": "raw_logits"}, Point.LOGPROBS_MODE, RAW),
    "processed logits": ({"mode": "processed_logits"}, Point.LOGPROBS_MODE, RAW),
    "no prompt_logprobs": ({"drops": ("prompt_logprobs",)}, Point.FIELDS, "no prompt_logprobs in the reply"),
    "no ids of the prompt": ({"drops": ("prompt_token_ids",)}, Point.FIELDS, "does not repeat the prompt's token ids"),
    "another model": ({"replace": wrong_name}, Point.MODEL, "it serves another, one more"),
    "another vocabulary": ({"owner": "vllm", "vocabulary": 320}, Point.VOCABULARY, "300 ids at the baseline, 320"),
}


async def target(tmp_path: Path, *, node: TinyNode) -> TargetReport:
    told = TinyNode(owner="vllm", vocabulary=300)
    return (await compared(tmp_path, baseline=told, node=node)).targets[0]


def met(found: TargetReport) -> Handshake:
    assert found.handshake is not None
    return found.handshake


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_mismatch_is_invalid_and_says_why(tmp_path: Path, fault: str) -> None:
    options, point, said = FAULTS[fault]
    found = await target(tmp_path, node=node(1.5, **options))

    assert found.quality is Quality.INVALID
    assert said in found.reasons[0]
    assert [one.point for one in met(found).seen if one.ok is False] == [point]
    assert met(found).ok is False


async def test_a_healthy_pair_is_comparable_in_every_point(tmp_path: Path) -> None:
    found = await target(tmp_path, node=node(owner="vllm", vocabulary=300))

    assert found.quality is Quality.OK
    assert {one.point for one in met(found).seen} == set(Point) - {Point.BASELINE}
    assert all(one.ok for one in met(found).seen)


async def test_a_cap_of_5_lowers_k_for_both(tmp_path: Path) -> None:
    found = await target(tmp_path, node=node(cap=5))

    assert found.quality is Quality.OK
    assert found.task_sets[0].k == 5
    assert "gives 5, asked for 10" in [one.detail for one in met(found).seen]


async def test_a_penalty_of_the_models_own_files_changes_nothing(tmp_path: Path) -> None:
    """The fields are all sent, so what generation_config.json holds never comes to bear."""
    penalty = {"repetition_penalty": 1.5, "temperature": 0.7, "top_k": 3}
    leaky = node(generation_config=penalty)
    one = only(await compared(tmp_path, node=leaky))

    assert one.verdict.quality is Quality.OK
    assert one.divergence is not None
    assert one.divergence.kl_mean.value == pytest.approx(0, abs=1e-6)


async def test_a_context_that_is_too_short_skips_and_names_both_numbers(tmp_path: Path) -> None:
    short = node(max_model_len=40)
    found = await target(tmp_path, node=short)

    assert found.quality is Quality.SKIPPED
    assert "max_model_len 40" in found.reasons[0]
    assert met(found).ok is True
    assert all(len(body["prompt"]) <= 40 for body in short.completions())


async def test_a_baseline_under_two_names_is_one_server(tmp_path: Path) -> None:
    """Found by its process, whatever its numbers say."""
    twin = TinyNode(model=TinyModel(damage=1.5), owner="vllm", vocabulary=300)
    found = await target(tmp_path, node=twin)

    assert found.quality is Quality.INVALID
    assert [one.point for one in met(found).seen if one.ok is False] == [Point.TWO_SERVERS]


async def test_two_processes_with_equal_numbers_are_two_servers(tmp_path: Path) -> None:
    found = await target(tmp_path, node=node())

    assert found.quality is Quality.OK
    assert found.task_sets[0].divergence is not None
    assert found.task_sets[0].divergence.kl_mean.value == pytest.approx(0, abs=1e-6)


async def test_a_baseline_that_cannot_be_compared_makes_no_target_comparable(tmp_path: Path) -> None:
    result = await compared(tmp_path, baseline=TinyNode(mode="raw_logits"), node=node(1.5))

    assert result.targets[0].quality is Quality.INVALID
    assert met(result.targets[0]).ok is False
    assert [one.point for one in met(result.targets[0]).seen if one.ok is False] == [Point.BASELINE]


async def test_a_server_that_is_down_is_neither_comparable_nor_not(tmp_path: Path) -> None:
    def down(path: str) -> Response | None:
        return Response("dead", 500) if path == "/v1/completions" else None

    found = await target(tmp_path, node=node(replace=down))

    assert found.quality is Quality.UNKNOWN
    assert met(found).ok is None
    assert met(found).notes == ()


# ------------------------------------------------------------------ while watching


def with_ranks(ranks: int) -> dict[str, Any]:
    raw = settings("a")
    raw["targets"][0]["data_parallel_size"] = ranks
    return raw


def scored_ranks(one: TinyNode) -> list[str | None]:
    """Which ranks were asked about sequences: everything but the handshake and the free answer."""
    bodies = zip(one.asked, one.ranks, strict=True)
    return [
        rank for body, rank in bodies if body["max_tokens"] == 1 and 16 not in (len(body["prompt"]), *lengths(body))
    ]


def lengths(body: dict[str, Any]) -> list[int]:
    """Of the prompts of a request."""
    return [len(one) for one in body["prompt"] if isinstance(one, list)]


async def test_sequences_go_to_the_ranks_in_turn(tmp_path: Path) -> None:
    async with watching(tmp_path, with_ranks(3)) as bench:
        bench.nodes["a"].engines = 3
        await bench.round("a")
        ranks = scored_ranks(bench.nodes["a"])

        assert bench.target("a").quality is Quality.OK
        assert set(ranks) == {"0", "1", "2"}
        assert all(int(after or 0) == (int(before or 0) + 1) % 3 for before, after in pairwise(ranks))
        assert set(bench.nodes["baseline"].ranks) == {None}
        assert None not in bench.nodes["a"].ranks


async def test_a_broken_rank_is_named_and_confirmed_at_that_rank(tmp_path: Path) -> None:
    async with watching(tmp_path, with_ranks(3)) as bench:
        sick = bench.nodes["a"]
        sick.engines = 3
        await bench.round("a")
        sick.nan_rank = 2
        sick.ranks.clear()
        sick.asked.clear()
        await bench.round("a")

        assert bench.target("a").quality is Quality.CORRUPTED
        assert "(rank 2)" in bench.target("a").reason
        assert sick.ranks[-2:] == ["2", "2"] or sick.ranks[-3:-1] == ["2", "2"]


async def test_a_data_parallel_url_is_noted_on_the_board(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a")) as bench:
        bench.nodes["a"].engines = 2
        await bench.round("a")

        board = bench.target("a")
        assert board.quality is Quality.OK
        assert board.handshake is not None
        assert "data_parallel_size: 2" in board.handshake.notes[0]


async def test_a_plain_restart_between_rounds_is_no_obstacle(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a")) as bench:
        await bench.round("a")
        bench.nodes["a"].started += 3600
        await bench.rounds(1, "a")

        assert [run.quality for run in bench.runs("a")] == ["ok", "ok"]
        assert await bench.series("handshake_ok", target="a") == 1


async def test_a_url_that_changes_between_two_processes_is_invalid_and_names_both(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a")) as bench:
        for started in (1_700_000_500.0, 1_700_009_000.0, 1_700_000_500.0):
            bench.nodes["a"].started = started
            await bench.round("a")

        board = bench.target("a")
        assert board.quality is Quality.INVALID
        assert "2023-11-14 22:21:40.00 UTC" in board.reason
        assert "2023-11-15 00:43:20.00 UTC" in board.reason
        assert await bench.series("handshake_ok", target="a") == 0
        assert await bench.series("handshake_check_ok", target="a", check="one_server") == 0


async def test_a_mismatch_never_isolates_and_is_told_by_metrics_and_status(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        bench.nodes["a"].mode = "processed_logits"
        bench.nodes["a"].started += 3600
        await bench.rounds(4, "a")

        assert bench.target("a").quality is Quality.INVALID
        assert "--logprobs-mode raw_logprobs" in bench.target("a").reason
        assert bench.routing("a") is Routing.IN
        assert await bench.series("handshake_check_ok", target="a", check="logprobs_mode") == 0
        assert await bench.series("handshake_ok", target="b") == 1


async def test_later_rounds_cost_a_third(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a")) as bench:
        costs = []
        for _ in range(3):
            await bench.round("a")
            board = bench.target("a")
            assert board.handshake is not None
            costs.append(board.handshake.tokens)

        assert costs == [51, 17, 17]
