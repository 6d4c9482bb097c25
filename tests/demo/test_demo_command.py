"""`quantwatch demo` as it is typed: what stands in its way is told before anything starts."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quantwatch.cli.main import main
from support.tiny_llama import tiny_llama


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")

    code = main(["demo", "--model", str(tiny_llama(tmp_path / "model")), "--folder", str(tmp_path / "file" / "in")])

    assert code == 3
    assert "--folder" in capsys.readouterr().err


def test_the_record_of_an_earlier_demo_is_not_written_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "quantwatch.db").write_text("")

    code = main(["demo", "--model", str(tiny_llama(tmp_path / "model")), "--folder", str(tmp_path)])

    assert code == 3
    assert "earlier demo" in capsys.readouterr().err


def test_a_result_that_could_not_be_written_is_told_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--json", str(tmp_path / "none" / "x.json")]) == 3
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_demo_ends_what_it_started_and_says_how_far_it_came(
    number: signal.Signals, tmp_path: Path
) -> None:
    model, out = tiny_llama(tmp_path / "model"), tmp_path / "out.json"
    options = ["--model", str(model), "--folder", str(tmp_path / "demo"), "--cache", str(tmp_path), "--json", str(out)]
    command = [sys.executable, "-m", "quantwatch", "demo", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:  # noqa: S603
        children = _children_of(demo.pid)
        demo.send_signal(number)
        said, _ = demo.communicate(timeout=60)

    assert demo.returncode == 2
    assert "Interrupted" in said
    assert not [pid for pid in children if _lives(pid)]
    content = json.loads(out.read_text())
    assert (content["passed"], content["trouble"]) == (False, "interrupted")


def _children_of(pid: int) -> list[int]:
    """The two nodes that a demo starts first."""
    late = time.monotonic() + 60
    while time.monotonic() < late:
        listed = Path(f"/proc/{pid}/task/{pid}/children")
        found = [int(one) for one in listed.read_text().split()] if listed.exists() else []
        if len(found) == 2:
            return found
        time.sleep(0.05)
    raise AssertionError("the demo never started its nodes")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
