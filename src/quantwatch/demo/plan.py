"""How large the demo is, and the files it writes: `quantwatch run` and `quantwatch compare` take them as they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from quantwatch.demo.limits import Written
from quantwatch.flow.prompt import LengthBucket, Prompt, PromptSet
from quantwatch.prompts.load import load_set, shipped_sets

BASELINE = "baseline"
NODE = "int8"
POOL = "chat"
MODEL = "smollm2"


@dataclass(frozen=True, slots=True)
class Size:
    """Task sets, prompts a run, and tokens of the baseline's answer that are scored."""

    task_sets: tuple[str, ...]
    draw: int
    continuation_tokens: int


FULL = Size(("math", "code", "chinese"), 24, 24)
FAST = Size(("math", "chinese"), 24, 24)

RECORD = "quantwatch.db"
"""The daemon's store, beside its configuration."""

PROMPTS = 10
"""Prompts of each task set, the first of its short ones: a small machine has several nodes to serve."""

RELEASE_AFTER = 2
EVERY = "1m"
HOLD = "5s"
DRAIN = "1s"
"""A daemon that looks this often is for a demo: the shipped defaults are 15 minutes, 10 minutes and 20 seconds."""

TOKENS_PER_MINUTE = 1_000_000
"""The demo's nodes serve nobody else, so its probes need not wait."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where everything listens, as URLs."""

    baseline: str
    node: str
    gateway: str
    metrics: str
    admin: str


def configuration(size: Size, at: Addresses, limits: Mapping[str, Written]) -> dict[str, Any]:
    """The configuration as a document: one pool in `enforce`, whose traffic the baseline takes over."""
    own = {"draw": size.draw, "continuation_tokens": size.continuation_tokens}
    return {
        "schema": 1,
        "baseline": {"url": at.baseline, "gateway_name": BASELINE},
        "targets": [{"name": NODE, "url": at.node, "scheme": "int8", "pool": POOL, "gateway_name": NODE}],
        "pools": {
            POOL: {
                "mode": "enforce",
                "max_isolated": "100%",
                "fallback": BASELINE,
                "release_after": RELEASE_AFTER,
                "minimum_hold": HOLD,
            }
        },
        "gateway": {
            "driver": "webhook",
            "url": f"{at.gateway}/isolate",
            "release_url": f"{at.gateway}/release",
            "state_url": f"{at.gateway}/state",
        },
        "task_sets": {
            name: {"prompts": f"{name}.yaml", "schedule": {"every": EVERY}, **own, "limits": limits[name]}
            for name in size.task_sets
        },
        "probe": {"tokens_per_minute": TOKENS_PER_MINUTE},
        "store": {"path": RECORD},
        "server": {"listen": _bare(at.metrics), "admin_listen": _bare(at.admin), "drain": DRAIN},
        "logging": {"format": "json"},
    }


def write_configuration(path: Path, content: Mapping[str, Any]) -> None:
    """Put it on disk, with a word on where it comes from."""
    head = "# Written by `quantwatch demo`. The limits come from a healthy node that was measured first.\n"
    path.write_text(head + _yaml(content), encoding="utf-8")


def write_task_sets(size: Size, folder: Path) -> dict[str, PromptSet]:
    """Write some short prompts of each shipped task set to a file of its own, and read them back."""
    shipped = shipped_sets()
    for name in size.task_sets:
        whole = load_set(shipped[name])
        prompts = [_entry(one) for one in whole.prompts if one.length is LengthBucket.SHORT][:PROMPTS]
        content = {"schema": 1, "name": name, "description": whole.description, "license": "Apache-2.0"}
        head = f"# Short prompts of the shipped task set {name}, written by `quantwatch demo`.\n"
        text = head + _yaml({**content, "mode": whole.mode.value, "prompts": prompts})
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return {name: load_set(folder / f"{name}.yaml") for name in size.task_sets}


def _yaml(content: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=120)


def _entry(prompt: Prompt) -> dict[str, Any]:
    own: dict[str, Any] = {"id": prompt.id, "language": prompt.language, "length": prompt.length.value}
    own["tags"] = list(prompt.tags)
    if prompt.text is not None:
        return {**own, "prompt": prompt.text}
    return {**own, "messages": [{"role": one.role, "content": one.content} for one in prompt.messages]}


def _bare(url: str) -> str:
    return url.removeprefix("http://")
