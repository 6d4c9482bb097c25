"""What changed between two configurations, one setting a line."""

from collections.abc import Iterator
from typing import Any

from quantwatch.config.schema import Settings
from quantwatch.log import without_secrets

NEEDS_RESTART = (
    "server.listen",
    "server.admin_listen",
    "server.agent_listen",
    "store.path",
    "logging",
)
"""Settings that a running daemon cannot change."""

SECRET = {"kind", "name"}
"""What a secret's place is made of, once it is plain data."""


def changes(old: Settings, new: Settings) -> list[str]:
    """`key: old -> new` for every setting that differs. Secrets appear by their place alone, never by value.

    A setting without a value counts as one that is not there, so a new target is as many lines as it has settings.
    """
    before, after = dict(_flat(_plain(old))), dict(_flat(_plain(new)))
    keys = [*before, *(key for key in after if key not in before)]
    return [without_secrets(_line(key, before, after)) for key in keys if before.get(key) != after.get(key)]


def needing_restart(lines: list[str]) -> list[str]:
    """Those changes that wait for a restart."""
    return [line for line in lines if line.startswith(NEEDS_RESTART)]


def _plain(settings: Settings) -> dict[str, Any]:
    """The settings as data, lists by name and not by place, so that an inserted one changes nothing else."""
    data = settings.model_dump(mode="json", by_alias=True)
    for block in ("targets", "notifications", "windows"):
        data[block] = {one["name"]: one for one in data[block]}
    data["server"]["tokens"] = {one["name"]: one for one in data["server"]["tokens"]}
    return data


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value.keys() == SECRET and value["kind"] in ("env", "file"):
        yield path, f"{value['kind']}:{value['name']}"
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else str(key))
    elif value is not None:
        yield path, value


def _line(key: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    if key not in before:
        return f"{key}: new, {after[key]}"
    if key not in after:
        return f"{key}: gone, was {before[key]}"
    return f"{key}: {before[key]} -> {after[key]}"
