"""docs/configuration.md is what the schema says, and tells every key of it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from quantwatch.cli.main import main
from quantwatch.config.changes import NEEDS_RESTART
from quantwatch.config.limits import DEFAULT_LIMITS, Scheme
from quantwatch.config.reference import configuration_reference
from quantwatch.config.schema import Settings, settings_schema
from support.shipped import other_gateways

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "configuration.md"
NAMED = {"pools": "NAME", "task_sets": "NAME", "limits": "SCHEME"}
FREE = {"headers"}
"""Blocks whose keys are the user's own."""


def written(data: Any, path: str = "") -> Iterator[str]:
    """Paths of every key of a file, as the reference writes them."""
    if isinstance(data, list):
        for item in data:
            yield from written(item, f"{path}[]") if isinstance(item, dict) else ()
    elif isinstance(data, dict):
        for key, value in data.items():
            where = f"{path}.{NAMED.get(path, key)}" if path else key
            if path not in NAMED:
                yield where
            if key not in FREE and not path.endswith(".slices"):  # below stands what stands below `limits`
                yield from written(value, where)


def entries() -> dict[str, str]:
    """The text of each key's entry, in one line."""
    flat = re.sub(r"\n  ", " ", PAGE.read_text(encoding="utf-8"))
    return dict(re.findall(r"^- `([^`]+)`: (.*)$", flat, re.MULTILINE))


def test_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """After a change of the schema: quantwatch schema --markdown > docs/configuration.md."""
    assert main(["schema", "--markdown"]) == 0
    assert PAGE.read_text(encoding="utf-8") == capsys.readouterr().out == configuration_reference()


@pytest.mark.parametrize("name", ["full.yaml", "minimal.yaml"])
def test_every_key_of_a_shipped_configuration_has_its_entry(name: str) -> None:
    data = yaml.safe_load((ROOT / "configs" / name).read_text(encoding="utf-8"))
    keys = set(written(data))
    assert keys
    assert keys - set(entries()) == set()


def test_every_entry_is_a_key_of_the_full_configuration_or_a_limit_or_shared_with_one() -> None:
    """It shows tls once and headers once, limits of one scheme, and no settings of a package; all the rest it shows."""
    data = yaml.safe_load((ROOT / "configs" / "full.yaml").read_text(encoding="utf-8"))
    shown = set(written(data)).union(*(written({"gateway": one}) for one in other_gateways()))
    shared = re.compile(
        r"(targets\[\]|gateway(\.traffic_probe)?|notifications\[\])\.(tls|headers)|gateway\.options$|limits\.SCHEME\."
    )
    assert {key for key in set(entries()) - shown if not shared.match(key)} == set()


def test_every_key_has_a_description() -> None:
    schema = settings_schema()
    blocks = {"Settings": schema, **schema["$defs"]}
    properties = (
        (name, key, one) for name, block in blocks.items() for key, one in block.get("properties", {}).items()
    )
    assert [f"{name}.{key}" for name, key, one in properties if not one.get("description")] == []


def test_every_top_level_block_has_its_section() -> None:
    sections = re.findall(r"^## `(\w+)`$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == [info.alias or name for name, info in Settings.model_fields.items()]


SAMPLES = {
    "probe.timeout": "duration over 0, default `2m`",
    "probe.patience": "duration, default `30s`",
    "probe.max_response_size": "size, default `64MiB`",
    "probe.max_kv_usage": "share, default `0.9`",
    "probe.in_flight": "whole number, 1 to 8, default `1`",
    "baseline.url": "URL (http or https), required",
    "targets[].name": "name, required",
    "targets[].api_key": "secret",
    "server.listen": "HOST:PORT, default `0.0.0.0:9469`",
    "pools.NAME.mode": "`observe`, `dry_run`, `approve` or `enforce`, default `observe`",
    "task_sets.NAME.act_on": "list, default `[corrupted, limits]`",
    "task_sets.NAME.limits.top1_agreement.warn": "share",
    "task_sets.NAME.limits.perplexity_ratio.warn": "number over 1",
    "limits.SCHEME.kl_mean.warn": "number, 0 or more",
}


@pytest.mark.parametrize(("key", "facts"), SAMPLES.items(), ids=SAMPLES.keys())
def test_an_entry_tells_kind_range_and_default(key: str, facts: str) -> None:
    assert entries()[key].startswith(f"{facts}. ")


def test_the_keys_that_wait_for_a_restart_say_so() -> None:
    told = {key for key, text in entries().items() if text.endswith("A change waits for a restart.")}
    assert told == {key for key in entries() if key.startswith(NEEDS_RESTART)}
    assert {"store.path", "logging.level"} <= told


@pytest.mark.parametrize("scheme", DEFAULT_LIMITS)
def test_the_built_in_limits_are_told(scheme: Scheme) -> None:
    row = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{scheme}` |"))
    told = {(float(warn), float(critical)) for warn, critical in re.findall(r"([\d.]+) / ([\d.]+)", row)}
    assert told == {(limit.warn, limit.critical) for limit in DEFAULT_LIMITS[scheme].values().values()}
