"""The shipped rules and dashboard as data, and which series of the product they name."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from quantwatch.expose import metrics
from quantwatch.expose.metrics import PREFIX, Series

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
RULES = CONFIGS / "prometheus" / "rules.yaml"
RULES_TEST = CONFIGS / "prometheus" / "rules.test.yaml"
ALERTMANAGER = CONFIGS / "prometheus" / "alertmanager.yaml"
DASHBOARD = CONFIGS / "grafana" / "quantwatch.json"

ALL = [one for one in vars(metrics).values() if isinstance(one, Series)]
"""Every series of the product."""

SERIES = {PREFIX + one.name for one in ALL}
"""Their whole names."""

_PARTS = ("_bucket", "_count", "_sum")


def loaded(path: Path) -> Any:
    """A file of YAML as data."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def rules() -> list[dict[str, Any]]:
    """Every rule of every group."""
    return [rule for group in loaded(RULES)["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """Every alerting rule by its name."""
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def flat(expression: str) -> str:
    """An expression in one line."""
    return " ".join(expression.split())


def named(text: str) -> set[str]:
    """Families that a text names: a bucket, a sum or a count belongs to its histogram."""
    found = set(re.findall(rf"(?<![\w:]){PREFIX}\w+", text))
    return {family(one) for one in found}


def family(sample: str) -> str:
    """The family that a sample belongs to."""
    stem = next((sample.removesuffix(part) for part in _PARTS if sample.endswith(part)), sample)
    return stem if stem in SERIES else sample


def dashboard() -> dict[str, Any]:
    """The Grafana dashboard."""
    content: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return content


def panels() -> list[dict[str, Any]]:
    """Every panel that shows something; rows and texts are none."""
    return [one for one in dashboard()["panels"] if one["type"] not in ("row", "text")]


def queries() -> Iterator[tuple[str, str]]:
    """Every query of the dashboard with the title of its panel or variable; variables of Grafana stand in it."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for one in dashboard()["annotations"]["list"]:
        yield one["name"], one["expr"]


def substituted(query: str) -> str:
    """A query as Grafana sends it where everything is chosen, over windows of ten minutes."""
    for name in ("__rate_interval", "__interval", "__range"):
        query = query.replace(f"${name}", "10m")
    return re.sub(r"\$(pool|target|task_set)\b", ".+", query)
