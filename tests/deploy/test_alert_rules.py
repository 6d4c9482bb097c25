"""The shipped rules: promtool takes them, each alert is tested in both directions, and all of them are explained."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from quantwatch.flow.notice import Topic
from support.monitoring import ALERTMANAGER, RULES, RULES_TEST, SERIES, alerts, flat, loaded, named, rules

RUNBOOK = Path(__file__).resolve().parents[2] / "docs" / "runbook.md"
EACH = pytest.mark.parametrize("name", alerts())


def checked(*command: str | Path, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What a checker says; the test is skipped where it is not installed."""
    program = shutil.which(str(command[0]))
    if program is None:
        pytest.skip(f"{command[0]} is not installed")
    words = [program, *command[1:]]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)  # noqa: S603, a checker


def test_promtool_takes_the_rules() -> None:
    done = checked("promtool", "check", "rules", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_pass_their_own_test() -> None:
    done = checked("promtool", "test", "rules", RULES_TEST.name, folder=RULES_TEST.parent)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_pass_it_with_the_address_of_a_runbook_of_ones_own(tmp_path: Path) -> None:
    """As docs/monitoring.md has it done by sed."""
    for file in (RULES, RULES_TEST):
        text = file.read_text(encoding="utf-8").replace("docs/runbook.md", "https://wiki.example.internal/runbook")
        (tmp_path / file.name).write_text(text, encoding="utf-8")
    done = checked("promtool", "test", "rules", RULES_TEST.name, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["QuantwatchTargetBad", "QuantwatchStoreDown"])
def test_a_rule_that_never_fires_would_not_pass(tmp_path: Path, name: str) -> None:
    content = loaded(RULES)
    for rule in (rule for group in content["groups"] for rule in group["rules"]):
        if rule.get("alert") == name:
            rule["expr"] = f"({rule['expr']}) and on() vector(1) == 2"
    (tmp_path / RULES.name).write_text(yaml.safe_dump(content), encoding="utf-8")
    shutil.copy(RULES_TEST, tmp_path)
    done = checked("promtool", "test", "rules", RULES_TEST.name, folder=tmp_path)
    assert done.returncode != 0
    assert f"alertname: {name}" in done.stdout + done.stderr


@EACH
def test_an_alert_is_tested_in_both_directions(name: str) -> None:
    groups = loaded(RULES_TEST)["tests"]
    seen = [one for group in groups for one in group.get("alert_rule_test", []) if one["alertname"] == name]
    assert [one for one in seen if one["exp_alerts"] == []]
    assert [one for one in seen if len(one["exp_alerts"]) == 1]


@EACH
def test_an_alert_keeps_the_conventions(name: str) -> None:
    rule = alerts()[name]
    assert re.fullmatch(r"Quantwatch([A-Z][a-z0-9]*)+", name)
    assert list(rule["labels"]) == ["severity"]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert "{{" not in rule["annotations"]["summary"]
    assert rule["annotations"]["summary"].endswith(".")


def test_no_two_alerts_share_a_name() -> None:
    assert len(alerts()) == len([rule for rule in rules() if "alert" in rule]) > 30


def test_no_alert_has_the_name_of_a_notice() -> None:
    """quantwatch tells an Alertmanager itself under these names (act/alertmanager.py)."""
    notices = {f"Quantwatch{''.join(part.title() for part in topic.value.split('_'))}" for topic in Topic}
    assert set(alerts()) & notices == set()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert", rule.get("record")))
def test_a_rule_names_series_of_the_product(rule: dict[str, Any]) -> None:
    found = named(f"{rule['expr']}\n{rule.get('annotations')}")
    assert found <= SERIES
    assert found or rule["alert"] == "QuantwatchDown"


LIMITED = ["KlDivergenceHigh", "KlDivergenceCritical", "KlTailHigh", "PerplexityRegression", "Top1AgreementLow"]


@pytest.mark.parametrize("name", LIMITED)
def test_a_limit_is_no_number_in_a_rule(name: str) -> None:
    expression = alerts()[f"Quantwatch{name}"]["expr"]
    assert "_threshold_" in expression
    assert not re.search(r"[<>]=?\s*[\d.]", expression)


def anchors() -> dict[str, set[str]]:
    """Expressions in the runbook by the anchor of their section."""
    found = {}
    for part in re.split(r"^#{2,4} ", RUNBOOK.read_text(encoding="utf-8"), flags=re.MULTILINE):
        anchor = re.sub(r"[^\w -]", "", part.partition("\n")[0].lower()).replace(" ", "-")
        lines = [line for block in re.findall(r"```promql\n(.*?)```", part, re.DOTALL) for line in block.splitlines()]
        found[anchor] = {line for line in lines if line and not line.startswith("#")}
    return found


@EACH
def test_an_alert_points_at_the_section_that_has_its_expression_and_its_name(name: str) -> None:
    page, _, anchor = alerts()[name]["annotations"]["runbook_url"].partition("#")
    assert page == "docs/runbook.md"
    assert flat(alerts()[name]["expr"]) in anchors()[anchor]
    assert f"# {name}\n" in RUNBOOK.read_text(encoding="utf-8")


def test_the_alertmanager_takes_the_example() -> None:
    done = checked("amtool", "check-config", ALERTMANAGER)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_names_alerts_that_exist() -> None:
    text = ALERTMANAGER.read_text(encoding="utf-8")
    assert set(re.findall(r"Quantwatch[A-Z]\w+", text)) <= set(alerts())


ROUTES = [
    ({"alertname": "QuantwatchTargetBad", "severity": "critical"}, "oncall"),
    ({"alertname": "QuantwatchResultsLate", "severity": "warning"}, "team"),
    ({"alertname": "QuantwatchTargetIsolated", "severity": "info"}, "record"),
    ({"alertname": "DiskFull", "severity": "critical"}, "team"),
]


@pytest.mark.parametrize(("labels", "receiver"), ROUTES)
def test_the_example_passes_an_alert_on_by_its_severity(labels: dict[str, str], receiver: str) -> None:
    words = [f"{name}={value}" for name, value in labels.items()]
    done = checked("amtool", "config", "routes", "test", f"--config.file={ALERTMANAGER}", *words)
    assert done.stdout.strip() == receiver, done.stderr
