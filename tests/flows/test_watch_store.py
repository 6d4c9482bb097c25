"""A store in trouble: runs go on and wait in memory, nothing acts, and nothing is lost once it can be written again."""

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from quantwatch.flow.decision import Result
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import Quality
from quantwatch.flows.cycle import Ran
from quantwatch.flows.upkeep import Retention, prune
from quantwatch.record.engine import Pragmas
from quantwatch.record.store import Options
from support.watching import EVERY, Bench, restarted, watching

BAD = 1.0
IMPATIENT = Options(pragmas=Pragmas(busy_seconds=0.01))


def listening(bench: Bench) -> list[str]:
    """Ids of the runs as they end."""
    heard: list[str] = []

    def hear(ran: Ran) -> None:
        heard.append(ran.record.id)

    bench.watch.turns = bench.watch.turns.hearing(hear)
    return heard


@contextlib.contextmanager
def locked(bench: Bench) -> Iterator[None]:
    """Another process holds the store."""
    with contextlib.closing(bench.lock()):
        yield


async def test_runs_wait_in_their_order_while_the_store_is_locked(tmp_path: Path) -> None:
    async with watching(tmp_path, options=IMPATIENT) as bench:
        heard = listening(bench)
        await bench.rounds(1)
        with locked(bench):
            await bench.rounds(3)
            assert [run.id for run in bench.runs()] == heard[:2]
            assert bench.keeper.unwritten == bench.board().own.unwritten == 6
            assert "locked" in (bench.board().own.store_trouble or "")
            assert await bench.series("store_up") == 0
            assert await bench.series("store_unwritten_runs") == 6
            assert await bench.series("store_errors_total") > 0
            assert (await bench.get("/-/ready")).status_code == 503
            assert (await bench.get("/-/healthy")).status_code == 200

        await bench.mend()
        assert [run.id for run in bench.runs()] == heard
        assert bench.keeper.unwritten == 0
        assert await bench.series("store_up") == 1
        assert (await bench.get("/-/ready")).status_code == 200


async def test_nothing_acts_while_the_store_is_locked_and_acting_goes_on_afterwards(tmp_path: Path) -> None:
    async with watching(tmp_path, options=IMPATIENT) as bench:
        await bench.rounds(1)
        with locked(bench):
            restarted(bench.nodes["a"], damage=BAD)
            await bench.rounds(2)
            assert bench.target().quality is Quality.DEGRADED
            assert bench.routing() is Routing.IN
            assert bench.gateway.calls == []
            assert await bench.verdict() == 200
            assert await bench.series("actions_suppressed_total", reason="store") >= 1

        await bench.mend()
        await bench.rounds(1)
        assert bench.path_of("quality") == ["unknown", "ok", "inconclusive", "degraded"]
        assert bench.path_of("routing") == ["in", "leaving", "out"]
        assert bench.gateway.changes == [("http://a", True)]


async def test_the_next_run_writes_what_waits_without_being_told(tmp_path: Path) -> None:
    async with watching(tmp_path, options=IMPATIENT) as bench:
        heard = listening(bench)
        await bench.rounds(1)
        with locked(bench):
            await bench.rounds(1)
        await bench.rounds(1)

        assert [run.id for run in bench.runs()] == heard
        assert bench.board().own.store_trouble is None


async def test_an_order_whose_end_cannot_be_written_is_ended_later_and_sent_once(tmp_path: Path) -> None:
    async with watching(tmp_path, options=IMPATIENT) as bench:
        await bench.rounds(1)
        bench.gateway.down = True
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        with locked(bench):
            await bench.advance(120)
            assert bench.board().own.open_intents == 1
            assert bench.routing() is Routing.LEAVING
            bench.gateway.down = False
            await bench.advance(120)
            assert bench.gateway.calls == []  # a call that cannot be written down is not made

        await bench.mend()
        await bench.advance(120)
        assert bench.gateway.changes == [("http://a", True)]
        assert len(bench.gateway.calls) == 1
        (made,) = bench.decisions()
        assert made.intent is not None
        assert made.intent.outcome is not None
        assert made.intent.outcome.result is Result.VERIFIED


async def test_an_order_that_was_given_up_unwritten_is_taken_up_again(tmp_path: Path) -> None:
    async with watching(tmp_path, options=IMPATIENT) as bench:
        await bench.rounds(1)
        bench.gateway.down = True
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        with locked(bench):
            await bench.advance(5 * 3600)  # over the end of the order, and of the tries to write that
            assert bench.board().own.open_intents == 1

        await bench.mend()
        await bench.advance(60)
        (made,) = bench.decisions()
        assert made.intent is not None
        assert made.intent.outcome is not None
        assert made.intent.outcome.result is Result.FAILED
        assert bench.board().own.open_intents == 0
        # What the calls before have done can no longer be told, so nothing is claimed about the gateway.
        assert bench.path_of("routing") == ["in", "leaving", "contradicted"]


async def test_a_full_store_takes_what_waits_once_old_runs_are_pruned(tmp_path: Path) -> None:
    full = Options(pragmas=Pragmas(max_pages=75))
    async with watching(tmp_path, options=full) as bench:
        heard = listening(bench)
        while bench.keeper.trouble is None:
            await bench.rounds(1)
        assert "full" in (bench.keeper.trouble or "")
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(2)
        assert bench.gateway.calls == []
        assert await bench.series("store_up") == 0
        written = len(bench.runs())
        assert written + bench.keeper.unwritten == len(heard)

        old = timedelta(seconds=5 * EVERY).total_seconds()
        assert await prune(bench.keeper, Retention(old, old), bench.clock) > 0
        await bench.mend()
        kept = [run.id for run in bench.runs()]
        assert kept == heard[-len(kept) :]
        assert bench.keeper.unwritten == 0
        await bench.rounds(1)
        assert bench.gateway.changes == [("http://a", True)]


async def test_a_store_that_was_taken_away_is_told_and_nothing_acts(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        (tmp_path / "q.db").rename(tmp_path / "elsewhere.db")
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(2)

        assert bench.gateway.calls == []
        assert "moved" in (bench.board().own.store_trouble or "")
        (tmp_path / "elsewhere.db").rename(tmp_path / "q.db")
        await bench.mend()
        assert bench.board().own.store_trouble is None


async def test_pruning_a_store_in_trouble_changes_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path, options=IMPATIENT) as bench:
        await bench.rounds(1)
        with locked(bench):
            assert await prune(bench.keeper, Retention(0, 0), bench.clock) == 0

        assert len(bench.runs()) == 2
