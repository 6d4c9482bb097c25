"""What a watch may cost a node: tokens a minute over reloads and sets, restarts under probes, load with every run."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from quantwatch.flow.load import Load
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import Quality
from quantwatch.probe.account import FIRST_REST, WINDOW_SECONDS, rest
from support.tiny_node import TinyNode
from support.watching import EVERY, letters, node, restarted, settings, watching

BAD = 1.0


def at_completion(one: TinyNode, number: int, act: Callable[[], Response | None]) -> None:
    """Let something happen instead of the answer to so many-th completion from now on; None lets it be answered."""
    left = [number]

    def replace(path: str) -> Response | None:
        left[0] -= path == "/v1/completions"
        return act() if path == "/v1/completions" and left[0] == 0 else None

    one.replace = replace


def restarts_at(one: TinyNode, number: int, **model: float) -> None:
    """Let a node restart just before it answers a completion."""
    at_completion(one, number, lambda: restarted(one, **model))


def tokens_of(body: dict[str, Any]) -> int:
    prompts = body["prompt"] if isinstance(body["prompt"][0], list) else [body["prompt"]]
    return sum(len(ids) + body["max_tokens"] for ids in prompts)


def sent(one: TinyNode) -> float:
    return one.prompt_tokens + one.generated_tokens


# Tokens a minute


async def test_runs_wait_for_the_minute_and_come_to_the_same_end(tmp_path: Path) -> None:
    raw = settings("a", probe={"patience": "0s", "tokens_per_minute": 120})
    async with watching(tmp_path, raw) as bench:
        bench.watch.due("a", "letters")
        await bench.settle()
        assert bench.runs() == []
        assert sent(bench.nodes["a"]) <= 120
        await bench.advance(EVERY)

        (run,) = bench.runs()
        assert run.quality is Quality.OK
        assert sent(bench.nodes["a"]) > 120


async def test_no_minute_holds_more_than_it_may_over_sets_roles_and_reloads(tmp_path: Path) -> None:
    raw = settings("a", probe={"patience": "0s", "tokens_per_minute": 150})
    raw["task_sets"]["second"] = letters(mode="one_token")
    async with watching(tmp_path, raw) as bench:
        requests: dict[str, list[tuple[float, int]]] = {"baseline": [], "a": []}

        def hear(request: httpx.Request) -> None:
            if request.url.path == "/v1/completions":
                requests[request.url.host].append((bench.clock.time, tokens_of(json.loads(request.content))))

        bench.wire.hear = hear
        for round_ in range(3):
            for task_set in ("letters", "second"):
                bench.watch.due("a", task_set)
            await bench.settle()
            await bench.advance(300.0)  # in the middle of the runs
            await bench.reload({**raw, "probe": {"patience": f"{round_ + 1}s", "tokens_per_minute": 150}})
            await bench.advance(900.0)

        for times in requests.values():
            assert sum(tokens for _, tokens in times) > 5 * 150
            for start, _ in times:
                assert sum(tokens for at, tokens in times if start <= at < start + WINDOW_SECONDS - 0.1) <= 150
        assert {run.quality for run in bench.runs("a")} == {Quality.OK}


async def test_a_reload_fills_no_minute_up(tmp_path: Path) -> None:
    raw = settings("a", probe={"patience": "0s", "tokens_per_minute": 300})
    async with watching(tmp_path, raw) as bench:
        await bench.round("a")
        before = sent(bench.nodes["a"])
        assert before > 150
        await bench.reload({**raw, "probe": {"patience": "1s", "tokens_per_minute": 300}})
        bench.watch.due("a", "letters")
        await bench.settle()

        assert sent(bench.nodes["a"]) <= 300


async def test_the_time_limit_of_a_run_holds_while_it_waits(tmp_path: Path) -> None:
    raw = settings("a", probe={"patience": "0s", "tokens_per_minute": 120, "run_timeout": "2s"})
    async with watching(tmp_path, raw) as bench:
        bench.watch.due("a", "letters")
        await bench.until(bench.runs)

        assert bench.runs()[0].reason.startswith("stopped after 2 s")


async def test_tokens_are_counted_as_the_nodes_count_them(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a")) as bench:
        await bench.rounds(3)

        for role, name in (("target", "a"), ("baseline", "baseline")):
            counted = await bench.series("probe_tokens_total", role=role, target=name)
            assert counted == sent(bench.nodes[name])


# Restarts


async def test_a_restart_in_the_middle_ends_the_run_as_unknown_whatever_it_had_found(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        restarted(bench.nodes["a"], damage=BAD)
        restarts_at(bench.nodes["a"], 6, damage=BAD)
        await bench.rounds(1, "a")

        run = bench.runs("a")[-1]
        assert run.quality is Quality.UNKNOWN
        assert "restarted while it was probed" in run.reason
        assert bench.target("a").quality is Quality.UNKNOWN
        assert bench.routing("a") is Routing.IN
        assert await bench.series("probe_restarts_total", role="target", target="a") == 1


async def test_nothing_more_is_asked_of_a_node_that_restarted(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        bench.clock.time += 10
        one = bench.nodes["a"]

        def resets() -> Response:
            restarted(one)
            return Response("reset", 500)

        at_completion(one, 4, resets)
        await bench.round("a")

        # The fourth was answered with an error; before the fifth the gate looks, and it is not sent.
        assert len(one.completions()) == 3
        assert "restarted while it was probed" in bench.runs("a")[-1].reason


async def test_broken_numbers_of_a_process_that_is_gone_isolate_nobody(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        one = bench.nodes["a"]
        one.nan_on = lambda _: True
        asked = len(one.completions())

        def replace(path: str) -> Response | None:
            if path == "/metrics" and len(one.completions()) >= asked + 2:
                one.started += 77.0
                one.nan_on = lambda _: False
                one.replace = lambda _: None
            return None

        one.replace = replace
        await bench.rounds(1, "a")

        assert bench.runs("a")[-1].quality is Quality.UNKNOWN
        assert bench.decisions() == []


async def test_a_node_that_restarted_under_probes_is_left_alone_and_then_asked_again(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        one = bench.nodes["a"]
        await bench.rounds(1)
        restarts_at(one, 6)
        await bench.rounds(1, "a")
        asked = len(one.completions())
        await bench.rounds(1, "a", every=FIRST_REST / 2)
        assert len(one.completions()) == asked
        run = bench.runs("a")[-1]
        assert (run.quality, "left alone until" in run.reason) == (Quality.SKIPPED, True)

        await bench.rounds(1, "a", every=FIRST_REST)
        assert bench.runs("a")[-1].quality is Quality.OK


async def test_the_rest_grows_with_each_restart_in_a_row_and_a_run_that_passes_ends_it(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        one = bench.nodes["a"]
        for times in (1, 2, 3):
            restarts_at(one, 6)
            await bench.rounds(1, "a")
            assert bench.runs("a")[-1].quality is Quality.UNKNOWN
            await bench.rounds(1, "a", every=rest(times) - 30)
            assert bench.runs("a")[-1].quality is Quality.SKIPPED
            await bench.advance(60)
        assert await bench.series("probe_restarts_total", target="a") == 3

        one.replace = lambda _: None
        await bench.rounds(1, "a")
        assert bench.runs("a")[-1].quality is Quality.OK
        restarts_at(one, 6)
        await bench.rounds(1, "a")
        await bench.rounds(1, "a", every=FIRST_REST + 60)
        assert bench.runs("a")[-1].quality is Quality.OK


async def test_a_node_that_died_of_a_probe_and_came_back_later_is_left_alone(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        one = bench.nodes["a"]

        def dies() -> Response:
            bench.wire.down.add("a")
            return Response("reset", 500)

        at_completion(one, 5, dies)
        await bench.rounds(2, "a")
        assert [run.quality for run in bench.runs("a")[-2:]] == [Quality.UNKNOWN] * 2
        bench.wire.down.clear()
        restarted(one)
        await bench.rounds(1, "a")

        assert bench.runs("a")[-1].quality is Quality.SKIPPED
        assert "it restarted once while it was probed" in bench.runs("a")[-1].reason
        assert await bench.series("probe_restarts_total", target="a") == 1


@pytest.mark.parametrize("down", [False, True])
async def test_a_restart_between_two_runs_is_nobodys_fault(tmp_path: Path, down: bool) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        if down:
            bench.wire.down.add("a")
            await bench.rounds(2, "a")
            bench.wire.down.clear()
        restarted(bench.nodes["a"])
        await bench.rounds(1)

        assert bench.runs("a")[-1].quality is Quality.OK
        assert await bench.series("probe_restarts_total", target="a") == 0


async def test_a_baseline_that_restarts_in_the_middle_blames_no_node(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        restarted(bench.nodes["a"], damage=BAD)
        restarts_at(bench.baseline, 6)
        await bench.rounds(1, "a")

        run = bench.runs("a")[-1]
        assert run.quality is Quality.UNKNOWN
        assert run.reason.startswith("baseline: restarted while it was probed")
        assert await bench.series("probe_restarts_total", role="baseline") == 1
        assert bench.decisions() == []


async def test_a_run_that_shares_the_baseline_hears_of_its_restart(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        restarts_at(bench.baseline, 8)
        await bench.advance(EVERY)
        for name in ("a", "b"):
            bench.watch.due(name, "letters")
        await bench.settle()

        assert {run.quality for run in (bench.runs("a")[-1], bench.runs("b")[-1])} == {Quality.UNKNOWN}
        assert await bench.series("probe_restarts_total", role="baseline") == 1


async def test_the_rest_outlives_a_reload(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        restarts_at(bench.nodes["a"], 4)
        await bench.round("a")
        await bench.reload(settings(probe={"patience": "1s"}))
        await bench.round("a")

        assert "left alone until" in bench.runs("a")[-1].reason


# Load


async def test_the_load_before_and_after_stands_in_every_run(tmp_path: Path) -> None:
    async with watching(tmp_path, nodes={"a": node()}) as bench:
        one = bench.nodes["a"]
        one.running = 2
        one.prompt_tokens = 1000.0
        await bench.rounds(1, "a")

        before, after = bench.runs("a")[-1].loads
        assert after is not None
        assert before == Load(0, 0.1, one.started, 2, 1000.0, 0)
        assert after == Load(0, 0.1, one.started, 2, one.prompt_tokens, one.generated_tokens)
        (shown,) = bench.target("a").sets
        assert shown.loads == (replace(before, engines=("0",)), replace(after, engines=("0",)))


async def test_a_node_that_tells_no_load_leaves_it_empty(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        bench.nodes["a"].replace = lambda path: Response(status_code=404) if path == "/metrics" else None
        await bench.rounds(1, "a")

        assert bench.runs("a")[-1].loads == (None, None)
        assert bench.runs("a")[-1].quality is Quality.OK


async def test_a_busy_run_tells_how_busy(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        bench.nodes["a"].waiting = 7
        await bench.rounds(1, "a")

        before, after = bench.runs("a")[-1].loads
        assert before is not None
        assert after is not None
        assert (before.waiting, after.waiting) == (7, 7)
