"""`quantwatch enroll`, `references` and `rollout` as a user runs them, over real sockets."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.cli.main import main
from quantwatch.record.archive import Archive
from quantwatch.record.reference_file import load
from support.daemons import PATIENCE, Site, site, started, write_prompts
from support.gateway import Gateway, served_gateway
from support.runs import TEXTS, node
from support.served import served
from support.tiny_node import TinyModel, TinyNode


@contextmanager
def place(folder: Path, baseline: TinyNode | None = None, **sections: Any) -> Iterator[Site]:
    """A site whose baseline is served; its node is not."""
    with served(baseline or TinyNode()) as url:
        yield site(folder, url, {"a": "http://127.0.0.1:1"}, references={"k": 12}, **sections)


def run(*arguments: object) -> int:
    return main([str(one) for one in arguments])


def enroll(where: Site, *arguments: object) -> int:
    return run("enroll", "--config", where.file, *arguments)


def run_now(where: Site, target: str) -> None:
    """Let the daemon run all task sets of a target."""
    assert httpx.post(f"{where.admin}/api/v1/runs", json={"target": target}).status_code == 202


def listed(where: Site, *command: str) -> dict[str, Any]:
    """What a command of the group writes as JSON."""
    out = where.folder / "out.json"
    run("references", *(command or ("list",)), "--config", where.file, "--json", out)
    told: dict[str, Any] = json.loads(out.read_bytes())
    return told


def test_what_is_enrolled_is_listed_and_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with place(tmp_path) as where:
        assert enroll(where, "--json", tmp_path / "enrolled.json") == 0
        out, err = capsys.readouterr()
        assert "letters: enrolled: 6 prompts, 12 log-probabilities a position" in out
        assert "6/6 letters" in err
        (one,) = json.loads((tmp_path / "enrolled.json").read_bytes())["task_sets"]
        assert (one["ending"], one["prompts"], one["k"]) == ("enrolled", 6, 12)

        (row,) = listed(where)["references"]
        assert row["state"] == "fits"
        assert row["sha256"] == one["sha256"] == load(tmp_path / "references" / "letters.safetensors").digest
        assert run("references", "verify", "--config", where.file) == 0
        assert run("references", "list", "--config", where.file) == 0
        assert "fits" in capsys.readouterr().out
        assert enroll(where) == 0
        assert "letters: kept" in capsys.readouterr().out


def test_before_anything_is_enrolled_that_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with place(tmp_path) as where:
        assert run("references", "list", "--config", where.file) == 0
        assert f"quantwatch enroll --config {where.file}" in capsys.readouterr().out
        assert run("references", "verify", "--config", where.file) == 1
        assert "letters: no reference" in capsys.readouterr().out
        assert run("references", "prune", "--config", where.file) == 0
        assert "nothing to remove" in capsys.readouterr().out


def test_verify_finds_what_is_damaged_and_what_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with place(tmp_path) as where:
        enroll(where)
        write_prompts(tmp_path, texts=(*TEXTS[1:], "Another one"))
        assert run("references", "verify", "--config", where.file) == 1
        assert "the golden prompts of letters are others" in capsys.readouterr().out

        path = tmp_path / "references" / "letters.safetensors"
        path.write_bytes(path.read_bytes()[:-3])
        assert run("references", "verify", "--config", where.file) == 1
        assert "the reference is damaged" in capsys.readouterr().out
        assert "damaged" in listed(where)["references"][0]["state"]


def test_a_baseline_that_cannot_be_trusted_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with place(tmp_path, TinyNode(model=TinyModel(stuck_on=33))) as where:
        assert enroll(where) == 1
        assert "letters: refused" in capsys.readouterr().out
        assert not (tmp_path / "references" / "letters.safetensors").exists()


def test_a_baseline_that_does_not_answer_ends_with_2_and_a_wrong_model_with_3(tmp_path: Path) -> None:
    assert enroll(site(tmp_path, "http://127.0.0.1:1", {"a": "http://127.0.0.1:2"})) == 2
    with place(tmp_path) as where:
        where.content["baseline"]["model"] = "other"
        assert enroll(where.write()) == 3


def test_an_unknown_task_set_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with place(tmp_path) as where:
        assert enroll(where, "--task-set", "maths") == 3
        assert "--task-set maths: not in the configuration; known: letters" in capsys.readouterr().err


def test_ctrl_c_ends_with_2_and_the_next_call_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = TinyNode(delay=0.05)
    with place(tmp_path, slow) as where:
        command = [sys.executable, "-m", "quantwatch", "enroll", "--config", str(where.file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603, ours
            parts = tmp_path / "references" / "parts"
            while process.poll() is None and len(list(parts.glob("*/*.safetensors"))) < 2:
                os.sched_yield()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 2
        assert "the same command goes on from there" in " ".join(out.split())

        slow.delay = 0.0
        assert enroll(where) == 0
        assert "prompts were there from an earlier attempt" in capsys.readouterr().out


def test_a_reference_moves_to_another_installation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    with place(tmp_path / "here") as here, place(tmp_path / "there") as there:
        enroll(here)
        file = tmp_path / "math.safetensors"
        assert run("references", "export", "--config", here.file, "letters", file) == 0
        assert run("references", "export", "--config", here.file, "letters", file) == 3
        assert run("references", "export", "--config", here.file, "nothing", tmp_path / "x") == 3
        assert "there: letters" in capsys.readouterr().err

        assert run("references", "import", "--config", there.file, file) == 0
        assert listed(there)["references"][0]["sha256"] == listed(here)["references"][0]["sha256"]

        there.content["task_sets"]["letters"]["continuation_tokens"] = 13
        there.write()
        assert run("references", "import", "--config", there.file, file) == 3
        assert "continuation_tokens of letters is 13, and 12 was enrolled" in capsys.readouterr().err
        assert run("references", "import", "--config", there.file, file, "--as-it-is") == 0
        file.write_bytes(b"rubbish")
        assert run("references", "import", "--config", there.file, file) == 3


def test_superseded_ones_are_listed_and_pruned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with place(tmp_path) as where:
        enroll(where)
        enroll(where, "--force")
        assert [row["counts"] for row in listed(where)["references"]] == [True, False]
        run("references", "prune", "--config", where.file, "--dry-run")
        assert "would be removed" in capsys.readouterr().out
        assert len(listed(where)["references"]) == 2
        run("references", "prune", "--config", where.file)
        assert [row["state"] for row in listed(where)["references"]] == ["fits"]


def test_a_daemon_watches_and_acts_with_its_baseline_dead_from_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway, bad = Gateway(), node(1.5)
    with served(bad) as url, served(node()) as other, served_gateway(gateway) as there:
        with place(tmp_path, pools={"chat": {"mode": "enforce", "max_isolated": "50%"}}) as where:
            both = {"a": url, "b": other}.items()
            where.content["targets"] = [{"name": n, "url": at, "scheme": "int8", "pool": "chat"} for n, at in both]
            where.content["gateway"] = {
                "driver": "webhook",
                "url": f"{there.url}/act",
                "state_url": f"{there.url}/state",
            }
            where.write()
            assert enroll(where) == 0
        with started(where) as daemon:
            daemon.ready()
            run_now(where, "b")
            daemon.until("letters on b: ok")
            run_now(where, "a")
            daemon.wait(lambda: gateway.changes, "isolated the bad node")
            daemon.until("the baseline was not checked; its enrolled answers go on to count")
            assert run("status", "--config", where.file) == 1
            said = " ".join(capsys.readouterr().out.split())
            assert "enrolled answers for 1 task sets" in said
            assert "the baseline does not answer, and need not" in said

            assert run("rollout", "begin", "--config", where.file, "--for", "2h", "--reason", "May") == 0
            assert "quantwatch enroll --config" in capsys.readouterr().out
            run("status", "--config", where.file)
            assert "rollout expected: all until" in " ".join(capsys.readouterr().out.split())
            assert run("rollout", "end", "--config", where.file) == 0
            assert run("rollout", "end", "--config", where.file) == 3
            assert run("rollout", "begin", "--config", where.file, "--for", "soon", "--reason", "x") == 3
            assert run("rollout", "begin", "--config", where.file, "--for", "2h", "--reason", "x", "--pool", "y") == 3
            begin = ("rollout", "begin", "--config", where.file, "--for", "2h", "--reason", "x", "--target", "a")
            assert run(*begin, "--pool", "chat") == 3
            assert run(*begin) == 0
            assert run("rollout", "end", "--config", where.file) == 3
            assert "there are: target:a" in " ".join(capsys.readouterr().err.split())
            assert run("rollout", "end", "--config", where.file, "--target", "a") == 0
        with Archive.open(where.store) as archive:
            assert {one.quality for one in archive.history(target="b")} == {"ok"}
    assert gateway.changes == [(url, True)]
