"""Whatever is wrong with the baseline is never a node's fault, and nobody is taken out for it."""

from pathlib import Path
from typing import Any

import pytest

from quantwatch.flow.decision import Ruling
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import CANNOT_TELL, Quality
from quantwatch.flows.cycle import Ran
from support.watching import EVERY, Bench, node, restarted, settings, watching

BAD = 1.0
OTHER_WEIGHTS = 11


def assert_nobody_was_touched(bench: Bench) -> None:
    assert bench.gateway.calls == []
    assert [one for one in bench.decisions() if one.ruling is Ruling.ACT] == []
    assert bench.path_of("routing", "a") == bench.path_of("routing", "b") == []


async def test_a_baseline_that_is_down_makes_every_run_unknown(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.wire.down = {"baseline"}
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(4)

        assert {run.quality for run in bench.runs()[2:]} == {Quality.UNKNOWN}
        assert all(run.reason.startswith("baseline: ") for run in bench.runs()[2:])
        assert_nobody_was_touched(bench)
        assert await bench.verdict() == 200
        assert await bench.series("upstream_request_failures_total", role="baseline") > 0
        assert await bench.series("run_failures_total", target="a", reason="unknown") == 4


async def test_a_baseline_with_other_weights_under_its_old_name_makes_every_run_invalid(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        restarted(bench.baseline, seed=OTHER_WEIGHTS)
        await bench.rounds(4)

        assert {run.quality for run in bench.runs()[2:]} == {Quality.INVALID}
        assert all("no longer gives the answers it gave" in run.reason for run in bench.runs()[2:])
        assert_nobody_was_touched(bench)
        assert bench.board().baseline.sound is False
        assert (bench.board().baseline.drift or 0.0) > 0.1
        assert await bench.series("baseline_sound") == 0
        assert await bench.verdict() == 200


async def test_a_broken_node_is_not_judged_by_a_baseline_that_has_moved(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        restarted(bench.baseline, seed=OTHER_WEIGHTS)
        restarted(bench.nodes["a"], damage=BAD)
        restarted(bench.nodes["b"])
        bench.nodes["b"].nan_on = lambda ids: len(ids) > 10
        await bench.rounds(4)

        assert_nobody_was_touched(bench)


async def test_an_accepted_baseline_is_the_yardstick_from_then_on(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        for one in bench.nodes.values():
            restarted(one, seed=OTHER_WEIGHTS)
        await bench.rounds(2)
        assert bench.target().quality is Quality.INVALID

        told = await bench.people.accept_baseline(author="ada", reason="new weights")
        assert told.startswith("4 stored answers")
        await bench.rounds(2)
        assert [run.quality for run in bench.runs()[-4:]] == [Quality.OK] * 4
        assert bench.board().baseline.sound is True

        # And against the new one a node is judged as before.
        restarted(bench.nodes["a"], seed=OTHER_WEIGHTS, damage=BAD)
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT


async def test_an_accepted_baseline_stays_accepted_after_a_restart(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        for one in bench.nodes.values():
            restarted(one, seed=OTHER_WEIGHTS)
        await bench.people.accept_baseline(author="ada", reason="new weights")
        await bench.rounds(1)
        nodes = bench.nodes

    async with watching(tmp_path, nodes=nodes, clock=bench.clock) as again:
        await again.rounds(1)
        assert [run.quality for run in again.runs()[-2:]] == [Quality.OK] * 2


async def test_a_baseline_that_moved_is_found_out_after_a_restart_too(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        nodes = bench.nodes

    restarted(nodes["baseline"], seed=OTHER_WEIGHTS)
    async with watching(tmp_path, nodes=nodes, clock=bench.clock) as again:
        await again.rounds(1)
        assert [run.quality for run in again.runs()[-2:]] == [Quality.INVALID] * 2


async def test_a_baseline_of_another_version_is_enrolled_anew(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.baseline.max_model_len = 4096
        for one in bench.nodes.values():
            restarted(one, seed=OTHER_WEIGHTS)
        await bench.rounds(1)

        assert [run.quality for run in bench.runs()[-2:]] == [Quality.OK] * 2
        assert bench.board().baseline.sound is True


@pytest.mark.parametrize("where", ["from its first answer on", "in its answers to some prompts"])
async def test_a_baseline_with_nan_convicts_nobody(tmp_path: Path, where: str) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.baseline.nan_on = lambda ids: where.startswith("from") or len(ids) % 2 == 0
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(4)

        assert {run.quality for run in bench.runs("b")[1:]} <= CANNOT_TELL
        assert_nobody_was_touched(bench)


async def test_baseline_and_node_with_the_same_fault_convict_nobody(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        for one in bench.nodes.values():
            one.nan_on = lambda _: True
        await bench.rounds(3)

        assert_nobody_was_touched(bench)


async def test_a_baseline_that_answers_too_late_convicts_nobody(tmp_path: Path) -> None:
    raw = settings(probe={"patience": "0s", "timeout": "150ms"})
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(1)
        bench.baseline.delay = 0.4
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(2)

        assert {run.quality for run in bench.runs()[2:]} <= CANNOT_TELL
        assert_nobody_was_touched(bench)


async def test_a_baseline_gone_between_breach_and_confirmation_leaves_the_breach_unconfirmed(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)

        def pull_the_plug(ran: Ran) -> None:
            if ran.record.quality is Quality.DEGRADED:
                bench.wire.down.add("baseline")

        turns = bench.watch.turns
        bench.watch.turns = turns.hearing(pull_the_plug)
        await bench.advance(EVERY)
        await bench.round("a")
        assert [run.quality for run in bench.runs("a")[1:]] == [Quality.DEGRADED, Quality.UNKNOWN]
        assert bench.target().sets[0].state.breaches == 1
        assert_nobody_was_touched(bench)

        # A run that could not tell neither convicts nor clears: the next breach is the second in a row.
        bench.watch.turns = turns
        bench.wire.down.clear()
        await bench.advance(EVERY / 2)
        await bench.round("a")
        assert bench.routing() is Routing.OUT


async def test_two_servers_that_are_one_process_are_never_compared(tmp_path: Path) -> None:
    twin: dict[str, Any] = {"a": node(number=0)}
    async with watching(tmp_path, nodes=twin) as bench:
        await bench.rounds(2)

        assert {run.quality for run in bench.runs("a")} == {Quality.INVALID}
        assert "same server" in bench.runs("a")[0].reason
        assert_nobody_was_touched(bench)
