"""`quantwatch store backup`, `check` and `recover` as a user runs them."""

import json
from pathlib import Path
from typing import Any

import pytest

from quantwatch.cli.main import main
from quantwatch.cli.store import app
from quantwatch.record.care import moved_aside
from support.stored import after, decision, intent, leaving, opened, run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of one run."""
    with opened(tmp_path) as kept:
        kept.add_run(run(1), after(run(1)))
    return tmp_path / "q.db"


def ran(*arguments: object) -> int:
    return main([str(one) for one in arguments], commands=app)


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    assert ran(*arguments, "--json", "-") == code
    return json.loads(capsys.readouterr().out)


def test_a_backup_says_where_it_is(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("backup", tmp_path / "copy.db", "--store", store) == 0
    assert f"{store} is backed up to {tmp_path / 'copy.db'} (" in capsys.readouterr().out
    assert ran("backup", tmp_path / "copy.db", "--store", store) == 3
    assert "exists already" in " ".join(capsys.readouterr().err.split())
    again = as_json(capsys, "backup", tmp_path / "other.db", "--store", store)
    assert again["bytes"] == (tmp_path / "other.db").stat().st_size


def test_a_sound_store_ends_with_0(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("check", "--store", store) == 0
    assert capsys.readouterr().out == f"{store} is sound\n"


def test_faults_end_with_1_and_are_named(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with opened(store.parent) as kept:
        kept.decide(decision(), intent=intent(decision()), state=leaving(decision()))
    assert ran("check", "--store", store) == 1
    assert "the order d-1 for int8-a is open since" in capsys.readouterr().out
    assert len(as_json(capsys, "check", "--store", store, code=1)["faults"]) == 1


def test_a_missing_store_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("check", "recover"):
        assert ran(command, "--store", tmp_path / "none.db") == 3
        assert "no store here" in capsys.readouterr().err


def test_a_sound_store_needs_no_recovery(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("recover", "--store", store) == 0
    assert "is sound; nothing was changed" in capsys.readouterr().out
    assert as_json(capsys, "recover", "--store", store)["sound"] is True


def test_a_store_that_the_daemon_set_aside_is_named_and_brought_back(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = store.read_bytes()
    store.write_bytes(content[:-4096])
    opened(store.parent).close()
    (aside,) = moved_aside(store)

    assert ran("check", "--store", store) == 0
    assert f"{aside}: a damaged store that was moved aside" in capsys.readouterr().out
    assert ran("recover", "--store", store) == 0
    assert "add its rows with --from" in capsys.readouterr().out
    found = as_json(capsys, "recover", "--store", store, "--from", aside)
    assert found["tables"]["runs"] == {"saved": 1, "there": 0, "refused": 0, "complete": True}


def test_a_recovery_shows_its_counts(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.write_bytes(b"\x00" * 4096 + store.read_bytes()[4096:])
    assert ran("recover", "--store", store) == 0
    out = capsys.readouterr().out
    assert "is kept as it was" in out
    assert ["runs", "0", "0", "0", "in", "parts"] in [line.split() for line in out.splitlines()]
    assert "some rows are lost" in out


def test_a_store_in_use_is_not_recovered(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with opened(store.parent):
        assert ran("recover", "--store", store) == 3
    assert "writes to this store already" in " ".join(capsys.readouterr().err.split())
