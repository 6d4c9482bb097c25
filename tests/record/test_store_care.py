"""Backup, check and recovery of a store: complete or not at all, and nothing is ever deleted."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from quantwatch.errors import InputError, StoreError
from quantwatch.record.archive import Archive
from quantwatch.record.care import backup, check, moved_aside, recover
from quantwatch.record.salvage import Count
from support.builders import FakeClock
from support.stored import after, answer, at, decision, intent, leaving, moved, opened, run

PAGE = 4096
DAY = 24 * 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store with something in every table that matters."""
    with opened(tmp_path) as store:
        for number in range(60):
            store.add_run(run(number), after(run(number)), [moved("a", f"b{number}", run=run(number).id)])
        store.decide(decision(), intent=intent(decision()), state=leaving(decision()))
        store.keep_references("fp", "pool", [answer()])
    return tmp_path / "q.db"


def spoil(path: Path, first: int, last: int) -> bytes:
    """Write over some pages; the file as it is then."""
    content = bytearray(path.read_bytes())
    content[first * PAGE : last * PAGE] = b"\xa5" * ((last - first) * PAGE)
    path.write_bytes(content)
    return bytes(content)


def pages_of(path: Path, table: str) -> list[int]:
    """Numbers, from 0, of the leaf pages that hold a table's rows, by the tree of its root page."""
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    content = path.read_bytes()
    page = content[(root - 1) * PAGE : root * PAGE]
    assert page[0] == 5, "an inner page of a table tree"
    cells = int.from_bytes(page[3:5], "big")
    starts = [int.from_bytes(page[12 + 2 * i : 14 + 2 * i], "big") for i in range(cells)]
    return [int.from_bytes(page[start : start + 4], "big") - 1 for start in starts]


# ------------------------------------------------------------------ backup


def test_a_backup_is_one_file_that_holds_everything(path: Path, tmp_path: Path) -> None:
    copy = backup(path, tmp_path / "copy.db", at=at(0))

    assert check(copy, now=at(0)) == []
    with Archive.open(copy) as archive:
        assert len(archive.history(limit=None)) == 60
    with opened(tmp_path, name="copy.db") as store:
        assert store.recovered_from is None
        assert len(store.open_intents()) == 1


def test_a_backup_into_a_folder_gets_the_time_as_its_name(path: Path, tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    assert backup(path, tmp_path / "copies", at=at(61)) == tmp_path / "copies" / "q-20260101T010100Z.db"
    assert [one.name for one in (tmp_path / "copies").iterdir()] == ["q-20260101T010100Z.db"]


def test_a_backup_replaces_nothing(path: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("precious")
    for place in (tmp_path / "copy.db", path):
        before = place.read_bytes()
        with pytest.raises(InputError, match="exists already"):
            backup(path, place, at=at(0))
        assert place.read_bytes() == before


def test_a_backup_while_a_daemon_writes_is_whole(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                store.add_run(run(number), after(run(number)), [moved("a", "b", run=run(number).id)])
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            copies = [backup(store.path, tmp_path / f"copy-{i}.db", at=at(0)) for i in range(5)]
        finally:
            stop.set()
            writer.join()

    for copy in copies:
        assert check(copy, now=at(0)) == []
        with Archive.open(copy) as archive:
            runs = len(archive.history(limit=None))
            assert len(archive.timeline(limit=None)) == runs


def test_a_damaged_store_is_not_backed_up(path: Path, tmp_path: Path) -> None:
    spoil(path, 8, 12)
    with pytest.raises(StoreError, match="damaged"):
        backup(path, tmp_path / "copy.db", at=at(0))
    assert {one.name.partition("-")[0] for one in tmp_path.iterdir()} == {"q.db", "q.db.lock"}


def test_a_backup_to_nowhere_is_said(path: Path, tmp_path: Path) -> None:
    with pytest.raises((InputError, StoreError), match="cannot be"):
        backup(path, tmp_path / "none" / "copy.db", at=at(0))


# ------------------------------------------------------------------ check


def test_a_sound_store_has_no_faults(path: Path) -> None:
    assert check(path, now=at(60)) == []


def test_an_order_that_is_open_for_more_than_a_day_is_a_fault(path: Path) -> None:
    (fault,) = check(path, now=at(2 * DAY))
    assert fault.startswith("the order d-1 for int8-a is open since 2026-01-01T00:10")


FAULTS = [
    ("DELETE FROM decisions", "int8-a is held by d-1, which is no decision in this store"),
    ("DELETE FROM runs WHERE rowid = 1", "numbers row 1 belongs to nothing in runs"),
    ("DELETE FROM intents", "the decision d-1 (isolate) was to be carried out and has no order"),
]


@pytest.mark.parametrize(("change", "fault"), FAULTS)
def test_what_contradicts_itself_is_a_fault(path: Path, change: str, fault: str) -> None:
    with closing(sqlite3.connect(path)) as other, other:
        other.execute(change)
    assert fault in check(path, now=at(0))


def test_damage_is_a_fault(path: Path) -> None:
    spoil(path, 8, 12)
    assert any("damaged" in fault for fault in check(path, now=at(0)))


def test_no_store_cannot_be_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no store here"):
        check(tmp_path / "q.db", now=at(0))


# ------------------------------------------------------------------ recover


def test_a_sound_store_is_not_touched(path: Path) -> None:
    before = path.read_bytes()
    assert recover(path, clock=FakeClock()) is None
    assert path.read_bytes() == before


def test_rows_before_and_behind_the_damage_are_saved(path: Path) -> None:
    leaves = pages_of(path, "transitions")
    hit = leaves[len(leaves) // 2 - 1] if len(leaves) > 1 else leaves[0]
    bad = spoil(path, hit, hit + 1)

    found = recover(path, clock=FakeClock())

    assert found is not None
    assert found.source.read_bytes() == bad
    counts = found.counts["transitions"]
    assert (counts.complete, counts.refused) == (False, 0)
    assert 0 < counts.saved < 60
    assert found.counts["runs"] == Count(saved=60)
    assert check(path, now=at(0)) == []
    with Archive.open(path) as archive:
        numbers = sorted(int(one.new[1:]) for one in archive.timeline(limit=None))
    assert numbers[0] == 0 or numbers[-1] == 59
    with opened(path.parent) as store:
        assert store.target_states() == [leaving(decision())]
        assert store.references("fp", "pool")


def test_both_ends_of_a_table_with_a_hole_are_saved(path: Path) -> None:
    with opened(path.parent) as store:
        for number in range(60, 400):
            store.save_target(leaving(decision()), [moved("a", f"b{number}")])
    leaves = pages_of(path, "transitions")
    assert len(leaves) > 4
    spoil(path, leaves[2], leaves[2] + 1)

    recover(path, clock=FakeClock())

    with Archive.open(path) as archive:
        numbers = {int(one.new[1:]) for one in archive.timeline(limit=None)}
    lost = sorted(set(range(400)) - numbers)
    assert {0, 399} <= numbers
    assert 0 < len(lost) < 80
    assert lost == list(range(lost[0], lost[-1] + 1)), "one hole, no row beside it"


def nothing(path: Path) -> None:
    path.write_bytes(b"")


def letters(path: Path) -> None:
    path.write_text("no database " * 1000)


def headless(path: Path) -> None:
    spoil(path, 0, 1)


@pytest.mark.parametrize("damage", [nothing, letters, headless], ids=lambda damage: damage.__name__)
def test_a_hopeless_file_gives_an_empty_store_and_is_kept(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    bad = path.read_bytes()

    found = recover(path, clock=FakeClock())

    assert found is not None
    assert found.source.read_bytes() == bad
    assert sum(one.saved for one in found.counts.values()) == 0
    assert check(path, now=at(0)) == []


def test_a_store_that_the_daemon_moved_aside_is_added_to_the_new_one(path: Path) -> None:
    spoil(path, pages_of(path, "numbers")[0], pages_of(path, "numbers")[0] + 1)
    with opened(path.parent) as store:
        assert store.recovered_from is not None
        store.add_run(run(100), after(run(100)), [moved("a", "b100")])
    (aside,) = moved_aside(path)

    first = recover(path, clock=FakeClock(), source=aside)
    again = recover(path, clock=FakeClock(), source=aside)

    assert first is not None
    assert again is not None
    assert first.counts["runs"] == Count(saved=60)
    assert first.counts["set_states"] == Count(there=1)
    assert first.counts["transitions"] == Count(saved=60)
    assert again.counts["transitions"] == Count(there=60)
    with Archive.open(path) as archive:
        assert len(archive.history(limit=None)) == 61
        assert len(archive.timeline(limit=None)) == 61


def test_rows_that_make_no_sense_are_refused(path: Path) -> None:
    changes = (
        "UPDATE runs SET document = '{' WHERE rowid = 1",
        "UPDATE runs SET started = 'yesterday' WHERE rowid = 2",
        "UPDATE runs SET quality = 'fine' WHERE rowid = 3",
    )
    with closing(sqlite3.connect(path)) as other, other:
        for change in changes:
            other.execute(change)
    path.rename(path.with_name("old.db"))

    found = recover(path, clock=FakeClock(), source=path.with_name("old.db"))

    assert found is not None
    assert found.counts["runs"] == Count(saved=57, refused=3)
    assert found.counts["numbers"] == Count(saved=57 * 11, refused=33)


def test_recovery_waits_for_the_daemon_to_stop(path: Path) -> None:
    with opened(path.parent), pytest.raises(StoreError, match="writes to this store already"):
        recover(path, clock=FakeClock())


def test_recovery_of_nothing_names_what_lies_beside(path: Path) -> None:
    aside = path.with_name("q.db.corrupt-20260101T000000Z")
    path.rename(aside)
    with pytest.raises(InputError, match=f"no store here; damaged ones, for --from: {aside}"):
        recover(path, clock=FakeClock())
    with pytest.raises(InputError, match="no file here"):
        recover(path, clock=FakeClock(), source=path)
