"""The small commands, and what the entry point makes of errors."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from rich.console import Console

from quantwatch import __version__
from quantwatch.cli.main import main
from quantwatch.cli.tables import number, show
from quantwatch.config.schema import settings_schema
from quantwatch.errors import InputError
from quantwatch.flow.report import Report

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_without_a_command_the_help_is_shown_and_usage_is_the_exit_code() -> None:
    assert main([]) == 3


def test_an_unknown_command_is_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["comparre"]) == 3
    assert "comparre" in capsys.readouterr().err


def test_python_m_runs_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "quantwatch", "version"], capture_output=True, check=True)

    assert done.stdout.decode().strip() == __version__


def failing(error: Exception) -> typer.Typer:
    """An application whose only command fails."""
    broken = typer.Typer()

    @broken.command()
    def fail() -> None:
        raise error

    return broken


def test_an_input_error_is_told_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], commands=failing(InputError("file.yaml: no such file"))) == 3
    assert capsys.readouterr().err == "file.yaml: no such file\n"


def test_a_fault_of_our_own_ends_with_4_and_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], commands=failing(ZeroDivisionError("oops"))) == 4
    said = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in said
    assert "please report it" in said


def test_an_abort_is_usage() -> None:
    assert main([], commands=failing(typer.Abort())) == 3


# ------------------------------------------------------------------ check-config and schema


def test_a_good_file_tells_its_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", str(CONFIGS / "minimal.yaml")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "is fine: 1 target, about" in said
    assert "probe tokens a day and node" in said


def test_the_cost_as_json_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-config", str(CONFIGS / "full.yaml"), "--json", "-"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["targets"] == ["llama-int8-a", "llama-int8-b", "llama-int4-a"]
    total = sum(one["tokens_a_day"] for one in summary["task_sets"])
    assert summary["tokens_a_day_and_node"] == pytest.approx(total, abs=5)


WINDOWS = """
windows:
  - {name: always-sundays, cron: "0 2 * * sun", duration: 2h, reason: r}
  - {name: now, from: "2020-01-01T00:00:00Z", until: "2999-01-01T00:00:00Z", kind: rollout, reason: r}
  - {name: past, from: "2020-01-01T00:00:00Z", until: "2020-01-02T00:00:00Z", scope: all, reason: r}
"""


def test_windows_tell_when_they_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "q.yaml"
    file.write_text((CONFIGS / "minimal.yaml").read_text() + WINDOWS)
    assert main(["check-config", str(file)]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("window ")]
    assert re.fullmatch(r"window always-sundays \(maintenance, all\): opens \d{4}-\d\d-\d\dT02:00:00\+00:00", lines[0])
    assert lines[1] == "window now (rollout, all): open now, until 2999-01-01T00:00:00+00:00"
    assert lines[2] == "window past (maintenance, all): over for good; it can be taken out"
    assert main(["check-config", str(file), "--json", "-"]) == 0
    windows = json.loads(capsys.readouterr().out)["windows"]
    assert windows[2] == {"name": "past", "kind": "maintenance", "scope": "all", "open_until": None, "opens": None}


def test_secrets_that_cannot_be_fetched_here_are_warnings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BASELINE_API_KEY", raising=False)
    monkeypatch.setenv("GATEWAY_SIGNING_SECRET", "hush-hush")

    assert main(["check-config", str(CONFIGS / "full.yaml")]) == 0

    said = " ".join(capsys.readouterr().out.split())
    assert "warning: baseline.api_key: the environment variable BASELINE_API_KEY is not set" in said
    assert "GATEWAY_SIGNING_SECRET" not in said
    assert "hush-hush" not in said


def test_a_bad_file_ends_with_3_and_all_its_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text((CONFIGS / "minimal.yaml").read_text().replace("scheme: int8", "scheme: int9\n    pol: llama"))

    assert main(["check-config", str(file)]) == 3

    lines = capsys.readouterr().err.splitlines()
    assert any("int9" in line and f"{file}:" in line for line in lines)
    assert any("did you mean pool?" in line for line in lines)


def test_the_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(settings_schema()))


# ------------------------------------------------------------------ prompts


def test_the_shipped_sets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prompts", "list"]) == 0
    said = capsys.readouterr().out
    assert all(
        name in said for name in ("chat", "chinese", "code", "json_tools", "long_context", "math", "prose", "sql")
    )


GOOD = """schema: 1
name: own
description: d
license: MIT
prompts:
  - {id: own-a, language: en, length: short, tags: [x], prompt: Why is the sky blue at noon?}
  - {id: own-b, language: en, length: short, tags: [x], prompt: List three rivers of Asia.}
"""


def test_a_good_prompts_file_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(GOOD)

    assert main(["prompts", "check", str(file)]) == 0
    assert "2 prompts" in capsys.readouterr().out


def test_a_pool_with_faults_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(GOOD.replace("List three rivers of Asia.", "Why is the sky blue at noon?"))

    assert main(["prompts", "check", str(file)]) == 3
    assert "own-a and own-b have the same text" in capsys.readouterr().out


def test_a_missing_prompts_file_names_the_shipped_sets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prompts", "check", "nowhere.yaml"]) == 3
    assert "shipped task sets: chat, chinese" in capsys.readouterr().err


# ------------------------------------------------------------------ tables


def test_numbers_that_do_not_exist_are_dashes() -> None:
    assert [number(None), number(float("nan")), number(0.123456)] == ["-", "-", "0.1235"]


def test_an_unusable_baseline_is_named_first(capsys: pytest.CaptureFixture[str]) -> None:
    show(Report(None, (), complete=False, trouble="baseline: HTTP 502"), Console(width=100))

    said = capsys.readouterr().out.splitlines()
    assert said == ["The baseline stopped answering: baseline: HTTP 502", "Interrupted: this is what was known so far."]
