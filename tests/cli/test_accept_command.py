"""`quantwatch accept` as a user runs it, against tiny nodes on real sockets."""

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from quantwatch.cli.accept import _gather, _servers
from quantwatch.cli.main import main
from quantwatch.config.accept_plan import load_plan
from quantwatch.flow.acceptance import Answer, GateVerdict
from quantwatch.flow.acceptance_json import digest
from quantwatch.flows.gate_plan import gate_plan
from quantwatch.prompts.load import shipped_sets
from support.gating import STARTS, every, load, overloaded, plan_file, server
from support.served import served
from support.tiny_node import TinyNode

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCHEMA = json.loads((DOCS / "accept.schema.json").read_bytes())
COMPARE = json.loads((DOCS / "compare.schema.json").read_bytes())


@pytest.fixture
def up() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def plan(folder: Path, up: ExitStack, changed: dict[str, Any] | None = None, **nodes: TinyNode) -> Path:
    """A plan over nodes that are served for the time of the test; baseline and candidate are healthy unless given."""
    whole = {"baseline": server("baseline"), "candidate": server("candidate", 0.05), **nodes}
    return plan_file(folder, {name: up.enter_context(served(node)) for name, node in whole.items()}, **(changed or {}))


def accept(folder: Path, *arguments: object) -> int:
    fixed = ("accept", "--evidence", folder / "evidence", "--cache", folder / "cache")
    return main([str(one) for one in (*fixed, *arguments)])


def evidence(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "evidence").iterdir()
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert path.name == f"{loaded['id']}.json"
    jsonschema.validate(loaded, SCHEMA)
    for one in loaded["task_sets"]:
        for name in ("candidate", "running"):
            if one[name] is not None:
                jsonschema.validate(one[name], {**COMPARE["$defs"]["task_set"], "$defs": COMPARE["$defs"]})
    return loaded


FULL = {
    "load": load(450, running=True),
    "gates": {"latency": {"p99": "100s", "p99_ratio": 1000}, "memory": {"max_ratio": 1.1}},
}
MEMORY = "process_resident_memory_bytes 5e8\n"


def test_a_good_candidate_ends_with_0_and_its_evidence_is_whole(
    tmp_path: Path, up: ExitStack, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = {
        "candidate": server("candidate", 0.05, more_metrics=MEMORY),
        "running": server("running", 0.05, more_metrics=MEMORY),
    }
    files = [word for kind in ("json", "junit", "markdown") for word in (f"--{kind}", tmp_path / f"out.{kind}")]
    code = accept(tmp_path, "--plan", plan(tmp_path, up, FULL, **nodes), *files)

    said = capsys.readouterr()
    assert code == 0
    assert said.out.splitlines()[-1] == "keep: Every gate passes: the candidate may serve."
    assert "warning: load.running is true, so the running node, which has users, gets 450 requests" in said.err
    document = evidence(tmp_path)
    assert json.loads((tmp_path / "out.json").read_text()) == document
    (one,) = document["task_sets"]
    assert [gate["gate"] for gate in one["gates"]] == ["quality", "against_running", "latency", "errors", "memory"]
    for name in ("candidate", "running"):
        latency = one["latency"][name]
        assert (latency["sent"], latency["completed"], latency["errors"]) == (450, 450, {})
        assert sum(step["requests"] for step in latency["histogram"]) == 450
        assert latency["p99"]["low"] <= latency["p99"]["value"] <= latency["p99"]["high"]
        assert one["memory"][name] == {"before": 5e8, "peak": 5e8, "after": 5e8, "kv_cache_tokens": None}
    assert document["plan"]["seed"] == 1
    assert document["baseline"]["started"] == STARTS["baseline"]


def test_stored_evidence_is_printed_again(tmp_path: Path, up: ExitStack, capsys: pytest.CaptureFixture[str]) -> None:
    code = accept(tmp_path, "--plan", plan(tmp_path, up, candidate=server("candidate", 1.5)), "--junit", tmp_path / "1")
    first = capsys.readouterr().out
    (path,) = (tmp_path / "evidence").iterdir()
    again = main(["accept", "--show", str(path), "--junit", str(tmp_path / "2")])

    assert (code, again) == (1, 1)
    assert capsys.readouterr().out == first
    assert (tmp_path / "1").read_text() == (tmp_path / "2").read_text()


def test_a_degraded_candidate_ends_with_1_and_says_what_to_do(
    tmp_path: Path, up: ExitStack, capsys: pytest.CaptureFixture[str]
) -> None:
    code = accept(tmp_path, "--plan", plan(tmp_path, up, candidate=server("candidate", 1.5)))

    out = capsys.readouterr().out
    assert code == 1
    assert "reject (roll back): Below the gate: roll the candidate back." in out
    assert "over the critical limit 0.05" in " ".join(out.split())
    assert evidence(tmp_path)["answer"] == "reject"


def test_a_corrupted_candidate_ends_with_1(tmp_path: Path, up: ExitStack) -> None:
    assert accept(tmp_path, "--plan", plan(tmp_path, up, candidate=server("candidate", nan_on=lambda _: True))) == 1
    assert evidence(tmp_path)["candidate"]["quality"] == "corrupted"


def test_a_candidate_that_fails_under_load_ends_with_1(tmp_path: Path, up: ExitStack) -> None:
    failing = server("candidate", edit=every(20, overloaded))
    assert accept(tmp_path, "--plan", plan(tmp_path, up, {"load": load(400)}, candidate=failing)) == 1
    assert evidence(tmp_path)["task_sets"][0]["latency"]["candidate"]["errors"] == {"failed": 20}


def test_a_candidate_slower_than_allowed_ends_with_1(tmp_path: Path, up: ExitStack) -> None:
    """No request over a socket takes as little as a microsecond."""
    changed = {"load": load(400), "gates": {"latency": {"p99": "0.001ms"}}}
    assert accept(tmp_path, "--plan", plan(tmp_path, up, changed)) == 1
    assert "over the limit 1e-06" in evidence(tmp_path)["reasons"][0]


def test_a_candidate_that_takes_more_memory_ends_with_1(tmp_path: Path, up: ExitStack) -> None:
    changed = {"gates": {"memory": {"max_size": "400MB"}}}
    candidate = server("candidate", 0.05, more_metrics=MEMORY)
    assert accept(tmp_path, "--plan", plan(tmp_path, up, changed, candidate=candidate)) == 1


def test_the_baseline_as_its_own_candidate_ends_with_2(
    tmp_path: Path, up: ExitStack, capsys: pytest.CaptureFixture[str]
) -> None:
    code = accept(tmp_path, "--plan", plan(tmp_path, up, candidate=server("candidate", started=STARTS["baseline"])))
    assert code == 2
    assert "same server" in " ".join(capsys.readouterr().out.split())


def test_an_unreachable_candidate_ends_with_2(
    tmp_path: Path, up: ExitStack, capsys: pytest.CaptureFixture[str]
) -> None:
    file = plan(tmp_path, up, {"load": load(400)})
    code = accept(tmp_path, "--plan", file, "--candidate", "http://127.0.0.1:9")

    out = " ".join(capsys.readouterr().out.split())
    assert code == 2
    assert "cannot tell (not accepted): Not accepted: do not roll it out." in out
    assert "Is the server up, and the URL right?" in out
    assert evidence(tmp_path)["task_sets"][0]["latency"]["candidate"] is None


def test_a_wrong_key_ends_with_3_and_the_evidence_is_kept(tmp_path: Path, up: ExitStack) -> None:
    assert accept(tmp_path, "--plan", plan(tmp_path, up, candidate=server("candidate", api_key="wanted"))) == 3
    assert evidence(tmp_path)["misconfigured"] is True


def test_a_secret_stands_nowhere(
    tmp_path: Path, up: ExitStack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NODE_KEY", "s3cret-value")
    file = plan(tmp_path, up, candidate=server("candidate", 0.05, api_key="s3cret-value"))
    whole = json.loads(file.read_text())
    whole["candidate"]["api_key"] = "env:NODE_KEY"
    file.write_text(json.dumps(whole))
    assert accept(tmp_path, "--plan", file, "--junit", tmp_path / "j", "--markdown", tmp_path / "m") == 0

    said = capsys.readouterr()
    written = "".join(path.read_text() for path in (*(tmp_path / "evidence").iterdir(), tmp_path / "j", tmp_path / "m"))
    assert "s3cret-value" not in said.out + said.err + written


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give --plan FILE to run a gate, or --show FILE"),
        (["--plan", "a", "--show", "b"], "give --plan FILE to run a gate, or --show FILE"),
        (["--plan", "none.yaml"], "none.yaml: no such file"),
        (["--show", "none.json"], "none.json: cannot be read"),
        (["--show", "none.json", "--junit", "/no/such/folder/x"], "cannot be written"),
        (["--nonsense"], "nonsense"),
    ],
)
def test_usage_errors_end_with_3(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["accept", *arguments]) == 3
    assert words in " ".join(capsys.readouterr().err.split())


def test_nothing_is_asked_when_the_evidence_cannot_be_stored(
    tmp_path: Path, up: ExitStack, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = server("baseline")
    file = plan(tmp_path, up, baseline=asked)
    (tmp_path / "evidence").write_text("in the way")
    assert accept(tmp_path, "--plan", file) == 3
    assert "evidence: cannot be written" in " ".join(capsys.readouterr().err.split())
    assert asked.asked == []


def test_nothing_is_asked_while_a_secret_is_missing(tmp_path: Path, up: ExitStack) -> None:
    asked = server("baseline")
    file = plan(tmp_path, up, baseline=asked)
    whole = json.loads(file.read_text())
    whole["candidate"]["api_key"] = "env:QUANTWATCH_NOT_SET"
    file.write_text(json.dumps(whole))
    assert accept(tmp_path, "--plan", file) == 3
    assert asked.asked == []


def stored(folder: Path, change: dict[str, Any]) -> Path:
    content = {"schema": 1, "kind": "quantwatch acceptance", "answer": "keep", "misconfigured": False} | change
    path = folder / "e.json"
    path.write_text(json.dumps({"digest": digest(content)} | content))
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"digest": "sha256:00"}, "its digest does not match its content: it was edited or cut"),
        ({"kind": "x"}, "no evidence of a release gate"),
        ({"schema": 2}, "evidence of schema 2, and this version reads schema 1"),
    ],
)
def test_what_is_no_whole_evidence_is_refused(
    tmp_path: Path, change: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["accept", "--show", str(stored(tmp_path, change))]) == 3
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, "7", "\ufeff{}"])
def test_a_file_that_is_no_evidence_at_all_is_refused(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "e.json").write_text(text, encoding="utf-8")
    assert main(["accept", "--show", str(tmp_path / "e.json")]) == 3
    assert "e.json: no" in " ".join(capsys.readouterr().err.split())


def test_json_to_standard_output_leaves_nothing_else_there(
    tmp_path: Path, up: ExitStack, capsys: pytest.CaptureFixture[str]
) -> None:
    accept(tmp_path, "--plan", plan(tmp_path, up), "--json", "-")
    said = capsys.readouterr()
    assert json.loads(said.out)["answer"] == "keep"
    assert "keep: " in said.err


def test_a_fault_of_our_own_is_told_after_the_evidence(tmp_path: Path, up: ExitStack) -> None:
    """A task set of the plan that has no draw at all is such a fault."""
    settings = load_plan(plan(tmp_path, up), shipped=shipped_sets())
    wanted = gate_plan(settings, file=tmp_path / "plan.yaml", seed=1, shipped=shipped_sets())
    (one,) = wanted.sets
    broken = replace(one, name="broken", plan=replace(one.plan, sets=(replace(one.plan.sets[0], weights={}),)))
    found, crash = _gather(settings, replace(wanted, sets=(one, broken)), _servers(settings), tmp_path / "cache")
    assert isinstance(crash, KeyError)
    assert [gates.gates[0].verdict for gates in found.sets] == [GateVerdict.PASS, GateVerdict.CANNOT_TELL]
    assert (found.answer, found.complete) == (Answer.CANNOT_TELL, False)


def test_ctrl_c_stores_what_was_measured_and_ends_with_2(tmp_path: Path, up: ExitStack) -> None:
    file = plan(tmp_path, up, {"load": load(400)}, candidate=server("candidate", 0.05, delay=0.02))
    command = [sys.executable, "-m", "quantwatch", "accept", "--plan", str(file), "--junit", str(tmp_path / "j.xml")]
    running = subprocess.Popen(  # noqa: S603, our own command
        [*command, "--evidence", str(tmp_path / "evidence"), "--cache", str(tmp_path / "c")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    assert running.stderr is not None
    for line in running.stderr:
        if "load on candidate" in line:
            break
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 2
    assert "Interrupted: this is what was known so far." in out
    document = evidence(tmp_path)
    assert (document["complete"], document["answer"]) == (False, "cannot_tell")
    assert 0 < document["task_sets"][0]["latency"]["candidate"]["sent"] < 400
    assert ET.parse(tmp_path / "j.xml").getroot().get("failures") == "0"  # noqa: S314, our own file


def test_two_runs_leave_two_files(tmp_path: Path, up: ExitStack) -> None:
    file = plan(tmp_path, up)
    for _ in range(2):
        accept(tmp_path, "--plan", file)
    assert len(list((tmp_path / "evidence").glob("a-*.json"))) == 2
