"""Reading a store while a daemon writes to it, and finding things by a part of their id."""

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from quantwatch.errors import InputError, StoreError
from quantwatch.flow.decision import Outcome, Result
from quantwatch.flow.verdict import Quality
from quantwatch.record.archive import Archive
from quantwatch.record.store import Store
from quantwatch.record.tables import RUNS
from support.stored import after, at, decision, intent, leaving, moved, opened, run, suppressed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Six runs of two targets, an isolation that is done, and one that was stopped."""
    with opened(tmp_path) as store:
        for number in range(4):
            store.add_run(run(number), after(run(number)), [moved("unknown", "ok", run=run(number).id)])
        for number in (10, 11):
            other = run(number, 0.09, quality=Quality.DEGRADED, target="int8-b", task_set="sql")
            store.add_run(other, after(other))
        made = decision(run=run(3).id)
        store.decide(
            made, intent=intent(made), state=leaving(made), transitions=[moved("in", "leaving", decision="d-1")]
        )
        store.begin_attempt("d-1")
        store.settle("d-1", Outcome(Result.FAILED, "no answer", at(12), 1, doubt=True))
        store.decide(suppressed())
    return tmp_path / "q.db"


def test_runs_come_newest_first(path: Path) -> None:
    with Archive.open(path) as archive:
        assert [one.started for one in archive.history()] == [at(minutes) for minutes in (11, 10, 3, 2, 1, 0)]
        assert archive.history(limit=1)[0].document["report"]["kl_mean"] == 0.09


def test_runs_are_narrowed_down(path: Path) -> None:
    with Archive.open(path) as archive:
        assert [one.started for one in archive.history(target="int8-b", limit=1)] == [at(11)]
        assert len(archive.history(task_set="math")) == 4
        assert len(archive.history(since=at(3))) == 3
        assert archive.history(target="int8-b", task_set="math") == []


def test_a_decision_comes_with_all_that_came_of_it(path: Path) -> None:
    with Archive.open(path) as archive:
        found = archive.decision("d-1")
        (stopped, _) = archive.decisions()

    assert found.intent is not None
    assert found.intent.outcome == Outcome(Result.FAILED, "no answer", at(12), 1, doubt=True)
    assert found.intent.order == intent(decision(run=run(3).id)).order
    assert [one.new for one in found.transitions] == ["leaving"]
    assert found.findings[0]["value"] == 0.09
    assert (stopped.id, stopped.intent, stopped.objections[0]["brake"]) == ("d-2", None, "cap")


def test_what_a_run_has_led_to_is_found(path: Path) -> None:
    with Archive.open(path) as archive:
        assert [one.new for one in archive.changes(run(3).id)] == ["ok"]
        assert [one.id for one in archive.decisions_on(run(3).id)] == ["d-1"]
        assert {one["metric"]: one["critical"] for one in archive.numbers(run(3).id)}["kl_mean"] == 0.05


def test_the_timeline_tells_every_change_newest_first(path: Path) -> None:
    with Archive.open(path) as archive:
        assert [one.decision or one.run for one in archive.timeline(limit=2)] == ["d-1", run(3).id]
        assert len(archive.timeline(target="int8-a")) == 5
        assert archive.timeline(target="int8-b") == []


@pytest.mark.parametrize("given", [run(3).id, run(3).id[:-7], "000003"])
def test_a_run_is_found_by_a_part_of_its_id(path: Path, given: str) -> None:
    with Archive.open(path) as archive:
        assert archive.run(given).id == run(3).id


def test_a_part_that_fits_several_is_refused_with_their_ids(path: Path) -> None:
    with Archive.open(path) as archive:
        with pytest.raises(InputError, match=f"could be {run(11).id}, .* and more; give more"):
            archive.run("r-")
        with pytest.raises(InputError, match="d- could be d-2, d-1;"):
            archive.find("d-")


@pytest.mark.parametrize("given", ["r-9", "", "%", "_-1"])
def test_an_unknown_id_is_refused(path: Path, given: str) -> None:
    with Archive.open(path) as archive, pytest.raises(InputError, match=r"no run or decision|could be"):
        archive.find(given)


def test_a_decision_is_no_run_and_a_run_no_decision(path: Path) -> None:
    with Archive.open(path) as archive:
        with pytest.raises(InputError, match="d-1 is a decision; a run is wanted"):
            archive.run("d-1")
        with pytest.raises(InputError, match="is a run; a decision is wanted"):
            archive.decision(run(3).id)


# ------------------------------------------------------------------ wrong files


def test_no_store_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no store here; name it with --store"):
        Archive.open(tmp_path / "q.db")


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.db").write_text("hello " * 300)
    with pytest.raises(InputError, match="no SQLite file"):
        Archive.open(tmp_path / "q.db")


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "q.db")) as other, other:
        other.execute("CREATE TABLE songs (name)")
    with pytest.raises(InputError, match="another program"):
        Archive.open(tmp_path / "q.db")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.db").write_bytes(b"")
    with pytest.raises(InputError, match="is empty"):
        Archive.open(tmp_path / "q.db")


def test_a_newer_store_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE meta SET value = '7' WHERE key = 'schema'")
    with pytest.raises(InputError, match="has schema version 7"):
        Archive.open(path)


@pytest.mark.parametrize("column", ["document = '{'", "started = 'yesterday'", "quality = 'fine'"])
def test_a_value_that_cannot_be_read_is_said(path: Path, column: str) -> None:
    with closing(sqlite3.connect(path)) as other, other:
        other.execute(f"UPDATE runs SET {column}")  # noqa: S608, our own words
    with Archive.open(path) as archive, pytest.raises(StoreError, match="that cannot be read"):
        archive.history()


def test_reading_changes_nothing(path: Path) -> None:
    before = path.read_bytes()
    with Archive.open(path) as archive:
        archive.history()
        with archive._engine.connect() as connection, pytest.raises(Exception, match="readonly"):
            connection.execute(RUNS.delete())
    assert path.read_bytes() == before


# ------------------------------------------------------------------ while a daemon writes


def test_a_reader_sees_whole_runs_while_a_writer_works(tmp_path: Path) -> None:
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
            seen = [whole_runs(store.path) for _ in range(30)]
        finally:
            stop.set()
            writer.join()
        assert seen == sorted(seen)
        assert len(store.set_states()) == 1


def whole_runs(path: Path) -> int:
    """How many runs a reader sees; each with its numbers and its transition."""
    with Archive.open(path) as archive:
        found = archive.history(limit=None)
        for one in found[:3]:
            assert len(archive.numbers(one.id)) == 11
            assert len(archive.changes(one.id)) == 1
    return len(found)


def test_a_reader_does_not_wait_for_a_writer_in_the_middle_of_its_work(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE runs SET reason = 'half done'")
        with Archive.open(path) as archive:
            assert archive.history(limit=1)[0].reason != "half done"
        writer.execute("ROLLBACK")


def test_a_long_history_is_read_as_quickly_as_a_short_one(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    times = {}
    for folder, count in ((small, 200), (large, 20_000)):
        with opened(folder) as store:
            many(store, count)
        times[folder] = min(time_of_history(folder / "q.db") for _ in range(5))
    assert times[large] < 10 * times[small]


def many(store: Store, count: int) -> None:
    """The same run many times over, written in one go."""
    store.add_run(run(0), after(run(0)))
    with closing(sqlite3.connect(store.path)) as other, other:
        other.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO runs SELECT 'r-' || i, target, task_set, pool, trigger, "
            "strftime('%Y-%m-%dT%H:%M:%S.000000+00:00', '2026-01-02', i || ' minutes'), seconds, quality, reason, "
            "basis, limits, measured, document FROM runs, n",
            (count,),
        )


def time_of_history(path: Path) -> float:
    with Archive.open(path) as archive:
        start = time.perf_counter()
        archive.history(target="int8-a", task_set="math")
        archive.history()
        return time.perf_counter() - start
