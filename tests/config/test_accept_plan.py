"""Plans of the release gate: what loads, and every fault with file, line, key and fix."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from quantwatch.cli.main import main
from quantwatch.config.accept_plan import AcceptPlan, load_plan, plan_schema
from quantwatch.errors import ConfigError
from quantwatch.flow.acceptance import RESIDENT, Margins, Rules
from quantwatch.prompts.load import shipped_sets

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
EXAMPLE = CONFIGS / "accept.yaml"
SCHEMA_FILE = CONFIGS / "accept.schema.json"

WHOLE = """\
schema: 1
candidate: {url: "http://new.example.test:8000"}
baseline: {url: "http://fp16.example.test:8000"}
running: {url: "http://old.example.test:8000"}
scheme: int8
task_sets:
  math: {}
load:
  requests: 500
  running: true
gates:
  latency: {p99: 2s, p99_ratio: 1.1}
  memory: {max_ratio: 1.2}
"""


def loaded(folder: Path, text: str, **options: Any) -> AcceptPlan:
    path = folder / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    return load_plan(path, shipped=shipped_sets(), **options)


def faults(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text)
    return [f"{one.line}: {one.key}: {one.message}" for one in caught.value.problems]


def test_the_shipped_example_loads_and_satisfies_the_schema() -> None:
    plan = load_plan(EXAMPLE, shipped=shipped_sets())
    assert plan.running is not None
    Draft202012Validator(plan_schema()).validate(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")))


def test_the_example_names_no_real_host() -> None:
    data = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    assert all(".example." in data[name]["url"] for name in ("baseline", "candidate", "running"))


def test_the_schema_file_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """After a change of the plan: quantwatch schema --plan > configs/accept.schema.json."""
    assert main(["schema", "--plan"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(SCHEMA_FILE.read_text(encoding="utf-8")) == plan_schema()
    Draft202012Validator.check_schema(plan_schema())


def test_the_schema_of_a_plan_has_no_reference_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--plan", "--markdown"]) == 3
    assert "docs/release-gate.md has every key" in " ".join(capsys.readouterr().err.split())


def test_every_key_of_the_schema_has_a_description() -> None:
    schema = plan_schema()
    blocks = {"AcceptPlan": schema, **schema["$defs"]}
    bare = [
        f"{name}.{key}"
        for name, block in blocks.items()
        for key, one in block.get("properties", {}).items()
        if not one.get("description")
    ]
    assert bare == []


def test_a_whole_plan_gives_its_rules(tmp_path: Path) -> None:
    rules = loaded(tmp_path, WHOLE).rules()
    assert (rules.p99_seconds, rules.p99_ratio, rules.max_memory_ratio, rules.max_error_share) == (2, 1.1, 1.2, 0.01)
    assert rules.margins == Margins(0.01, math.log(1.01), 0.02)
    assert rules.level == 0.975


SMALL = """\
schema: 1
candidate: {url: "http://new.example.test:8000"}
baseline: {url: "http://fp16.example.test:8000"}
scheme: int8
task_sets: {math: {}, chat: {}}
"""


def test_the_smallest_plan_measures_quality_alone(tmp_path: Path) -> None:
    plan = loaded(tmp_path, SMALL)
    assert plan.rules() == Rules(metric=RESIDENT)
    assert plan.loaded == ()
    assert plan.rules().level == 0.95


def test_load_is_sent_for_all_task_sets_unless_some_are_named(tmp_path: Path) -> None:
    assert loaded(tmp_path, SMALL + "load: {}\n").loaded == ("math", "chat")
    assert loaded(tmp_path, SMALL + "load: {task_sets: [chat]}\n").loaded == ("chat",)


def test_the_address_of_the_candidate_can_come_from_the_command(tmp_path: Path) -> None:
    assert loaded(tmp_path, SMALL, candidate="http://other.test").candidate.url == "http://other.test"
    with pytest.raises(ConfigError, match=r"candidate\.url"):
        loaded(tmp_path, SMALL, candidate="nonsense")


def test_every_fault_of_the_form_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    text = """\
schema: 2
candidate: {url: "ftp://x", api_key: sk-live-123}
baseline: {url: "http://fp16.example.test", modle: x}
scheme: int3
task_sets:
  math: {draw: one, limits: {kl_mean: {warn: 2, critical: 1}}}
load: {requests: 0, timeout: 30, max_tokens: 64}
gates:
  latency: {}
  errors: {max_share: 2}
  memory: {max_size: 4000}
  speed: 1
"""
    found = faults(tmp_path, text)
    for wanted in (
        "1: schema: found 2; allowed: 1",
        "2: candidate.url: ",
        "2: candidate.api_key: secrets are not written here",
        "3: baseline.modle: unknown key; did you mean model?",
        "4: scheme: found 'int3'; allowed: ",
        "6: task_sets.math.draw: ",
        "6: task_sets.math.limits.kl_mean: impossible limit: warn 2 is over critical 1",
        "7: load.requests: ",
        "7: load.timeout: a duration with its unit",
        "9: gates.latency: give p99, p99_ratio, or both",
        "10: gates.errors.max_share: a share such as 50%",
        "11: gates.memory.max_size: a size with its unit",
        "12: gates.speed: unknown key",
    ):
        assert any(one.startswith(wanted) for one in found), (wanted, found)
    assert not any("sk-live" in one for one in found)


def test_every_contradiction_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    text = """\
schema: 1
candidate: {url: "http://fp16.example.test:8000/v1/"}
baseline: {url: "http://FP16.example.test:8000"}
scheme: int8
task_sets:
  maht: {}
  mine: {prompts: none.yaml}
load:
  requests: 400
  task_sets: [mihe]
  running: true
  timeout: 2s
gates:
  not_worse: {}
  latency: {p99: 3s, p99_ratio: 1.1}
  memory: {max_ratio: 2}
"""
    found = faults(tmp_path, text)
    for wanted in (
        "2: candidate.url: this is the address of baseline already",
        "6: task_sets.maht: no shipped task set maht; did you mean math?",
        "7: task_sets.mine.prompts: no such prompts file",
        "9: load.requests: 400 requests bound no 99th percentile from above; 437 are the least",
        "10: load.task_sets[0]: no task set mihe; did you mean mine?",
        "11: load.running: there is no running node in this plan",
        "14: gates.not_worse: this gate looks at the running node",
        "15: gates.latency.p99: load.timeout is 2s",
        "15: gates.latency.p99_ratio: this gate looks at the running node",
        "16: gates.memory.max_ratio: this gate looks at the running node",
    ):
        assert any(one.startswith(wanted) for one in found), (wanted, found)


def test_gates_without_load_say_that_they_need_it(tmp_path: Path) -> None:
    found = faults(tmp_path, SMALL + "gates: {latency: {p99: 1s}, errors: {max_share: 1%}}\n")
    assert [one.split(": ")[1] for one in found] == ["gates.latency", "gates.errors"]
    assert all("this gate needs load" in one for one in found)


def test_a_ratio_needs_load_on_the_running_node(tmp_path: Path) -> None:
    (found,) = faults(tmp_path, WHOLE.replace("running: true", "running: false"))
    assert "gates.latency.p99_ratio: the running node gets no load" in found


def test_a_memory_gate_without_a_limit_is_none(tmp_path: Path) -> None:
    (found,) = faults(tmp_path, SMALL + "gates: {memory: {metric: my_bytes}}\n")
    assert "gates.memory: give max_size, max_ratio, or both" in found


def test_two_nodes_behind_one_host_are_two_nodes(tmp_path: Path) -> None:
    text = SMALL.replace("new.example.test:8000", "gw.test/a").replace("fp16.example.test:8000", "gw.test/b")
    assert loaded(tmp_path, text).candidate.url == "http://gw.test/a"


@pytest.mark.parametrize("requests", [367, 368])
def test_an_absolute_p99_needs_368_requests(tmp_path: Path, requests: int) -> None:
    text = SMALL + f"load: {{requests: {requests}}}\ngates: {{latency: {{p99: 1s}}}}\n"
    if requests < 368:
        assert "368 are the least" in faults(tmp_path, text)[0]
    else:
        assert loaded(tmp_path, text).load is not None


@pytest.mark.parametrize(
    ("share", "least"), [("1%", 368), ("10%", 36), ("0%", 1), ("100%", 1)], ids=["1%", "10%", "0%", "100%"]
)
def test_a_share_of_failures_needs_as_many_requests_as_bound_it(tmp_path: Path, share: str, least: int) -> None:
    def text(requests: int) -> str:
        return SMALL + f"load: {{requests: {requests}}}\ngates: {{errors: {{max_share: {share}}}}}\n"

    assert loaded(tmp_path, text(least)).load is not None
    if least > 1:
        assert f"{least} are the least, or allow more" in faults(tmp_path, text(least - 1))[0]


@pytest.mark.parametrize("text", ["", "[]", "schema: 1\nschema: 1\n", "a: [", "7: x\n"])
def test_a_file_that_is_no_plan_at_all_is_refused(tmp_path: Path, text: str) -> None:
    assert faults(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_plan(tmp_path / "none.yaml", shipped={})
