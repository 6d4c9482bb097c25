"""Pauses that quantwatch makes itself: a store that fails again and again, and what holds before it is written down."""

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from quantwatch.expose.meters import Meters
from quantwatch.flow.decision import Brake
from quantwatch.flow.state import Pause, Routing
from quantwatch.flows.matters import matters
from quantwatch.flows.memory import Memory
from quantwatch.flows.resting import STORE_FAILURES, STORE_REST, StoreRest, keep_pause, keep_what_waits, own_pause
from quantwatch.flows.view import View
from quantwatch.record.engine import Pragmas
from quantwatch.record.store import Options
from support.builders import FakeClock
from support.watching import Bench, restarted, watching

IMPATIENT = Options(pragmas=Pragmas(busy_seconds=0.01))


@contextlib.contextmanager
def locked(bench: Bench) -> Iterator[None]:
    """Another process holds the store."""
    with contextlib.closing(bench.lock()):
        yield


async def fails(bench: Bench, times: int) -> None:
    """Let the store fail and work again, so many times."""
    for _ in range(times):
        with locked(bench):
            await bench.round("b")
        await bench.mend()


async def stored(bench: Bench) -> list[Pause]:
    """Pauses as the next life of the daemon would find them."""
    return await bench.keeper.write(lambda store: store.pauses(bench.clock.now()))


async def test_a_store_that_fails_again_and_again_pauses_everything_and_says_why(tmp_path: Path) -> None:
    async with watching(tmp_path, options=IMPATIENT) as bench:
        await bench.rounds(1)
        await fails(bench, STORE_FAILURES - 1)
        assert bench.board().pauses == ()
        assert await bench.series("own_pauses_total", reason="store") == 0
        await fails(bench, 1)

        (pause,) = bench.board().pauses
        assert (pause.scope, pause.author, pause.until) == ("all", "quantwatch", pause.since + STORE_REST)
        assert pause.reason.startswith("the store failed 5 times within 60 min, at last: ")
        assert "locked" in pause.reason
        assert pause.review == pause.until
        assert await stored(bench) == [pause]
        assert await bench.series("own_pauses_total", reason="store") == 1
        assert await bench.series("paused", scope="all") == 1
        assert await bench.series("pause_review_timestamp_seconds", scope="all") == pause.review.timestamp()
        told = [one for one in matters(View(bench.memory, bench.watch.watchlist, bench.clock.now())) if one.standing]
        assert [(one.topic, one.reason) for one in told] == [("paused", pause.reason)]


async def test_nothing_acts_until_that_pause_ends_by_itself(tmp_path: Path) -> None:
    async with watching(tmp_path, options=IMPATIENT) as bench:
        await bench.rounds(1)
        await fails(bench, STORE_FAILURES)
        restarted(bench.nodes["a"], damage=1.0)
        await bench.rounds(2)
        assert [[one["brake"] for one in made.objections] for made in bench.decisions("a")] == [[Brake.PAUSED]]
        assert bench.gateway.calls == []

        await bench.rounds(5)
        await bench.mend()
        assert bench.board().pauses == ()
        assert bench.routing() is Routing.OUT


async def test_it_holds_before_it_can_be_written_and_over_a_restart_afterwards(tmp_path: Path) -> None:
    async with watching(tmp_path, options=IMPATIENT) as bench:
        await bench.rounds(1)
        await fails(bench, STORE_FAILURES - 1)
        with locked(bench):
            await bench.round("b")
            (pause,) = bench.board().pauses
            assert await stored(bench) == []
        await bench.mend()
        assert await stored(bench) == [pause]
        nodes = bench.nodes

    async with watching(tmp_path, nodes=nodes, clock=bench.clock) as again:
        assert again.board().pauses == (pause,)
        assert await again.people.resume(pause.id, author="ada")
        assert await stored(again) == []


async def test_a_pause_that_was_never_written_can_be_resumed_all_the_same(tmp_path: Path) -> None:
    async with watching(tmp_path, options=IMPATIENT) as bench:
        await bench.rounds(1)
        await fails(bench, STORE_FAILURES - 1)
        with locked(bench):
            await bench.round("b")
            (pause,) = bench.board().pauses
            assert await bench.people.resume(pause.id, author="ada")
            assert bench.board().pauses == ()
        await bench.mend()
        assert (bench.board().pauses, await stored(bench), bench.keeper.trouble) == ((), [], None)


async def test_one_long_outage_is_one_failure(tmp_path: Path) -> None:
    """While it lasts nothing acts anyway, and when it is over the store is as good as before."""
    async with watching(tmp_path, options=IMPATIENT) as bench:
        await bench.rounds(1)
        with locked(bench):
            await bench.round("b")
            for _ in range(3 * STORE_FAILURES):
                await bench.mend()
        await bench.mend()
        assert await bench.series("store_errors_total") > STORE_FAILURES
        assert bench.board().pauses == ()


def test_failures_that_lie_far_apart_or_before_the_clock_was_set_back_do_not_add_up() -> None:
    clock, memory = FakeClock(), Memory()
    rest = StoreRest(memory, Meters(), clock)
    for _ in range(3 * STORE_FAILURES):
        rest.note("disk full")
        clock.time += 901.0
    assert memory.pauses == []
    clock.time += 3601.0
    for _ in range(STORE_FAILURES - 1):
        rest.note("disk full")
    clock.time -= 7200.0
    rest.note("disk full")
    assert memory.pauses == []


def test_after_a_pause_the_count_begins_anew() -> None:
    memory = Memory()
    rest = StoreRest(memory, Meters(), FakeClock())
    for _ in range(2 * STORE_FAILURES - 1):
        rest.note("disk full")
    assert len(memory.pauses) == 1
    rest.note("disk full")
    assert len(memory.pauses) == 2


async def test_a_pause_that_is_resumed_while_it_is_written_does_not_come_back(tmp_path: Path) -> None:
    async with watching(tmp_path, options=IMPATIENT) as bench:
        made = [
            own_pause("all", "for a test", decision=f"d-{i}", at=bench.clock.now(), lasts=timedelta(hours=1))
            for i in range(2)
        ]
        for one in made:
            with locked(bench):
                await keep_pause(one, bench.memory, bench.keeper)
        assert bench.memory.unkept == made

        writing = asyncio.create_task(keep_what_waits(bench.memory, bench.keeper))
        await asyncio.sleep(0)
        for one in made:
            assert await bench.people.resume(one.id, author="ada")
        await writing
        assert (await stored(bench), bench.memory.unkept, bench.memory.pauses) == ([], [], [])


async def test_a_pause_that_ran_out_before_it_could_be_written_is_forgotten(tmp_path: Path) -> None:
    async with watching(tmp_path, options=IMPATIENT) as bench:
        now = bench.clock.now()
        with locked(bench):
            pause = own_pause("all", "for a test", decision="d-1", at=now, lasts=timedelta(minutes=1))
            await keep_pause(pause, bench.memory, bench.keeper)
        await bench.advance(120)
        await bench.mend()
        assert (await stored(bench), bench.memory.unkept) == ([], [])


@pytest.mark.parametrize("hours", [None, 5])
def test_every_pause_has_a_time_to_look_at_it_again(hours: int | None) -> None:
    since = FakeClock().now()
    until = None if hours is None else since + timedelta(hours=hours)
    pause = Pause("p-1", "all", "the store was corrupt", "quantwatch", since, until)
    assert pause.review == (until or since + timedelta(days=1))
