"""Reads for pages: beside the loop, few at a time, of the file that is there now."""

import asyncio
import threading
from pathlib import Path

import pytest

from quantwatch.errors import InputError, StoreError
from quantwatch.pages.reading import Reading
from quantwatch.record.archive import Archive
from support.stored import after, opened, run


def write(folder: Path, number: int, *, name: str = "q.db") -> Path:
    with opened(folder, name=name) as store:
        store.add_run(run(number), after(run(number)))
    return folder / name


def move_aside(folder: Path) -> None:
    for one in list(folder.glob("q.db*")):
        one.rename(folder / f"aside-{one.name}")


def ids(archive: Archive) -> list[str]:
    return [one.id for one in archive.history()]


async def test_a_read_is_not_on_the_loop(tmp_path: Path) -> None:
    reading = Reading(write(tmp_path, 1))
    assert (await reading(lambda _: threading.current_thread().name)).startswith("page")
    await reading.close()


async def test_no_more_reads_at_once_than_allowed(tmp_path: Path) -> None:
    reading, under_way, most = Reading(write(tmp_path, 1), readers=2), [0], [0]
    lock, both = threading.Lock(), threading.Barrier(2)

    def look(_: Archive) -> None:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        both.wait(20)
        with lock:
            under_way[0] -= 1

    await asyncio.gather(*(reading(look) for _ in range(6)))
    assert most[0] == 2
    await reading.close()


async def test_who_would_wait_too_long_is_told_at_once(tmp_path: Path) -> None:
    reading, go = Reading(write(tmp_path, 1), readers=1, most=2), threading.Event()
    slow = [asyncio.create_task(reading(lambda _: go.wait(20))) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(StoreError, match="try again"):
        await reading(ids)
    go.set()
    assert await asyncio.gather(*slow) == [True, True]
    assert await reading(ids) == [run(1).id]
    await reading.close()


async def test_a_store_that_comes_later_is_read_then(tmp_path: Path) -> None:
    reading = Reading(tmp_path / "q.db")
    with pytest.raises(StoreError, match=r"q\.db"):
        await reading(ids)
    write(tmp_path, 1)
    assert await reading(ids) == [run(1).id]
    await reading.close()


async def test_what_is_written_meanwhile_is_seen(tmp_path: Path) -> None:
    path = write(tmp_path, 1)
    reading = Reading(path)
    assert await reading(ids) == [run(1).id]
    write(tmp_path, 2)
    assert await reading(ids) == [run(2).id, run(1).id]
    await reading.close()


async def test_a_store_that_was_moved_aside_is_not_read_any_longer(tmp_path: Path) -> None:
    path = write(tmp_path, 1)
    reading = Reading(path)
    await reading(ids)
    move_aside(tmp_path)
    write(tmp_path, 7)
    assert await reading(ids) == [run(7).id]
    await reading.close()


async def test_a_file_that_is_no_store_is_told(tmp_path: Path) -> None:
    (tmp_path / "q.db").write_text("not a store")
    reading = Reading(tmp_path / "q.db")
    with pytest.raises(StoreError):
        await reading(ids)
    await reading.close()


async def test_trouble_of_one_read_is_not_that_of_the_next(tmp_path: Path) -> None:
    reading = Reading(write(tmp_path, 1), readers=1)

    def fail(_: Archive) -> None:
        raise StoreError("a page of it is damaged")

    with pytest.raises(StoreError, match="damaged"):
        await reading(fail)
    with pytest.raises(InputError, match="no run or decision"):
        await reading(lambda archive: archive.run("r-none"))
    assert await reading(ids) == [run(1).id]
    await reading.close()
