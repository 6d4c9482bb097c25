"""The alert expressions of docs/daemon.md are valid, and every series in them is one that the product has."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from quantwatch.expose import metrics
from quantwatch.expose.metrics import PREFIX, Series

ROOT = Path(__file__).resolve().parents[2]
PROMTOOL = shutil.which("promtool")


def expressions() -> list[str]:
    text = (ROOT / "docs" / "daemon.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```promql\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line and not line.startswith("#")]


def test_there_are_expressions() -> None:
    assert len(expressions()) > 20


OF_PROMETHEUS = {"up == 0"}
"""Expressions over what Prometheus itself knows."""


@pytest.mark.parametrize("expression", [one for one in expressions() if one not in OF_PROMETHEUS])
def test_an_expression_names_series_of_the_product(expression: str) -> None:
    named = set(re.findall(rf"{PREFIX}\w+", expression))
    assert named
    assert named <= {PREFIX + one.name for one in vars(metrics).values() if isinstance(one, Series)}


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_promtool_takes_every_expression(tmp_path: Path) -> None:
    rules = [{"alert": f"Rule{i}", "expr": one} for i, one in enumerate(expressions())]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "quantwatch", "rules": rules}]}))
    done = subprocess.run([str(PROMTOOL), "check", "rules", str(file)], capture_output=True, text=True, check=False)  # noqa: S603, promtool
    assert done.returncode == 0, done.stdout + done.stderr
