"""What the shipped full configuration shows beside itself: other gateways, as comments that hold YAML."""

import re
from pathlib import Path
from typing import Any

import yaml

FULL = Path(__file__).resolve().parents[2] / "configs" / "full.yaml"
BLOCK = re.compile(r"^# gateway:\n(?:#   .*\n)+", re.MULTILINE)


def other_gateways() -> list[dict[str, Any]]:
    """The gateway blocks that stand there as comments."""
    blocks = BLOCK.findall(FULL.read_text(encoding="utf-8"))
    return [yaml.safe_load(re.sub("^# ", "", one, flags=re.MULTILINE))["gateway"] for one in blocks]
