"""Runs that hang, crash or meet, and clocks that jump."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import CANNOT_TELL, Quality
from support.watching import EVERY, Bench, letters, restarted, settings, watching

BAD = 1.0
DAY = 24 * 3600.0


def broken_code(_: str) -> Response | None:
    """A fault of ours that nobody has foreseen."""
    raise RuntimeError("nobody has foreseen this")


async def test_a_fault_of_ours_ends_one_run_and_not_the_worker(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        bench.nodes["a"].replace = broken_code
        await bench.rounds(1)
        assert bench.runs("a") == []
        assert [run.quality for run in bench.runs("b")] == [Quality.OK]
        assert await bench.series("runs_skipped_total", target="a", reason="crashed") == 1

        bench.nodes["a"].replace = lambda _: None
        await bench.rounds(1)
        assert [run.quality for run in bench.runs("a")] == [Quality.OK]


async def test_a_node_that_hangs_is_left_when_the_runs_time_is_up(tmp_path: Path) -> None:
    raw = settings(probe={"patience": "0s", "run_timeout": "200ms"})
    async with watching(tmp_path, raw) as bench:
        bench.nodes["a"].delay = 60.0
        await bench.round("a")

        (run,) = bench.runs("a")
        assert run.quality in CANNOT_TELL
        assert run.reason.startswith("stopped after 0.2 s")
        assert bench.decisions() == []
        bench.nodes["a"].delay = 0.0
        await bench.rounds(1, "b")
        assert bench.runs("b")[-1].target == "b"


async def test_task_sets_that_are_due_together_never_meet_on_a_node(tmp_path: Path) -> None:
    raw = settings()
    raw["task_sets"] |= {"second": letters(), "third": letters(confirm_cycles=3)}
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        asked: list[str | None] = []

        def hear(_: str) -> Response | None:
            asked.append(bench.watch.workers["a"].running)
            return None

        bench.nodes["a"].replace = hear
        for name in raw["task_sets"]:
            assert bench.watch.due("a", name)
        await bench.settle()

        # Each is asked in one piece, twice over: a confirmation comes at once, before what waits.
        order = [one for i, one in enumerate(asked) if i == 0 or one != asked[i - 1]]
        assert order == ["letters", "second", "third"]
        confirmed_twice = ["schedule", "confirm", "schedule", "confirm", "schedule"]  # the third wants a breach more
        assert [run.document["trigger"] for run in bench.runs("a")[3:]] == confirmed_twice


async def test_what_waits_already_is_not_queued_again_and_counted(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        assert bench.watch.due("a", "letters")
        assert not bench.watch.due("a", "letters")
        assert bench.watch.due("b", "letters")
        await bench.settle()

        assert len(bench.runs("a")) == 1
        assert await bench.series("runs_skipped_total", target="a", reason="overlap") == 1
        assert await bench.series("runs_skipped_total", target="b", reason="overlap") == 0


async def test_two_nodes_are_measured_side_by_side(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        running = set()

        def hear(_: str) -> Response | None:
            running.add(tuple(name for name, one in bench.watch.workers.items() if one.running is not None))
            return None

        bench.nodes["a"].replace = bench.nodes["b"].replace = hear
        for name in ("a", "b"):
            bench.watch.due(name, "letters")
        await bench.settle()

        assert ("a", "b") in running


async def test_nobody_watches_what_is_not_configured(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        assert not bench.watch.due("x", "letters")
        assert not bench.watch.due("a", "x")


async def test_stopping_lets_a_run_under_way_end_and_forgets_what_waits(tmp_path: Path) -> None:
    raw = settings()
    raw["task_sets"]["second"] = letters()
    async with watching(tmp_path, raw) as bench:
        bench.watch.due("a", "letters")
        bench.watch.due("a", "second")
        await bench.until(lambda: bench.watch.workers["a"].running)
        await bench.watch.stop(20)

        assert [(run.task_set, run.quality) for run in bench.runs()] == [("letters", Quality.OK)]
        assert await bench.series("runs_skipped_total", task_set="second", reason="draining") == 1
        assert not bench.watch.due("a", "letters")


async def test_stopping_cuts_off_a_run_that_does_not_end(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        bench.nodes["a"].delay = 60.0
        bench.watch.due("a", "letters")
        await bench.until(lambda: bench.watch.workers["a"].running)
        await bench.watch.stop(0.05)

        assert bench.runs() == []
        assert bench.watch.generation.users == 0


async def test_stopping_leaves_an_order_open_in_the_store(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.gateway.down = True
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        await bench.watch.stop(1)

        (made,) = bench.decisions()
        assert made.intent is not None
        assert made.intent.outcome is None


@pytest.mark.parametrize("jump", [DAY, -365 * DAY, 365 * DAY])
async def test_a_wall_clock_that_jumps_takes_nobody_out(tmp_path: Path, jump: float) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        bench.clock.ahead += jump
        assert bench.target().quality is Quality.UNKNOWN  # how old the last result is can no longer be told
        assert not bench.target().sets[0].fresh
        await bench.rounds(1)

        assert bench.target().quality is Quality.OK
        assert bench.target().sets[0].fresh
        assert bench.decisions() == []
        assert bench.gateway.calls == []


@pytest.mark.parametrize("jump", [DAY, -365 * DAY])
async def test_breaches_before_a_jump_are_not_counted_together_with_those_after_it(tmp_path: Path, jump: float) -> None:
    async with watching(tmp_path, settings(task_set={"confirm_cycles": 3})) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        bench.clock.ahead += jump
        await bench.rounds(1)
        assert bench.target().sets[0].state.breaches == 1
        assert bench.routing() is Routing.IN

        await bench.rounds(1)
        assert bench.routing() is Routing.OUT


async def test_a_breach_from_before_a_long_pause_of_the_daemon_is_not_made_fresh_by_a_node_that_is_down(
    tmp_path: Path,
) -> None:
    async with watching(tmp_path, settings(pool={"mode": "observe"})) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert bench.target().quality is Quality.DEGRADED
        nodes = bench.nodes

    async with watching(tmp_path, nodes=nodes, clock=bench.clock) as again:
        again.wire.down.add("a")
        await again.advance(DAY)
        await again.rounds(2)

        assert again.decisions() == []
        assert again.target().quality is Quality.UNKNOWN


async def test_a_confirmed_breach_from_before_a_jump_is_not_acted_upon(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        pause = await bench.people.pause("all", reason="rollout", author="ada", seconds=None)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        bench.clock.ahead += DAY
        await bench.people.resume(pause.id, author="ada")
        bench.wire.down.add("a")
        await bench.rounds(1)

        assert bench.gateway.calls == []


@pytest.mark.parametrize("jump", [DAY, -365 * DAY])
async def test_a_node_that_is_out_comes_back_after_the_clock_was_set(tmp_path: Path, jump: float) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT
        set_clock(bench, jump)
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT

        restarted(bench.nodes["a"])
        await bench.rounds(2)
        assert bench.gateway.changes == [("http://a", True), ("http://a", False)]
        assert bench.routing() is Routing.IN


def set_clock(bench: Bench, seconds: float) -> None:
    """Set the wall clock, as the daemon notices it within a beat."""
    bench.clock.ahead += seconds
    if seconds < 0:
        bench.memory.shift(seconds)


async def test_a_gateway_answer_is_awaited_by_the_steady_clock(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.gateway.down = True
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        set_clock(bench, -30 * DAY)
        bench.gateway.down = False
        await bench.advance(120)

        assert bench.gateway.changes == [("http://a", True)]
        assert bench.routing() is Routing.OUT


async def test_the_same_seed_of_chance_makes_the_same_draws(tmp_path: Path) -> None:
    seeds = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        async with watching(tmp_path / name) as bench:
            await bench.rounds(2, "a")
            seeds.append([run.numbers["seed"] for run in bench.runs("a")])

    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 2


async def test_a_node_that_is_down_is_unknown_and_never_taken_out(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.wire.down.add("a")
        await bench.rounds(4)

        assert {run.quality for run in bench.runs("a")[1:]} == {Quality.UNKNOWN}
        assert bench.gateway.calls == []


async def test_a_node_that_answers_nonsense_is_invalid_and_never_taken_out(tmp_path: Path) -> None:
    def nonsense(reply: dict[str, Any]) -> dict[str, Any]:
        return {**reply, "choices": "many"}

    async with watching(tmp_path) as bench:
        bench.nodes["a"].edit = nonsense
        await bench.rounds(3)

        assert {run.quality for run in bench.runs("a")} == {Quality.INVALID}
        assert bench.gateway.calls == []


async def test_every_request_to_a_node_is_counted(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.advance(EVERY)
        await bench.round("a")

        counted = await bench.series("upstream_requests_total", role="target", target="a")
        assert 0 < counted <= bench.wire.calls.count("a")
        with pytest.raises(httpx.ConnectError):
            await bench.wire.handle_async_request(httpx.Request("GET", "http://nowhere"))
