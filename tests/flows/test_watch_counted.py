"""Nodes that count their own broken numbers: a count that rises queues a run at once, and decides nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.responses import Response

from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import Quality
from quantwatch.flows.counted import REST_SECONDS, look
from support.gateway import Gateway
from support.watching import Bench, restarted, settings, watching


def counting(bench: Bench, broken: float, *, runaway: float = 0.0, name: str = "a") -> None:
    """Let a node show what our plugin in it has counted."""
    bench.nodes[name].more_metrics = (
        f'quantwatch_vllm_broken_logit_rows_total{{engine="0"}} {broken}\n'
        f'quantwatch_vllm_runaway_logit_rows_total{{engine="0"}} {runaway}\n'
    )


async def looked(bench: Bench) -> int:
    """Look once; how many runs of target a that gave."""
    before = len(bench.runs("a"))
    await look(bench.watch)
    await bench.settle()
    return len(bench.runs("a")) - before


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A watch over one node that counts, after its first run."""
    async with watching(tmp_path, settings("a")) as made:
        counting(made, 0)
        await made.round()
        yield made


async def test_a_count_that_rises_queues_a_run_at_once(bench: Bench) -> None:
    assert await looked(bench) == 0
    counting(bench, 3)
    assert await looked(bench) == 1
    assert await bench.series("target_broken_numbers", target="a", counted="broken_rows") == 3


async def test_the_engines_own_count_is_heeded_too(bench: Bench) -> None:
    for value, runs in ((0.0, 0), (1.0, 1)):
        bench.nodes["a"].more_metrics = f'vllm:corrupted_requests_total{{engine="0",model_name="m"}} {value}\n'
        assert await looked(bench) == runs
    assert await bench.series("target_broken_numbers", counted="corrupted_requests") == 1


async def test_magnitude_that_runs_away_is_a_reason_to_look(bench: Bench) -> None:
    counting(bench, 0, runaway=1)
    assert await looked(bench) == 1


async def test_a_count_alone_isolates_nobody(bench: Bench) -> None:
    """The node answers well, whatever it says that it has counted."""
    for count in range(1, 6):
        counting(bench, 1000.0 * count)
        await bench.advance(REST_SECONDS)
        assert await looked(bench) == 1
    assert bench.target().quality is Quality.OK
    assert bench.routing() is Routing.IN
    assert bench.gateway.calls == []


async def test_a_count_that_goes_on_rising_does_not_fill_the_node_with_probes(bench: Bench) -> None:
    made = 0
    for count in range(1, 11):
        counting(bench, count)
        made += await looked(bench)
        await bench.advance(REST_SECONDS / 5)
    assert made == 2


async def test_a_burst_while_the_target_rests_is_found_when_the_rest_is_over(bench: Bench) -> None:
    counting(bench, 1)
    assert await looked(bench) == 1
    counting(bench, 500)
    await bench.advance(REST_SECONDS / 2)
    assert await looked(bench) == 0
    await bench.advance(REST_SECONDS / 2)
    assert await looked(bench) == 1
    await bench.advance(REST_SECONDS)
    assert await looked(bench) == 0


async def test_a_rise_that_queued_no_run_is_not_taken_as_heeded(bench: Bench) -> None:
    worker = bench.watch.workers["a"]
    worker.close()
    counting(bench, 3)
    assert await looked(bench) == 0
    assert worker.heeded is None
    assert bench.memory.counts["a"].broken_rows == 0


async def test_our_own_probes_in_a_run_that_was_cut_are_no_rise(bench: Bench) -> None:
    asked: list[str] = []

    def silent_afterwards(path: str) -> Response | None:
        asked.append(path)
        return Response("busy", 503) if path == "/metrics" and "/v1/completions" in asked else None

    bench.nodes["a"].replace = silent_afterwards
    await bench.round()
    assert bench.runs("a")[-1].loads[1] is None
    bench.nodes["a"].replace = lambda _: None
    counting(bench, 6)
    assert await looked(bench) == 0
    counting(bench, 7)
    assert await looked(bench) == 1


async def test_after_a_restart_of_ours_the_next_look_finds_a_rise(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a")) as bench:
        counting(bench, 2)
        await bench.round()
    async with watching(tmp_path, settings("a")) as bench:
        await bench.advance(60)
        counting(bench, 0)
        assert await looked(bench) == 0
        counting(bench, 9)
        assert await looked(bench) == 1


async def test_a_node_that_is_known_to_be_corrupted_is_not_asked_for_it(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a")) as bench:
        await bench.round()
        counting(bench, 0)
        bench.nodes["a"].nan_on = lambda _ids: True
        await bench.rounds(1)
        assert bench.target().quality is Quality.CORRUPTED
        counting(bench, 50)
        assert await looked(bench) == 0


async def test_a_broken_node_goes_long_before_its_next_run_is_due(tmp_path: Path) -> None:
    gateway = Gateway()
    async with watching(tmp_path, settings("a", "b"), gateway=gateway) as bench:
        counting(bench, 0)
        await bench.rounds(2)
        bench.nodes["a"].nan_on = lambda _ids: True
        counting(bench, 7)
        await look(bench.watch)
        await bench.settle()
        assert bench.target().quality is Quality.CORRUPTED
        assert bench.routing() is Routing.OUT


async def test_another_process_counts_from_nothing(bench: Bench) -> None:
    counting(bench, 5)
    assert await looked(bench) == 1
    await bench.advance(REST_SECONDS)
    restarted(bench.nodes["a"])
    counting(bench, 0)
    assert await looked(bench) == 0
    counting(bench, 4)
    assert await looked(bench) == 1


async def test_a_restart_with_broken_rows_of_its_own_is_a_reason_to_look(bench: Bench) -> None:
    counting(bench, 5)
    await looked(bench)
    await bench.advance(REST_SECONDS)
    restarted(bench.nodes["a"])
    counting(bench, 2)
    assert await looked(bench) == 1


async def test_a_node_that_does_not_count_is_left_alone_between_runs(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a")) as bench:
        await bench.round()
        bench.wire.calls.clear()
        assert await looked(bench) == 0
        assert bench.wire.calls == []
        with pytest.raises(AssertionError, match="no series"):
            await bench.series("target_broken_numbers")


async def test_a_node_that_is_down_keeps_its_last_count(bench: Bench) -> None:
    counting(bench, 2)
    await looked(bench)
    bench.wire.down.add("a")
    await bench.advance(REST_SECONDS)
    assert await looked(bench) == 0
    assert await bench.series("target_broken_numbers", counted="broken_rows") == 2


async def test_what_leaves_the_configuration_is_not_asked_any_more(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", "b")) as bench:
        counting(bench, 0, name="b")
        await bench.round()
        assert set(bench.memory.counts) == {"b"}
        await bench.reload(settings("a"))
        assert bench.memory.counts == {}
        await look(bench.watch)
