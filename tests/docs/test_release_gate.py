"""docs/release-gate.md: its workflow is one that GitHub takes, and the page tells every key and every exit code."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from quantwatch.cli import exit_codes
from quantwatch.cli.accept_words import ANSWERS, GATES
from quantwatch.config.accept_plan import plan_schema
from quantwatch.flow.acceptance import GateKind, least_requests
from support.typed import blocks, refusal, shell_calls

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "release-gate.md").read_text(encoding="utf-8")
(WORKFLOW,) = blocks(TEXT, "yaml")
PINNED = re.compile(r"^[\w-]+/[\w-]+@[0-9a-f]{40}$")
WITH_SECRETS = ("CANDIDATE_API_KEY", "BASELINE_API_KEY", "RUNNING_API_KEY")


def workflow() -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load(WORKFLOW)
    return loaded


def steps(job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = workflow()["jobs"][job]["steps"]
    return found


def all_steps() -> list[dict[str, Any]]:
    return [step for job in workflow()["jobs"] for step in steps(job)]


def test_every_command_of_the_workflow_is_taken() -> None:
    lines = "\n".join(step["run"] for step in all_steps() if "run" in step)
    calls = shell_calls(f"```sh\n{lines}\n```\n")
    assert len(calls) == 1
    assert [refusal(call) for call in calls] == [None]
    assert {"--plan", "--candidate", "--evidence", "--junit", "--markdown"} <= set(calls[0])


def test_nothing_is_allowed_but_what_a_job_needs() -> None:
    whole = workflow()
    assert whole["permissions"] == {}
    assert {name: job["permissions"] for name, job in whole["jobs"].items()} == {
        "gate": {"contents": "read"},
        "report": {"checks": "write"},
        "keep": {},
        "roll-back": {},
    }
    (checkout,) = [step for step in all_steps() if step.get("uses", "").startswith("actions/checkout@")]
    assert checkout["with"]["persist-credentials"] is False


def test_every_action_is_pinned_to_a_commit_and_its_version_stands_beside_it() -> None:
    used = [step["uses"] for step in all_steps() if "uses" in step]
    assert len(used) == 5
    assert [one for one in used if not PINNED.match(one)] == []
    assert len(re.findall(r"uses: \S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", WORKFLOW, re.MULTILINE)) == 5


def test_the_evidence_is_kept_whatever_the_answer() -> None:
    (kept,) = [step for step in steps("gate") if "upload-artifact" in step.get("uses", "")]
    assert kept["if"] == "always()"
    assert kept["with"]["path"].split() == ["evidence/*.json", "accept.xml", "accept.md"]


def test_summary_and_junit_are_published() -> None:
    (run,) = [step for step in steps("gate") if step.get("id") == "accept"]
    assert 'cat accept.md >> "$GITHUB_STEP_SUMMARY"' in run["run"]
    assert run["run"].rstrip().endswith('exit "$code"')
    assert [step["with"]["report_paths"] for step in steps("report") if "junit" in step["uses"]] == ["accept.xml"]


def test_no_expression_stands_in_a_script() -> None:
    """What a person types in would be carried out there; it goes through the environment instead."""
    assert [step["run"] for step in all_steps() if "${{" in step.get("run", "")] == []


def test_the_secrets_of_the_example_plan_are_handed_over() -> None:
    plan = yaml.safe_load((ROOT / "configs" / "accept.yaml").read_text(encoding="utf-8"))
    wanted = {plan[name]["api_key"].removeprefix("env:") for name in ("candidate", "baseline", "running")}
    (run,) = [step for step in steps("gate") if step.get("id") == "accept"]
    assert wanted == set(WITH_SECRETS) <= set(run["env"])
    called = workflow()[True]["workflow_call"]["secrets"]  # YAML 1.1 reads `on` as true
    assert set(called) == wanted


def test_only_success_keeps_and_all_else_rolls_back() -> None:
    jobs = workflow()["jobs"]
    assert "if" not in jobs["keep"]
    assert jobs["keep"]["needs"] == jobs["roll-back"]["needs"] == "gate"
    assert jobs["roll-back"]["if"] == "always() && needs.gate.result != 'success'"


def test_every_exit_code_has_its_row() -> None:
    codes = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    assert {int(row) for row in re.findall(r"^\| (\d) \|", TEXT, re.MULTILINE)} == codes


def plan_keys() -> set[str]:
    """Every key of the plan itself; blocks that the configuration shares are explained there."""
    schema = plan_schema()
    shared = {
        "ServerSettings",
        "TlsSettings",
        "ProbeSettings",
        "LimitSettings",
        "UpperLimit",
        "RatioLimit",
        "SliceSettings",
    }
    own = [schema, *(block for name, block in schema["$defs"].items() if name not in {*shared, "AgreementLimit"})]
    return {key for block in own for key in block.get("properties", {})}


def test_every_key_of_the_plan_is_told() -> None:
    assert len(plan_keys()) > 30
    assert {key for key in plan_keys() if f"`{key}`" not in TEXT and f".{key}`" not in TEXT} == set()


@pytest.mark.parametrize("gate", GateKind)
def test_every_gate_is_told(gate: GateKind) -> None:
    assert f"- **{GATES[gate.value]}**" in TEXT


def test_both_answers_and_the_numbers_that_a_p99_needs_are_told() -> None:
    assert all(f"**{ANSWERS[answer]}**" in TEXT for answer in ("keep", "reject"))
    assert f"needs {least_requests(0.99, 0.95)} times" in TEXT
    assert f"nodes {least_requests(0.99, 0.975)} for a ratio" in " ".join(TEXT.split())
