"""The yardstick is proven at once where many nodes breach: by all stored answers, and for those it measured alone."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quantwatch.flow.pool import PoolState
from quantwatch.flows.enroll import Ending
from quantwatch.flows.proof import prove
from support.enrolments import enrolled, raw
from support.watching import Bench, node, restarted, settings, watching

BAD = 2.0
PAIR = ("a", "letters")


def small(*targets: str) -> dict[str, Any]:
    return settings(*targets, task_set={"confirm_cycles": 3, "draw": 5, "draw_at_most": 10})


async def breached(bench: Bench) -> None:
    await bench.rounds(1)
    restarted(bench.nodes["a"], damage=BAD)
    await bench.round("a")


async def test_a_breach_is_proven_thoroughly_and_its_node_greeted(tmp_path: Path) -> None:
    async with watching(tmp_path, small()) as bench:
        await breached(bench)
        before, met = bench.memory.checks[PAIR], bench.memory.handshakes["a"]
        asked = len(bench.wire.calls)
        await prove(bench.watch.generation, bench.memory, [PAIR])
        after = bench.memory.checks[PAIR]
        assert (after.sound, after.thorough, after.at > before.at) == (True, True, True)
        assert bench.memory.handshakes["a"] is not met
        assert bench.memory.handshakes["a"].ok is True
        assert {"a", "baseline"} == set(bench.wire.calls[asked:])
        assert bench.watch.generation.users == 0


async def test_a_breach_that_another_baseline_measured_is_not_proven_by_this_one(tmp_path: Path) -> None:
    async with watching(tmp_path, small()) as bench:
        await bench.rounds(1)
        restarted(bench.baseline, seed=99)
        bench.baseline.max_model_len = 4096
        await bench.round("a")
        before = bench.memory.checks[PAIR]
        assert before.new
        restarted(bench.baseline, seed=7)
        bench.baseline.max_model_len = 8192
        await prove(bench.watch.generation, bench.memory, [PAIR])
        assert bench.memory.checks[PAIR] is before


async def test_a_baseline_that_moved_is_found_out_whoever_measured(tmp_path: Path) -> None:
    async with watching(tmp_path, small()) as bench:
        await breached(bench)
        restarted(bench.baseline, seed=99)
        bench.memory.yardsticks.clear()
        await prove(bench.watch.generation, bench.memory, [PAIR])
        assert bench.memory.checks[PAIR].sound is False


async def test_a_node_that_no_handshake_fits_takes_the_proof_back(tmp_path: Path) -> None:
    async with watching(tmp_path, small("a", "b", "c")) as bench:
        await bench.rounds(1)
        for name in ("a", "b"):
            restarted(bench.nodes[name], damage=BAD)
        await bench.round("a")
        bench.nodes["a"].mode = "raw_logits"
        await bench.round("b")
        pool = bench.board().pools[0].stands
        assert pool.state is PoolState.STORM
        assert "the handshake with a failed" in pool.reason


async def test_of_what_has_left_nothing_is_asked(tmp_path: Path) -> None:
    async with watching(tmp_path, small()) as bench:
        await prove(bench.watch.generation, bench.memory, [("gone", "letters"), ("a", "gone")])
        assert set(bench.wire.calls) <= {"gateway"}


async def test_a_proof_that_takes_too_long_proves_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path, small()) as bench:
        await breached(bench)
        before = bench.memory.checks[PAIR]
        bench.wire.held["baseline"] = asyncio.Event()
        await prove(bench.watch.generation, bench.memory, [PAIR], seconds=0.05)
        assert bench.memory.checks[PAIR] is before
        assert bench.watch.generation.users == 0
        bench.wire.held.clear()


async def three_with_enrolled_answers(place: Path) -> dict[str, Any]:
    whole = raw(store={"path": str(place / "q.db")}, task_set={"confirm_cycles": 3, "draw": 5, "draw_at_most": 10})
    whole["targets"].append(whole["targets"][0] | {"name": "c", "url": "http://c"})
    one = await enrolled(place, node(number=0), content=whole, anew=True)
    assert one.ending is Ending.ENROLLED, one.reason
    return whole


@pytest.mark.parametrize("baseline", ["off", "the same", "another"])
async def test_enrolled_answers_are_the_yardstick_unless_the_baseline_itself_has_moved(
    tmp_path: Path, baseline: str
) -> None:
    whole = await three_with_enrolled_answers(tmp_path)
    async with watching(tmp_path, whole) as bench:
        await bench.rounds(1)
        assert "baseline" not in bench.wire.calls
        for name in ("a", "b"):
            restarted(bench.nodes[name], damage=BAD)
        if baseline == "off":
            bench.wire.down = {"baseline"}
        if baseline == "another":
            restarted(bench.baseline, seed=99)
        await bench.round("a")
        assert "baseline" not in bench.wire.calls
        await bench.round("b")
        pool = bench.board().pools[0].stands
        assert "baseline" in bench.wire.calls  # it was asked at once, with nothing due
        moved = baseline == "another"
        assert pool.state is (PoolState.STORM if moved else PoolState.FLEET_DEGRADED)
        assert ("reference_drifted" in pool.reason) == moved
