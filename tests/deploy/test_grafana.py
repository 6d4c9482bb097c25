"""The Grafana dashboard: of the shape that Grafana imports, readable, and only about series that the product has."""

import itertools
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from support.monitoring import SERIES, dashboard, named, panels, queries, substituted

TITLES = [one["title"] for one in panels()]
EACH = pytest.mark.parametrize("panel", panels(), ids=TITLES)

DATASOURCE = {"const": {"type": "prometheus", "uid": "${datasource}"}}
GRID = {
    "type": "object",
    "required": ["x", "y", "w", "h"],
    "properties": {"x": {"minimum": 0}, "y": {"minimum": 0}, "w": {"minimum": 3, "maximum": 24}, "h": {"minimum": 1}},
    "additionalProperties": False,
}
TARGET = {
    "type": "object",
    "required": ["refId", "expr", "datasource", "legendFormat", "range"],
    "properties": {
        "refId": {"pattern": "^[A-Z]$"},
        "expr": {"type": "string", "minLength": 10},
        "datasource": DATASOURCE,
        "format": {"enum": ["table", "heatmap", "time_series"]},
    },
}
PANEL = {
    "type": "object",
    "required": ["type", "title", "description", "datasource", "gridPos", "targets", "fieldConfig", "options"],
    "properties": {
        "type": {"enum": ["timeseries", "stat", "table", "state-timeline", "heatmap"]},
        "title": {"type": "string", "minLength": 4, "maxLength": 60},
        "description": {"pattern": r"\.$", "minLength": 20},
        "datasource": DATASOURCE,
        "gridPos": GRID,
        "targets": {"type": "array", "minItems": 1, "items": TARGET},
        "fieldConfig": {
            "type": "object",
            "required": ["defaults", "overrides"],
            "properties": {
                "defaults": {"type": "object"},
                "overrides": {"items": {"required": ["matcher", "properties"]}},
            },
        },
        "transformations": {"items": {"required": ["id", "options"]}},
    },
}
ROW = {
    "type": "object",
    "required": ["type", "title", "collapsed", "gridPos", "panels"],
    "properties": {"gridPos": GRID},
}
WHOLE = {
    "type": "object",
    "required": ["uid", "title", "tags", "schemaVersion", "templating", "annotations", "panels", "time", "refresh"],
    "properties": {
        "uid": {"const": "quantwatch"},
        "tags": {"contains": {"const": "quantwatch"}},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "panels": {"items": {"if": {"properties": {"type": {"const": "row"}}}, "then": ROW, "else": PANEL}},
        "annotations": {
            "properties": {"list": {"items": {"required": ["name", "expr", "datasource", "iconColor", "titleFormat"]}}}
        },
    },
}


def test_it_has_the_shape_of_a_dashboard() -> None:
    faults = [f"{one.json_path}: {one.message}" for one in Draft202012Validator(WHOLE).iter_errors(dashboard())]
    assert faults == []


@pytest.mark.parametrize(
    ("name", "value"), [("gridPos", {"x": 0, "y": 0, "w": 30, "h": 1}), ("targets", []), ("description", "no")]
)
def test_a_panel_of_another_shape_would_be_found(name: str, value: Any) -> None:
    assert not Draft202012Validator(PANEL).is_valid({**panels()[0], name: value})


def inner(value: Any) -> Iterator[dict[str, Any]]:
    """Every object within."""
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from inner(one)


def test_it_carries_no_ids_of_one_grafana() -> None:
    assert "id" not in dashboard()
    assert [one["title"] for one in inner(dashboard()["panels"]) if "gridPos" in one and "id" in one] == []


def test_titles_are_unique_and_so_are_the_queries_of_a_panel() -> None:
    everything = [one["title"] for one in dashboard()["panels"]]
    assert sorted(set(everything)) == sorted(everything)
    for panel in panels():
        names = [one["refId"] for one in panel["targets"]]
        assert sorted(set(names)) == sorted(names)


def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
    at = panel["gridPos"]
    assert at["x"] + at["w"] <= 24
    return set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))


def test_no_panel_lies_on_another_and_none_leaves_a_gap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        assert not taken & cells(panel), panel["title"]
        taken |= cells(panel)
    assert len(taken) == 24 * (max(row for _, row in taken) + 1)


def test_the_rows_go_from_the_fleet_to_quantwatch_itself() -> None:
    rows = [one["title"].partition(":")[0] for one in dashboard()["panels"] if one["type"] == "row"]
    assert rows == ["Fleet", "Target", "Task set", "Actions", "quantwatch itself"]


def test_one_chooses_where_the_data_are_and_what_to_look_at() -> None:
    variables = {one["name"]: one for one in dashboard()["templating"]["list"]}
    assert list(variables) == ["datasource", "pool", "target", "task_set"]
    assert variables["datasource"]["type"] == "datasource"
    asked = " ".join(one["query"]["query"] for one in variables.values() if one["type"] == "query")
    assert named(asked) <= SERIES


@EACH
def test_every_query_names_a_series_of_the_product(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        found = named(target["expr"])
        assert found
        assert found <= SERIES


LIMITED = {
    "Mean KL divergence": "kl_divergence_mean",
    "Perplexity ratio": "perplexity",
    "99th percentile of the KL divergence": "kl_divergence_p99",
    "Top-1 agreement": "top1_agreement",
}


@pytest.mark.parametrize(("title", "number"), LIMITED.items())
def test_a_judged_number_is_drawn_with_both_limits_of_its_own(title: str, number: str) -> None:
    (panel,) = [one for one in panels() if one["title"] == title]
    limits = [one for one in panel["targets"] if "_threshold_" in one["expr"]]
    assert all(f"quantwatch_{number}_threshold_" in one["expr"] for one in limits)
    assert [re.findall(r'level="(\w+)"', one["expr"]) for one in limits] == [["warn"], ["critical"]]
    drawn = {one["matcher"]["options"].strip("/").rstrip("$") for one in panel["fieldConfig"]["overrides"]}
    assert {"warning limit", "critical limit"} <= drawn
    assert all(one["legendFormat"].endswith(("warning limit", "critical limit")) for one in limits)


def test_the_first_table_answers_what_is_asked_at_night() -> None:
    table = next(one for one in panels() if one["type"] == "table")
    (shown,) = [one["options"]["renameByName"] for one in table["transformations"] if one["id"] == "organize"]
    columns = [
        "Target",
        "Task set",
        "Verdict",
        "Since",
        "Routing",
        "Mean KL",
        "Its critical limit",
        "KL, share of the limit",
    ]
    assert set(columns) <= set(shown.values())
    assert table["gridPos"]["y"] < 10
    described = {one["matcher"]["options"] for one in table["fieldConfig"]["overrides"]}
    assert described <= set(shown.values())


def test_marks_come_from_transitions() -> None:
    marks = dashboard()["annotations"]["list"]
    assert {"quantwatch_state_transitions_total", "quantwatch_isolated_since_timestamp_seconds"} <= {
        name for one in marks for name in named(one["expr"])
    }


def test_promtool_takes_every_query(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    rules = [{"record": f"query:{i}", "expr": substituted(one)} for i, (_, one) in enumerate(queries())]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)  # noqa: S603, a checker
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(rules) > 60
