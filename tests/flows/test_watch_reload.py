"""One configuration follows another while runs and orders are under way."""

import asyncio
import sqlite3
from pathlib import Path

import httpx
import pytest

from quantwatch.errors import InputError
from quantwatch.flow.decision import Result
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import Quality
from quantwatch.record.engine import Pragmas
from quantwatch.record.store import Options
from support.watching import Bench, letters, node, restarted, settings, watching

BAD = 1.0
PATIENT = Options(pragmas=Pragmas(busy_seconds=10.0))


async def isolated(bench: Bench, name: str = "a") -> None:
    """Let a node go bad and be taken out."""
    if not bench.runs():
        await bench.rounds(1)  # proves the baseline's answers, and that there are other backends
    restarted(bench.nodes[name], damage=BAD)
    await bench.rounds(1)
    assert bench.routing(name) is Routing.OUT


async def test_a_target_that_leaves_while_it_is_out_stays_out(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        await bench.reload(settings("b"))

        assert bench.target("a").left is True
        assert "stays until a person releases it" in bench.target("a").reason
        assert await bench.verdict("a") == 503
        assert await bench.series("target_left", target="a") == 1
        assert bench.gateway.changes == [("http://a", True)]

        # Its isolation counts in its pool, and nobody measures it any more.
        runs = len(bench.runs("a"))
        await bench.rounds(4)
        assert len(bench.runs("a")) == runs
        assert bench.routing("a") is Routing.OUT


async def test_a_target_that_leaves_while_it_is_in_traffic_is_forgotten(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        worker = bench.watch.tasks["a"]
        await bench.reload(settings("b"))
        await asyncio.wait([worker])

        assert worker.cancelled()
        assert list(bench.watch.workers) == ["b"]
        assert bench.board().target("a") is None
        assert await bench.verdict("a") == 200  # nothing is known of it
        assert 'target="a"' not in (await bench.get("/metrics")).text
        assert not bench.watch.due("a", "letters")


async def test_a_target_that_left_while_it_was_out_counts_against_the_cap(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", "b", "c", pool={"max_isolated": "34%"})) as bench:
        await isolated(bench)
        await bench.reload(settings("b", "c", pool={"max_isolated": "34%"}))
        restarted(bench.nodes["b"], damage=BAD)
        await bench.rounds(2)

        assert bench.gateway.changes == [("http://a", True)]
        assert "cap" in {one["brake"] for made in bench.decisions("b") for one in made.objections}


async def test_a_target_that_returns_is_released_by_clean_runs(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        await bench.reload(settings("b"))
        restarted(bench.nodes["a"])
        await bench.rounds(1)
        await bench.reload(settings())
        await bench.rounds(2)

        assert bench.routing() is Routing.IN
        assert bench.gateway.changes == [("http://a", True), ("http://a", False)]


async def test_a_new_target_and_a_new_task_set_are_measured_at_the_next_run(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", "b")) as bench:
        await bench.rounds(1)
        bench.wire.add("c", node(number=9))
        raw = settings("a", "b", "c")
        raw["task_sets"]["more"] = letters()
        await bench.reload(raw)
        await bench.rounds(1)

        assert {(run.target, run.task_set) for run in bench.runs()[2:]} == {
            (target, task_set) for target in "abc" for task_set in ("letters", "more")
        }


async def test_a_task_set_that_leaves_no_longer_counts(tmp_path: Path) -> None:
    raw = settings()
    raw["task_sets"]["more"] = letters(confirm_cycles=3)
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(1)
        bench.watch.due("a", "more")
        await bench.reload(settings())

        assert [one.state.task_set for one in bench.target().sets] == ["letters"]
        assert 'task_set="more"' not in (await bench.get("/metrics")).text
        assert not bench.watch.due("a", "more")


async def test_an_order_under_way_goes_to_the_address_that_a_reload_has_mended(tmp_path: Path) -> None:
    wrong = dict.fromkeys(("url", "release_url", "state_url"), "http://nowhere/x")
    async with watching(tmp_path, settings(gateway=wrong)) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert bench.routing() is Routing.LEAVING

        await bench.reload(settings())
        assert bench.gateway.changes == [("http://a", True)]
        assert bench.gateway.ids == {bench.decisions()[0].id}
        assert bench.routing() is Routing.OUT
        assert len(bench.decisions()) == 1


async def test_an_order_for_a_driver_that_is_gone_is_ended_and_claims_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.gateway.down = True
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        raw = settings()
        raw["gateway"] = {"driver": "dry_run"}
        await bench.reload(raw)

        (made,) = bench.decisions()
        assert made.intent is not None
        assert made.intent.outcome is not None
        assert made.intent.outcome.result is Result.FAILED
        assert made.intent.outcome.doubt is True
        assert bench.routing() is Routing.CONTRADICTED


async def test_an_order_of_a_target_that_left_is_ended_and_claims_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.gateway.down = True
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        await bench.reload(settings("b"))
        bench.gateway.down = False
        await bench.advance(120)

        (made,) = bench.decisions()
        assert made.intent is not None
        assert made.intent.outcome is not None
        assert made.intent.outcome.result is Result.FAILED
        assert "has left the configuration" in made.intent.outcome.detail
        assert bench.gateway.calls == []
        assert bench.routing() is Routing.CONTRADICTED
        assert bench.target().left is True


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (settings(gateway={"api_key": "file:/nowhere/key"}), "/nowhere/key"),
        (settings(task_set={"prompts": "nowhere.yaml"}), "nowhere.yaml"),
    ],
)
async def test_a_configuration_that_cannot_be_built_changes_nothing(
    tmp_path: Path, raw: dict[str, object], said: str
) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        before = bench.watch.generation
        with pytest.raises(InputError, match=said):
            await bench.reload(raw)

        assert bench.watch.generation is before
        await isolated(bench)


async def test_limits_of_a_reload_hold_from_the_next_run_on(tmp_path: Path) -> None:
    generous = {"limits": {"kl_mean": {"critical": 50}, "perplexity_ratio": {"critical": 50}, "top1_agreement": {}}}
    async with watching(tmp_path, settings(task_set=generous)) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(2)
        assert bench.target().quality not in (Quality.DEGRADED, Quality.CORRUPTED)

        await bench.reload(settings())
        await bench.rounds(1)
        assert bench.target().quality is Quality.DEGRADED


async def test_a_run_under_way_ends_with_the_connections_it_began_with(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        bench.nodes["a"].delay = 0.02
        old = bench.watch.generation
        bench.watch.due("a", "letters")
        await bench.until(lambda: bench.watch.workers["a"].running)
        await bench.reload(settings("a", "b", probe={"patience": "0s", "in_flight": 2}))

        assert [run.quality for run in bench.runs("a")] == [Quality.OK]
        assert old.retired
        assert old.users == 0
        assert bench.watch.generation is not old


async def test_a_reload_in_the_middle_of_a_removed_targets_run_writes_nothing_of_it(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        bench.nodes["a"].delay = 5.0
        bench.watch.due("a", "letters")
        await bench.until(lambda: bench.watch.workers["a"].running)
        old = bench.watch.generation
        await bench.reload(settings("b"))
        await asyncio.sleep(0.01)

        assert bench.runs("a") == []
        assert old.users == 0


async def test_a_pool_that_is_now_only_observed_takes_back_its_word_to_the_gateway(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        await bench.reload(settings(pool={"mode": "observe"}))

        assert await bench.verdict() == 200
        assert bench.routing() is Routing.OUT  # the record stays: the gateway was not told anything


async def test_an_order_whose_end_is_being_written_during_a_reload_has_ended(tmp_path: Path) -> None:
    raw = settings(gateway={"state_url": None})
    async with watching(tmp_path, raw, options=PATIENT) as bench:
        await bench.rounds(1)
        locks: list[sqlite3.Connection] = []

        def hear(request: httpx.Request) -> None:
            if request.url.host == "gateway":
                locks.append(bench.lock())

        bench.wire.hear = hear
        restarted(bench.nodes["a"], damage=BAD)
        bench.watch.due("a", "letters")
        await bench.until(lambda: bench.gateway.calls)
        await asyncio.sleep(0.05)  # the end of the order waits for the lock

        bench.wire.hear = lambda _: None
        reload = asyncio.create_task(bench.reload(settings(gateway={"state_url": None}, pool={"release_after": 3})))
        await asyncio.sleep(0.05)
        locks[0].close()
        await reload

        assert bench.routing() is Routing.OUT
        assert bench.board().own.open_intents == 0
        assert bench.board().own.store_trouble is None
        assert len(bench.gateway.calls) == 1


async def test_a_decision_that_is_being_written_when_its_target_leaves_is_recorded_to_its_end(tmp_path: Path) -> None:
    raw = settings("a", "b", pool={"fallback": "baseline"})
    async with watching(tmp_path, raw, options=PATIENT) as bench:
        await bench.rounds(1)
        locks: list[sqlite3.Connection] = []

        def hear(request: httpx.Request) -> None:
            # Once the breach is confirmed, the fallback is looked at, and then the decision is written.
            if request.url.path == "/v1/models" and len(bench.runs("a")) == 3 and not locks:
                locks.append(bench.lock())

        bench.wire.hear = hear
        restarted(bench.nodes["a"], damage=BAD)
        bench.watch.due("a", "letters")
        await bench.until(lambda: locks)
        await asyncio.sleep(0.1)  # the decision waits for the lock

        reload = asyncio.create_task(bench.reload(settings("b", pool={"fallback": "baseline"})))
        await asyncio.sleep(0.1)
        locks[0].close()
        await reload
        # The worker is gone, and what it had begun goes on: written first, and then an order that ends.
        await bench.until(
            lambda: bench.watch.outbox.open or any(one.intent and one.intent.outcome for one in bench.decisions())
        )
        await bench.settle()
        await bench.advance(60)

        (made,) = bench.decisions()
        assert made.intent is not None
        assert made.intent.outcome is not None
        # Whichever came first, record and gateway say the same.
        assert bench.gateway.changes in ([], [("http://a", True)])
        routing = bench.path_of("routing")[-1]
        assert routing == ("out" if bench.gateway.changes else "in")
