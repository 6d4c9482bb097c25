"""Tokens behind runs: written after what a run led to, bounded while they wait, and given up in plain sight."""

import asyncio
import contextlib
import sqlite3
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quantwatch.errors import StoreError
from quantwatch.expose.meters import Meters
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.run import RunRecord
from quantwatch.flow.state import Routing
from quantwatch.flow.tokens import Candidate, PromptSeen, PromptsShown, TokenSeen, TokensSeen
from quantwatch.flow.verdict import Quality
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.late_tokens import MOST_WAITING, Late, LateTokens, late
from quantwatch.flows.upkeep import retry_store
from quantwatch.measure.tokens import LONGEST, PROMPTS, WIDTH
from quantwatch.record.archive import Archive
from quantwatch.record.evidence import KEPT, Kind
from support.keeping import keeping
from support.stored import after, decision, run
from support.watching import Bench, restarted, settings, watching

SEEN = TokensSeen((PromptSeen("math-1", ProbeMode.PROMPT_SCORING, 2, 0.1, 0.1, ()),), 24)
BAD = 1.0


@contextlib.contextmanager
def changed(folder: Path) -> Iterator[sqlite3.Connection]:
    """The store in other hands for a moment."""
    with contextlib.closing(sqlite3.connect(folder / "q.db", isolation_level=None)) as other:
        yield other


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    with changed(folder) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def with_tokens(folder: Path) -> list[str]:
    """Ids of the runs that have their tokens, in their order."""
    with changed(folder) as other:
        return [row[0] for row in other.execute("SELECT DISTINCT run FROM token_evidence ORDER BY run")]


def written(folder: Path) -> list[str]:
    with Archive.open(folder / "q.db") as archive:
        return [one.id for one in archive.history(limit=None)][::-1]


def lost(meters: Meters) -> float | None:
    return meters.registry.get_sample_value("quantwatch_store_lost_tokens_total")


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Runs whose tokens the log gives up, and why."""
    said = [one.msg for one in caplog.records if isinstance(one.msg, dict)]
    return [(one["run_id"], one["reason"]) for one in said if one["event"] == "the tokens of a run are not kept"]


def degraded(number: int, **changes: Any) -> RunRecord:
    return run(number, quality=Quality.DEGRADED, **changes)


async def calm() -> None:
    """No order is under way."""


async def turn(keeper: Keeper, record: RunRecord, *, decide: bool = False) -> None:
    """What a turn does with the store, in its order."""
    async with keeper.tokens.after(calm) as behind:
        behind.extend(late(record, SEEN))
        await keeper.remember(record, after(record), ())
        if decide:
            made = decision(f"d-{record.id}", run=record.id)
            await keeper.write(lambda store: store.decide(made))


# ------------------------------------------------------------------ order


def noting(folder: Path) -> None:
    """Let the store itself note in which order it is written to."""
    with changed(folder) as other:
        other.execute("CREATE TABLE noted (number INTEGER PRIMARY KEY, what TEXT)")
        for table, what in (
            ("runs", "'run ' || new.id"),
            ("decisions", "'decision on ' || new.run"),
            ("intents", "'order'"),
            ("token_evidence", "'tokens of ' || new.run"),
        ):
            once = "WHEN new.place = 0" if table == "token_evidence" else ""
            note = f"INSERT INTO noted (what) VALUES ({what});"  # noqa: S608, names of our own
            other.execute(f"CREATE TRIGGER noted_{table} AFTER INSERT ON {table} {once} BEGIN {note} END")


def noted(folder: Path) -> list[str]:
    with changed(folder) as other:
        return [row[0] for row in other.execute("SELECT what FROM noted ORDER BY number")]


async def test_a_run_its_decision_and_its_order_are_written_before_its_tokens(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", "b")) as bench:
        await bench.rounds(1)
        noting(tmp_path)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1, "a")

        first, second = (one.id for one in bench.runs("a")[1:])
        assert noted(tmp_path) == [
            *(f"run {first}", f"tokens of {first}"),
            *(f"run {second}", f"decision on {second}", "order", f"tokens of {second}"),
        ]


async def test_tokens_of_turns_that_end_at_once_are_all_kept(tmp_path: Path) -> None:
    many = MOST_WAITING * 3
    async with keeping(tmp_path) as (keeper, meters):
        await asyncio.gather(*(turn(keeper, degraded(number), decide=True) for number in range(1, many + 1)))

        assert with_tokens(tmp_path) == [run(number).id for number in range(1, many + 1)]
        assert (lost(meters), keeper.tokens.waiting) == (0, 0)


async def held_at_the_gateway(bench: Bench) -> asyncio.Event:
    """A node is to be isolated, and the gateway has been called and says nothing until the event is set."""
    await bench.rounds(1)
    restarted(bench.nodes["a"], damage=BAD)
    go, calls = asyncio.Event(), bench.wire.calls
    bench.wire.hear = lambda request: (
        bench.wire.held.update(gateway=go) if request.url.path == "/act" and request.method == "POST" else None
    )
    await bench.advance(600)
    bench.watch.due("a", "letters")
    await bench.until(lambda: "gateway" in bench.wire.held)
    assert calls[-1] == "gateway"
    return go


async def test_tokens_let_the_order_that_follows_from_their_run_go_first(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        bench.keeper.tokens.patience = 3600.0
        go = await held_at_the_gateway(bench)
        guilty = bench.decisions("a")[0].run
        assert guilty == bench.runs("a")[-1].id
        assert guilty not in with_tokens(tmp_path)
        go.set()
        await bench.advance(60)
        await bench.settle()

        assert bench.routing() is Routing.OUT
        assert guilty in with_tokens(tmp_path)


async def test_tokens_do_not_wait_for_an_order_for_ever(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        bench.keeper.tokens.patience = 0.01
        await held_at_the_gateway(bench)
        guilty = bench.runs("a")[-1].id
        await bench.until(lambda: guilty in with_tokens(tmp_path))

        assert bench.routing() is Routing.LEAVING


# ------------------------------------------------------------------ trouble


async def test_tokens_of_no_known_tokenizer_are_not_kept(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (keeper, meters):
        await turn(keeper, degraded(1))
        await turn(keeper, degraded(2, baseline=None))  # whose ids they are is not known

        assert with_tokens(tmp_path) == [run(1).id]
        assert lost(meters) == 0


async def test_tokens_wait_for_their_run_and_come_with_it(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (keeper, meters):
        with locked(tmp_path):
            for number in (1, 2):
                await turn(keeper, degraded(number))
            await retry_store(keeper)
            assert keeper.tokens.waiting == 2
        await retry_store(keeper)

        assert with_tokens(tmp_path) == written(tmp_path) == [run(1).id, run(2).id]
        assert (lost(meters), keeper.tokens.waiting) == (0, 0)


async def test_the_next_turn_brings_what_waits_with_it_the_oldest_first(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (keeper, _):
        noting(tmp_path)
        with locked(tmp_path):
            for number in (1, 2):
                await turn(keeper, degraded(number))
        await turn(keeper, degraded(3), decide=True)

        one, two, three = (run(number).id for number in (1, 2, 3))
        assert noted(tmp_path) == [
            *(f"run {one}", f"run {two}", f"run {three}", f"decision on {three}"),
            *(f"tokens of {one}", f"tokens of {two}", f"tokens of {three}"),
        ]


async def test_while_nothing_can_be_written_the_newest_wait_and_the_others_are_told_as_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with keeping(tmp_path) as (keeper, meters):
        with locked(tmp_path):
            for number in range(1, MOST_WAITING + 3):
                await turn(keeper, degraded(number))
            assert keeper.tokens.waiting == MOST_WAITING
        await retry_store(keeper)

        assert len(written(tmp_path)) == MOST_WAITING + 2
        assert with_tokens(tmp_path) == [run(number).id for number in range(3, MOST_WAITING + 3)]
        assert lost(meters) == 2
        assert [name for name, _ in told(caplog)] == [run(1).id, run(2).id]


async def test_while_the_store_hangs_no_more_wait_than_there_are_turns_and_then_the_bound(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (keeper, meters):
        for number in range(1, MOST_WAITING + 4):
            await keeper.remember(degraded(number), after(degraded(number)), ())
        hanging, go = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def hang(_: object) -> None:
            loop.call_soon_threadsafe(hanging.set)
            asyncio.run_coroutine_threadsafe(go.wait(), loop).result()

        hung = asyncio.create_task(keeper.write(hang))
        await hanging.wait()
        turns = [asyncio.create_task(behind(keeper, number)) for number in range(1, MOST_WAITING + 4)]
        await asyncio.sleep(0.01)
        for one in turns[1:]:  # the first has begun to write, and is let end
            one.cancel()
        await asyncio.wait(turns[1:])
        assert keeper.tokens.waiting == MOST_WAITING
        go.set()
        await asyncio.gather(hung, turns[0])
        await keeper.tokens.flush()

        assert lost(meters) == 2
        assert len(with_tokens(tmp_path)) == MOST_WAITING + 1


async def behind(keeper: Keeper, number: int) -> None:
    """A turn whose run is written already."""
    async with keeper.tokens.after(calm) as own:
        own.extend(late(degraded(number), SEEN))


async def test_tokens_that_cannot_be_written_lose_no_run_hold_none_up_and_are_told_as_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with keeping(tmp_path) as (keeper, meters):
        with changed(tmp_path) as other:
            other.execute("DROP TABLE token_evidence")
        for number in (1, 2):
            await turn(keeper, degraded(number), decide=True)

        assert written(tmp_path) == [run(1).id, run(2).id]
        assert (keeper.trouble, keeper.unwritten, keeper.tokens.waiting) == (None, 0, 0)
        assert meters.registry.get_sample_value("quantwatch_store_errors_total") == 2
        assert lost(meters) == 2
        assert [name for name, _ in told(caplog)] == [run(1).id, run(2).id]
        assert all("token_evidence" in why for _, why in told(caplog))


async def test_a_fault_in_writing_tokens_costs_those_tokens_alone(caplog: pytest.LogCaptureFixture) -> None:
    meters, kept = Meters(), list[str]()

    async def keep(one: Late) -> bool:
        if one.run == "r-odd":
            raise ZeroDivisionError
        kept.append(one.run)
        return True

    ready = set[str]()
    tokens = LateTokens(keep, ready.__contains__, meters)
    for one in ("r-odd", "r-before"):
        async with tokens.after(calm) as own:
            own.append(Late(one, SEEN, "t"))
    assert (kept, tokens.waiting) == ([], 2)
    ready |= {"r-odd", "r-before", "r-own"}
    async with tokens.after(calm) as own:  # nothing of it reaches the turn, nor whoever writes what waits
        own.append(Late("r-own", SEEN, "t"))

    assert (kept, tokens.waiting, lost(meters)) == (["r-before", "r-own"], 0, 1)
    assert "by a fault in quantwatch" in caplog.text
    assert "r-odd" in caplog.text


async def test_what_still_waits_when_a_daemon_ends_is_told_as_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with keeping(tmp_path) as (keeper, meters):
        with locked(tmp_path):
            await turn(keeper, degraded(1))
            keeper.tokens.give_up("the end")

        assert (keeper.tokens.waiting, lost(meters)) == (0, 1)
        assert told(caplog) == [(run(1).id, "the end")]


async def test_tokens_of_a_run_that_was_given_up_are_never_written(tmp_path: Path) -> None:
    async with keeping(tmp_path, most=2) as (keeper, meters):
        with locked(tmp_path):
            for number in (1, 2, 3):
                await turn(keeper, degraded(number))
        await retry_store(keeper)

        assert with_tokens(tmp_path) == written(tmp_path) == [run(1).id, run(3).id]
        assert lost(meters) == 1


async def breaking_off(keeper: Keeper, record: RunRecord) -> None:
    async with keeper.tokens.after(calm) as own:
        own.extend(late(record, SEEN))
        await keeper.remember(record, after(record), ())
        await keeper.write(lambda store: store.begin_attempt("d-none"))


async def test_a_turn_that_breaks_off_after_its_run_leaves_its_tokens_to_be_written_later(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (keeper, meters):
        with pytest.raises(StoreError, match="no open intent"):
            await breaking_off(keeper, degraded(1))
        assert with_tokens(tmp_path) == []
        await retry_store(keeper)

        assert with_tokens(tmp_path) == [run(1).id]
        assert lost(meters) == 0


async def test_a_life_that_ends_between_a_decision_and_the_tokens_loses_the_tokens_alone(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        bench.keeper.tokens.patience = 3600.0
        await held_at_the_gateway(bench)
        guilty = bench.runs("a")[-1].id  # and the bench ends here, with nothing written after

    async with watching(tmp_path) as bench:
        assert bench.decisions("a")[0].run == guilty == bench.runs("a")[-1].id
        assert guilty not in with_tokens(tmp_path)
        with bench.archive() as archive:
            assert archive.tokens(guilty, shown=PromptsShown.IDS) is None
        assert bench.decisions("a")[0].intent is not None


# ------------------------------------------------------------------ what stays


async def test_tokens_that_come_after_the_decision_on_their_run_are_never_driven_out(tmp_path: Path) -> None:
    most = KEPT[Kind.BREACH]
    async with keeping(tmp_path) as (keeper, _):
        await turn(keeper, degraded(1), decide=True)
        for number in range(2, most + 4):
            await turn(keeper, degraded(number))

        assert with_tokens(tmp_path) == [run(number).id for number in (1, *range(4, most + 4))]


def test_all_tokens_that_may_wait_are_a_small_part_of_what_the_service_may_use() -> None:
    def listed() -> tuple[Candidate, ...]:
        return tuple(Candidate(100_000 + key, -0.1 * key) for key in range(WIDTH))

    def token(position: int) -> TokenSeen:
        own = -0.1 * position
        return TokenSeen(position, 100_000 + position, own / 2, own / 3, own / 4, listed(), listed(), own / 5, own / 6)

    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        longest = tuple(token(1000 + position) for position in range(LONGEST))
        after_one, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(longest) == LONGEST
    assert (after_one - before) * PROMPTS * (MOST_WAITING + 1) < 512 * 2**20 / 10
