"""What goes wrong around a store: other writers, full disks, damage, power cuts. Nothing is lost silently."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection

from quantwatch.errors import StoreError
from quantwatch.record.archive import Archive
from quantwatch.record.engine import Pragmas
from quantwatch.record.place import network_file_system
from quantwatch.record.salvage import Count, salvage
from quantwatch.record.steps import STEPS, version_of
from support.builders import FakeClock
from support.stored import after, at, decision, intent, leaving, opened, run

TESTS = Path(__file__).resolve().parents[1]
DATA = TESTS / "data"
PAGE = 4096


def started(program: str, folder: Path) -> subprocess.Popen[str]:
    """A process that has `store` open in a folder and says `ready` when the program has run."""
    code = textwrap.dedent(
        f"""
        import sys, time
        from pathlib import Path
        sys.path.insert(0, {str(TESTS)!r})
        from support.stored import after, decision, intent, leaving, opened, run
        store = opened(Path(sys.argv[1]))
        """
    )
    whole = f"{code}{textwrap.dedent(program)}\nprint('ready', flush=True)\ntime.sleep(120)\n"
    process = subprocess.Popen([sys.executable, "-c", whole, str(folder)], stdout=subprocess.PIPE, text=True)  # noqa: S603, our own
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@contextmanager
def another_process(program: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = started(program, folder)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def filled(folder: Path, runs: int = 60) -> Path:
    """A closed store with runs and an isolation."""
    with opened(folder) as store:
        for number in range(runs):
            store.add_run(run(number), after(run(number)))
        store.decide(decision(), intent=intent(decision()), state=leaving(decision()))
    return folder / "q.db"


# ------------------------------------------------------------------ one writer


def test_a_second_writer_is_refused_and_told_who_writes(tmp_path: Path) -> None:
    with (
        another_process("", tmp_path) as process,
        pytest.raises(StoreError, match=f"process {process.pid} writes to this store"),
    ):
        opened(tmp_path)


def test_a_second_writer_in_this_process_is_refused_too(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(StoreError, match=f"process {os.getpid()} writes"):
        opened(tmp_path)


def test_the_next_writer_comes_in_once_the_first_is_gone(tmp_path: Path) -> None:
    with another_process("", tmp_path):
        pass
    with opened(tmp_path) as store:
        store.ping()


def test_a_refused_opening_lets_go_of_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE songs (name)")
    with pytest.raises(StoreError, match="another program"):
        opened(tmp_path)
    path.unlink()
    opened(tmp_path).close()


# ------------------------------------------------------------------ power cuts


def test_a_kill_between_decision_and_outcome_leaves_the_intent_open(tmp_path: Path) -> None:
    program = """
    store.add_run(run(9), after(run(9)))
    made = decision()
    store.decide(made, intent=intent(made), state=leaving(made))
    store.begin_attempt(made.id)
    """
    with another_process(program, tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()

    with opened(tmp_path) as store:
        assert store.recovered_from is None
        (found,) = store.open_intents()
        assert (found.order, found.attempts) == (intent(decision()).order, 1)
        assert store.target_states() == [leaving(decision())]
        assert store.set_states() == [after(run(9))]


def test_a_kill_in_the_middle_of_a_transaction_leaves_nothing_of_it(tmp_path: Path) -> None:
    program = """
    import sqlite3
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("INSERT INTO meta VALUES ('half', 'done')")
    """
    with another_process(program, tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()

    with opened(tmp_path) as store, closing(sqlite3.connect(store.path)) as other:
        assert other.execute("SELECT count(*) FROM meta WHERE key = 'half'").fetchone() == (0,)


# ------------------------------------------------------------------ disks


def fill(folder: Path, pages: int) -> tuple[int, str]:
    """How many runs fit, and what was said then."""
    with opened(folder, pragmas=Pragmas(max_pages=pages)) as store:
        for number in range(10_000):
            try:
                store.add_run(run(number), after(run(number)))
            except StoreError as exc:
                assert len(store.set_states()) == 1  # reading goes on
                return number, str(exc)
    raise AssertionError("it never became full")


def test_a_full_disk_is_said_plainly_and_nothing_is_lost(tmp_path: Path) -> None:
    fitted, said = fill(tmp_path, pages=100)

    assert said == f"{tmp_path / 'q.db'}: cannot be written: the disk is full; free some space"
    with opened(tmp_path) as store:
        assert store.recovered_from is None
        with closing(sqlite3.connect(store.path)) as other:
            assert other.execute("SELECT count(*) FROM runs").fetchone() == (fitted,)
            assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        store.add_run(run(fitted), after(run(fitted)))


def test_a_disk_that_gives_errors_is_survived_and_its_return_is_found_out(tmp_path: Path) -> None:
    """A limit on file sizes makes the real write call fail."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(tmp_path) as store:
        store.add_run(run(1), after(run(1)))
        size = max(path.stat().st_size for path in tmp_path.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
        try:
            with pytest.raises(StoreError, match="cannot be written: the disk"):
                fill_until_it_fails(store.add_run)
            with pytest.raises(StoreError, match="cannot be written"):
                fill_until_it_fails(lambda *_: store.ping())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
        store.ping()
        store.add_run(run(5000), after(run(5000)))
        assert store.set_states() == [after(run(5000))]


def fill_until_it_fails(action: Callable[..., None]) -> None:
    for number in range(2, 2000):
        action(run(number), after(run(number)))


def test_a_full_file_system_is_survived(tmp_path: Path) -> None:
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    mount = subprocess.run(command, capture_output=True, check=False)  # noqa: S603, the system's own
    if mount.returncode != 0:
        pytest.skip("needs the right to mount")
    try:
        with opened(tmp_path) as store:
            with pytest.raises(StoreError, match="the disk is full"):
                fill_until_it_fails(store.add_run)
            with closing(sqlite3.connect(store.path)) as other:
                assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)  # noqa: S603, S607, the system's own


def test_a_store_locked_by_another_program_is_said_and_waited_for(tmp_path: Path) -> None:
    with opened(tmp_path, pragmas=Pragmas(busy_seconds=0.05)) as store:
        with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="cannot be written: another process holds it locked"):
                store.add_run(run(1), after(run(1)))
            assert store.set_states() == []  # reading goes on
            other.execute("ROLLBACK")
        store.add_run(run(1), after(run(1)))


def test_a_store_that_was_moved_away_is_not_written_into_the_void(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.path.rename(tmp_path / "elsewhere.db")
        with pytest.raises(StoreError, match="was moved, replaced or deleted"):
            store.ping()


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be created"):
        opened(tmp_path / "file" / "deeper")


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    opened(tmp_path / "a" / "b").close()
    assert (tmp_path / "a" / "b" / "q.db").is_file()


# ------------------------------------------------------------------ damage


def whole(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_text("baseline:\n  url: http://fp16:8000\n" * 200)


def middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[8 * PAGE : 12 * PAGE] = b"\xa5" * (4 * PAGE)
    path.write_bytes(content)


def header(path: Path) -> None:
    path.write_bytes(b"\x00" * PAGE + path.read_bytes()[PAGE:])


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 10 * PAGE])


def odd(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 10 * PAGE + 100])


def stub(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


def without_a_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE target_states")


def without_a_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("DELETE FROM meta")


DAMAGES = [whole, text, middle, header, half, odd, stub, without_a_table, without_a_version]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_store_is_moved_aside_and_a_new_one_begun(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    path = filled(tmp_path)
    damage(path)
    bad = path.read_bytes()

    with opened(tmp_path) as store:
        assert store.recovered_from == tmp_path / "q.db.corrupt-20260101T000000Z"
        assert store.damage
        assert store.recovered_from.read_bytes() == bad
        assert store.target_states() == []
        store.ping()
    with opened(tmp_path) as store:
        assert store.recovered_from is None


def test_what_lies_beside_a_damaged_store_goes_with_it(tmp_path: Path) -> None:
    path = filled(tmp_path)
    middle(path)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).write_bytes(b"left by a crash" * 10)

    opened(tmp_path).close()

    assert {one.name.partition("Z")[2] for one in tmp_path.glob("*.corrupt-*")} >= {"", "-wal"}


def test_a_log_without_its_store_is_moved_aside_too(tmp_path: Path) -> None:
    (tmp_path / "q.db-wal").write_bytes(b"left" * 100)
    with opened(tmp_path) as store:
        assert store.damage == "its main file is gone and parts of it are left"
    assert (tmp_path / "q.db.corrupt-20260101T000000Z-wal").read_bytes() == b"left" * 100


def test_two_damaged_stores_of_one_second_are_both_kept(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    for word in ("one", "two", "three"):
        path.write_text(word)
        opened(tmp_path).close()
    kept = [one.read_text() for one in sorted(tmp_path.glob("q.db.corrupt-*"))]
    assert kept == ["one", "two", "three"]


def test_a_damaged_log_costs_its_last_changes_and_no_more(tmp_path: Path) -> None:
    """SQLite tells a damaged log by its checksums."""
    program = """
    store.add_run(run(1), after(run(1)))
    """
    with another_process(program, tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    log = tmp_path / "q.db-wal"
    content = log.read_bytes()
    log.write_bytes(content[:-6000] + b"\x5a" * 6000)

    with opened(tmp_path) as store:
        store.add_run(run(2), after(run(2)))
        with closing(sqlite3.connect(store.path)) as other:
            assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# ------------------------------------------------------------------ versions


NEWEST = version_of()


def add_colour(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE pauses ADD COLUMN colour TEXT")


def break_off(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE pauses ADD COLUMN size TEXT")
    connection.exec_driver_sql("ALTER TABLE nowhere ADD COLUMN size TEXT")


def pause_columns(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as other:
        return {row[1] for row in other.execute("PRAGMA table_info(pauses)")}


def version(path: Path) -> str:
    with closing(sqlite3.connect(path)) as other:
        return str(other.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()[0])


def test_an_older_store_is_brought_to_the_newest_version_once(tmp_path: Path) -> None:
    path = filled(tmp_path, runs=2)
    assert version(path) == str(version_of())

    for _ in range(2):
        with opened(tmp_path, steps=(*STEPS, add_colour)) as store:
            assert len(store.open_intents()) == 1

    assert (version(path), "colour" in pause_columns(path)) == (str(version_of() + 1), True)


def test_a_store_of_version_1_is_kept_whole_and_has_the_shape_of_a_new_one(tmp_path: Path) -> None:
    """The file was written by version 1: a run, a decision with its open order, and a target on its way out."""
    path = of_version_1(tmp_path)
    with opened(tmp_path) as store:
        (state,) = store.target_states()
        assert (state.routing, state.owner, state.human, state.human_until) == ("leaving", "d-1", "none", None)
        (waits,) = store.open_intents()
        assert (waits.order.decision, waits.order.origin) == ("d-1", "verdicts")
        assert store.proposals() == ([], [])
        assert (store.notices().told, store.last_intents()) == ({}, [])
        assert len(store.set_states()) == 1
    with Archive.open(path) as archive:
        (made,) = archive.decisions()
        assert (made.author, made.origin, made.proposal) == ("quantwatch", "verdicts", None)
    opened(tmp_path, name="new.db").close()
    assert version(path) == version(tmp_path / "new.db") == str(NEWEST)
    assert shape(path) == shape(tmp_path / "new.db")


def test_what_version_1_wrote_can_be_recovered_from_a_damaged_file(tmp_path: Path) -> None:
    damaged = of_version_1(tmp_path)
    opened(tmp_path, name="new.db").close()
    counts = salvage(damaged, tmp_path / "new.db")
    assert counts["target_states"] == Count(saved=1)
    assert counts["decisions"].saved == counts["intents"].saved == 1
    assert not counts["proposals"].complete
    with opened(tmp_path, name="new.db") as store:
        assert [one.owner for one in store.target_states()] == ["d-1"]


def of_version_1(folder: Path) -> Path:
    path = folder / "q.db"
    with closing(sqlite3.connect(path)) as other:
        other.executescript((DATA / "store-v1.sql").read_text("utf-8"))
    assert version(path) == "1"
    return path


def shape(path: Path) -> tuple[object, ...]:
    """Columns of every table, without the spelling of their types, and every index."""
    with closing(sqlite3.connect(path)) as other:
        names = [row[0] for row in other.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        columns = {name: {row[1]: row[2:] for row in other.execute(f"PRAGMA table_info({name})")} for name in names}
        indexes = other.execute("SELECT name FROM sqlite_master WHERE type IN ('index', 'trigger') ORDER BY name")
        return columns, indexes.fetchall()


def test_a_step_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = filled(tmp_path, runs=2)
    with pytest.raises(StoreError, match="nowhere"):
        opened(tmp_path, steps=(*STEPS, add_colour, break_off))
    assert version(path) == str(version_of())
    assert pause_columns(path) & {"colour", "size"} == set()
    opened(tmp_path).close()


def test_a_store_of_a_newer_quantwatch_is_left_alone(tmp_path: Path) -> None:
    path = filled(tmp_path, runs=2)
    opened(tmp_path, steps=(*STEPS, add_colour)).close()
    before = path.read_bytes()

    with pytest.raises(StoreError, match=f"has schema version {version_of() + 1}, newer than {version_of()}"):
        opened(tmp_path)

    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*.corrupt-*"))


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE songs (name)")
    before = path.read_bytes()

    with pytest.raises(StoreError, match="SQLite file of another program"):
        opened(tmp_path)
    assert path.read_bytes() == before


# ------------------------------------------------------------------ places

MOUNTS = """\
/dev/vda / ext4 rw 0 0
nas:/export /srv/nas nfs4 rw 0 0
/dev/vdb /srv/nas/local ext4 rw 0 0
//box/share /mnt/my\\040share cifs rw 0 0
user@host: /mnt/ssh fuse.sshfs rw 0 0
/dev/fuse /mnt/ntfs fuseblk rw 0 0
C: /mnt/c 9p rw 0 0
old:/x /mnt/twice nfs rw 0 0
/dev/vdc /mnt/twice xfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/quantwatch/q.db", None),
        ("/srv/nas/q.db", "nfs4"),
        ("/srv/nasty/q.db", None),
        ("/srv/nas/local/q.db", None),
        ("/mnt/my share/q.db", "cifs"),
        ("/mnt/ssh/deep/q.db", "fuse.sshfs"),
        ("/mnt/ntfs/q.db", None),
        ("/mnt/c/q.db", "9p"),
        ("/mnt/twice/q.db", None),
    ],
)
def test_network_file_systems_are_known_by_their_mounts(path: str, kind: str | None) -> None:
    assert network_file_system(MOUNTS, Path(path)) == kind


def test_a_store_on_a_network_file_system_is_refused(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nnas:/x {tmp_path.resolve()} nfs rw 0 0\n")
    with pytest.raises(StoreError, match=r"lies on a network file system \(nfs\)"):
        opened(tmp_path / "deep", mounts=mounts)
    assert not (tmp_path / "deep").exists()


def test_a_machine_that_lists_no_mounts_is_trusted(tmp_path: Path) -> None:
    opened(tmp_path, mounts=tmp_path / "none").close()


def test_a_ping_moves_with_the_clock(tmp_path: Path) -> None:
    clock = FakeClock()
    with opened(tmp_path, clock=clock) as store:
        clock.time = 60.0
        store.ping()
        with closing(sqlite3.connect(store.path)) as other:
            (value,) = other.execute("SELECT value FROM meta WHERE key = 'ping'").fetchone()
    assert value == at(1).isoformat(timespec="microseconds")
