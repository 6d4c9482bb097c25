"""The one way to the store: order, trouble, and how much may wait."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from quantwatch.errors import StoreError
from quantwatch.expose.meters import Meters
from quantwatch.flow.decision import Decision
from quantwatch.flow.run import RunRecord
from quantwatch.flows.keeper import Keeper
from quantwatch.record.archive import Archive
from quantwatch.record.store import Store
from support.keeping import keeping
from support.stored import after, decision, run


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Another process holds the store."""
    with contextlib.closing(sqlite3.connect(folder / "q.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def written(folder: Path) -> list[str]:
    """Ids of the runs in the store, oldest first."""
    with Archive.open(folder / "q.db") as archive:
        return [one.id for one in archive.history(limit=None)][::-1]


async def remember(keeper: Keeper, record: RunRecord) -> bool:
    return await keeper.remember(record, after(record), ())


def lost(meters: Meters) -> float | None:
    return meters.registry.get_sample_value("quantwatch_store_lost_runs_total")


async def test_a_run_is_in_the_store_when_remembering_it_returns(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (keeper, _):
        assert await remember(keeper, run(1))

        assert written(tmp_path) == [run(1).id]
        assert keeper.unwritten == 0
        assert keeper.trouble is None


async def test_runs_that_waited_are_written_first_and_in_their_order(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (keeper, _):
        with locked(tmp_path):
            for number in (1, 2, 3):
                assert not await remember(keeper, run(number))
            assert keeper.unwritten == 3
            assert "locked" in (keeper.trouble or "")
        assert await remember(keeper, run(4))

        assert written(tmp_path) == [run(number).id for number in (1, 2, 3, 4)]
        assert keeper.trouble is None


async def test_runs_remembered_at_once_are_all_written_once(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (keeper, _):
        await asyncio.gather(*(remember(keeper, run(number)) for number in range(1, 9)))

        assert written(tmp_path) == [run(number).id for number in range(1, 9)]


async def test_over_the_bound_old_runs_are_given_up_and_counted(tmp_path: Path) -> None:
    async with keeping(tmp_path, most=3) as (keeper, meters):
        assert lost(meters) == 0
        with locked(tmp_path):
            for number in range(1, 6):
                await remember(keeper, run(number))
            assert keeper.unwritten == 3
        assert await keeper.flush()

        assert written(tmp_path) == [run(number).id for number in (1, 4, 5)]
        assert lost(meters) == 2


async def test_at_the_bound_no_run_is_lost_that_is_being_written(tmp_path: Path) -> None:
    async with keeping(tmp_path, most=2) as (keeper, meters):
        with locked(tmp_path):
            for number in (1, 2):
                await remember(keeper, run(number))
        flushing = asyncio.create_task(keeper.flush())
        await asyncio.sleep(0)  # the first run is on its way
        await remember(keeper, run(3))
        await flushing

        assert {run(1).id, run(3).id} <= set(written(tmp_path))
        assert len(written(tmp_path)) + (lost(meters) or 0) == 3


async def test_what_fails_is_raised_counted_and_remembered(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (keeper, meters):
        with locked(tmp_path), pytest.raises(StoreError, match="locked"):
            await keeper.write(lambda store: store.ping())

        assert "locked" in (keeper.trouble or "")
        assert meters.registry.get_sample_value("quantwatch_store_errors_total") == 1


async def test_trouble_is_over_when_something_can_be_written(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (keeper, _):
        with locked(tmp_path), pytest.raises(StoreError):
            await keeper.write(lambda store: store.ping())
        assert await keeper.flush()

        assert keeper.trouble is None


async def test_trouble_is_not_over_by_reading_alone_while_runs_wait(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (keeper, _):
        with locked(tmp_path):
            await remember(keeper, run(1))
            assert await keeper.write(lambda store: store.open_intents()) == []

            assert keeper.trouble is not None


async def test_a_flush_without_trouble_and_without_runs_touches_nothing(tmp_path: Path) -> None:
    async with keeping(tmp_path) as (keeper, _):
        with locked(tmp_path):
            assert await keeper.flush()


async def test_a_write_gives_back_what_it_gave(tmp_path: Path) -> None:
    def decide(store: Store) -> Decision:
        made = decision()
        store.decide(made)
        return made

    async with keeping(tmp_path) as (keeper, _):
        assert (await keeper.write(decide)).id == "d-1"
