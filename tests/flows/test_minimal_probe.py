"""A node that is busy run after run: one small probe in spite of the gate, which can only find broken numbers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from quantwatch.flow.decision import Action, Brake
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import Quality
from quantwatch.flows.enroll import Ending
from quantwatch.flows.minimal import BUSY_RUNS, CLEAN, MOST_TOKENS
from quantwatch.record.documents import StoredRun
from support.enrolments import enrolled, raw
from support.tiny_node import TinyNode
from support.watching import EVERY, Bench, node, restarted, settings, watching

BAD = 1.0


def triggers(bench: Bench, name: str = "a") -> list[str]:
    return [run.document["trigger"] for run in bench.runs(name)]


def minimal(bench: Bench, name: str = "a") -> list[StoredRun]:
    return [run for run in bench.runs(name) if run.document["trigger"] == "minimal"]


def restarting(one: TinyNode) -> Callable[[dict[str, Any]], Any]:
    """Let a node restart with each answer."""

    def edit(reply: dict[str, Any]) -> Any:
        restarted(one)
        return reply

    return edit


async def busy_for(bench: Bench, runs: int, name: str = "a", *, waiting: float = 9) -> TinyNode:
    bench.nodes[name].waiting = waiting
    await bench.rounds(runs, name)
    return bench.nodes[name]


async def test_the_third_busy_run_in_a_row_is_followed_by_one_minimal_probe(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        await busy_for(bench, BUSY_RUNS - 1)
        assert minimal(bench) == []
        await busy_for(bench, 1)

        assert triggers(bench)[-2:] == ["schedule", "minimal"]
        (run,) = minimal(bench)
        assert (run.quality, run.reason) == (Quality.SKIPPED, CLEAN)
        before, _ = run.loads
        assert before is not None
        assert before.waiting == 9


async def test_it_costs_one_short_prompt_and_one_token(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        asked = len(bench.nodes["a"].completions())
        one = await busy_for(bench, BUSY_RUNS)

        (body,) = one.completions()[asked:]
        (prompt,) = body["prompt"]
        assert 1 < len(prompt) <= MOST_TOKENS
        assert (body["max_tokens"], body["logprobs"]) == (1, 5)


async def test_the_next_one_comes_after_three_more(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await busy_for(bench, 2 * BUSY_RUNS)

        assert triggers(bench) == [*["schedule"] * BUSY_RUNS, "minimal"] * 2


async def test_a_run_in_between_that_was_not_kept_back_begins_the_count_anew(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await busy_for(bench, BUSY_RUNS - 1)
        await busy_for(bench, 1, waiting=0)
        await busy_for(bench, BUSY_RUNS - 1)

        assert minimal(bench) == []


async def test_a_node_at_rest_is_not_busy(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        one = bench.nodes["a"]
        one.edit = restarting(one)
        await bench.rounds(1, "a")
        one.edit = None
        await bench.rounds(5, "a", every=10.0)

        assert [run.quality for run in bench.runs("a")[1:]] == [Quality.SKIPPED] * 5
        assert minimal(bench) == []


async def test_a_busy_baseline_brings_no_probe_of_the_node(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.baseline.waiting = 9
        await bench.rounds(BUSY_RUNS + 1, "a")

        assert [run.quality for run in bench.runs("a")[1:]] == [Quality.SKIPPED] * (BUSY_RUNS + 1)
        assert minimal(bench) == []


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_says_it_is_busy_is_taken_at_its_word(tmp_path: Path, status: int) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        one = bench.nodes["a"]
        one.replace = lambda path: Response("busy", status) if path == "/v1/completions" else None
        asked = len(one.completions())
        await bench.rounds(BUSY_RUNS, "a")

        (run,) = minimal(bench)
        assert run.quality is Quality.SKIPPED
        assert f"a minimal probe gave nothing: a: HTTP {status}" in run.reason
        assert len(one.completions()) == asked


async def test_it_waits_for_the_tokens_of_the_minute(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", probe={"patience": "0s", "tokens_per_minute": 64})) as bench:
        one = await busy_for(bench, BUSY_RUNS)
        await bench.advance(EVERY)
        assert len(minimal(bench)) == 1
        await bench.reload(settings("a", probe={"patience": "1s", "tokens_per_minute": 64}))
        assert one.prompt_tokens + one.generated_tokens <= 64


# What it may not do


async def test_it_clears_nothing_and_ages_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        await busy_for(bench, BUSY_RUNS)
        state = bench.memory.set_state("a", "letters")

        assert state.undecided == BUSY_RUNS
        assert state.quality is Quality.SKIPPED
        assert (state.clean, state.run) == (2, bench.runs("a")[-2].id)


async def test_a_busy_peer_that_a_minimal_probe_found_clean_is_no_backend(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        await busy_for(bench, BUSY_RUNS, "b")
        assert len(minimal(bench, "b")) == 1
        restarted(bench.nodes["a"], damage=BAD)
        await bench.round("a")

        assert bench.routing("a") is Routing.IN
        assert {one["brake"] for one in bench.decisions()[-1].objections} == {Brake.LAST_BACKEND}


async def test_a_confirmed_breach_stands_and_no_fresher_than_before(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", pool={"mode": "observe"})) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        proof = bench.memory.set_state("a", "letters").proof
        await busy_for(bench, BUSY_RUNS)
        state = bench.memory.set_state("a", "letters")

        assert (state.quality, state.proof, state.undecided) == (Quality.DEGRADED, proof, BUSY_RUNS)


async def test_damage_alone_is_not_seen(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await busy_for(bench, BUSY_RUNS)

        assert minimal(bench)[0].reason == CLEAN
        assert bench.decisions() == []


async def test_it_leaves_what_is_known_of_the_baseline_alone(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        await busy_for(bench, BUSY_RUNS)

        assert bench.memory.checks["a", "letters"].sound is True
        assert bench.board().baseline.up is True
        assert bench.memory.baseline is not None


# What it finds


async def test_broken_numbers_under_load_are_found_and_acted_upon(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        bench.nodes["a"].nan_on = lambda _: True
        bench.nodes["a"].waiting = 9
        await bench.rounds(BUSY_RUNS)

        (run,) = minimal(bench)
        assert run.quality is Quality.CORRUPTED
        assert "seen twice" in run.reason
        assert bench.target("a").quality is Quality.CORRUPTED
        assert bench.routing("a") is Routing.OUT
        (made,) = bench.decisions()
        assert (made.action, made.lane, made.run) == (Action.ISOLATE, "corrupted", run.id)


async def test_broken_numbers_found_so_stand_while_the_node_stays_busy(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", pool={"mode": "observe"})) as bench:
        await bench.rounds(2)
        bench.nodes["a"].nan_on = lambda _: True
        await busy_for(bench, BUSY_RUNS + 1)

        assert bench.target("a").quality is Quality.CORRUPTED


async def test_what_is_seen_once_is_told_and_counts_for_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        one = bench.nodes["a"]
        asked = len(one.completions())
        one.nan_on = lambda _: len(one.completions()) == asked + 1
        await busy_for(bench, BUSY_RUNS)

        (run,) = minimal(bench)
        assert run.quality is Quality.SKIPPED
        assert "not confirmed by a second probe" in run.reason
        assert bench.decisions() == []


async def test_broken_numbers_that_the_baseline_shows_as_well_count_for_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        bench.nodes["a"].nan_on = lambda _: True
        bench.baseline.nan_on = lambda ids: len(ids) == len("Say lamp") + 1
        await busy_for(bench, BUSY_RUNS)

        (run,) = minimal(bench)
        assert run.quality is Quality.SKIPPED
        assert "the baseline shows the same" in run.reason
        assert bench.decisions() == []


async def test_without_the_baseline_broken_numbers_count_for_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        bench.nodes["a"].nan_on = lambda _: True
        await busy_for(bench, BUSY_RUNS - 1)
        asked = len(bench.nodes["a"].completions())

        def gone(_: str) -> Response | None:
            if len(bench.nodes["a"].completions()) > asked:
                bench.wire.down.add("baseline")
            return None

        bench.nodes["a"].replace = gone
        await bench.rounds(1, "a")

        (run,) = minimal(bench)
        assert run.quality is Quality.SKIPPED
        assert "the baseline could not be asked the same" in run.reason
        assert bench.decisions() == []


async def test_with_enrolled_answers_broken_numbers_are_found_while_the_baseline_is_off(tmp_path: Path) -> None:
    content = raw(references={"mode": "stored"}, store={"path": str(tmp_path / "q.db")})
    assert (await enrolled(tmp_path, node(number=0), content=content, anew=True)).ending is Ending.ENROLLED
    async with watching(tmp_path, content) as bench:
        bench.wire.down = {"baseline"}
        await bench.rounds(2)
        bench.nodes["a"].nan_on = lambda _: True
        bench.nodes["a"].waiting = 9
        await bench.rounds(BUSY_RUNS)

        (run,) = minimal(bench)
        assert run.quality is Quality.CORRUPTED
        assert bench.routing("a") is Routing.OUT
        assert "baseline" not in bench.wire.calls


async def test_a_node_that_restarts_under_it_is_left_alone(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        one = bench.nodes["a"]
        one.edit = restarting(one)
        await busy_for(bench, BUSY_RUNS)

        (run,) = minimal(bench)
        assert run.quality is Quality.UNKNOWN
        assert "restarted while it was probed" in run.reason
        await bench.rounds(1, "a", every=30.0)
        assert "left alone until" in bench.runs("a")[-1].reason


async def test_a_node_that_does_not_answer_at_all_is_not_busy(tmp_path: Path) -> None:
    async with watching(tmp_path, nodes={"a": node()}) as bench:
        await bench.rounds(1)
        bench.wire.down.add("a")
        await bench.rounds(BUSY_RUNS + 1, "a")

        assert minimal(bench) == []
