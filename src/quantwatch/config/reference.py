"""The reference of the configuration as Markdown, made from the schema, so that it cannot tell anything else."""

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter

from quantwatch.config.changes import NEEDS_RESTART
from quantwatch.config.limits import DEFAULT_LIMITS
from quantwatch.config.schema import settings_schema
from quantwatch.config.secrets import Secret
from quantwatch.config.server import Listen, Url
from quantwatch.config.strict import Name
from quantwatch.config.units import Duration, PositiveDuration, Share, Size
from quantwatch.flow.verdict import Metric

WIDTH = 120

INTRODUCTION = """\
# Configuration

<!-- Made by `quantwatch schema --markdown` from the schema of the configuration; changes belong there. -->

One YAML file. `quantwatch check-config FILE` names every fault in it at once, with line, key and the nearest valid key,
and tells what the probes will cost. [minimal.yaml](../configs/minimal.yaml) and [full.yaml](../configs/full.yaml) are
the two ends; [quantwatch.schema.json](../configs/quantwatch.schema.json) lets editors complete it.

Below stands every key with the kind of its value, the values that are allowed, and its default. A key without a default
that is not required may be left out. Unknown keys are refused. A limit is looked for in the task set, then under the
scheme in `limits`, then among the built-in ones.

- **duration**: a number with its unit, `90s`, `5m`, `2h`, `7d`, `1h30m`, also `500ms`. A bare number is refused.
- **size**: a number with its unit, `64MiB`, `500kB`. A bare number is refused.
- **share**: from 0 to 1, or from `0%` to `100%`.
- **secret**: where it lies, never the secret itself: `env:NAME` or `file:/path`.
- **name**: letters, digits, `.`, `_` and `-`, at most 80.

`NAME`, `SCHEME` and `[]` in a path stand for a name of your own, a quantization scheme, and each entry of a list. The
running daemon reads the file again on `quantwatch reload`; where that is not enough, the key says so.
"""

LIMITS = """
Built-in limits, where neither this block nor the task set gives one:
"""

_KINDS: tuple[tuple[Any, str], ...] = (
    (Duration, "duration"),
    (PositiveDuration, "duration over 0"),
    (Size, "size"),
    (Share, "share"),
    (Secret, "secret"),
    (Name, "name"),
    (Url, "URL (http or https)"),
    (Listen, "HOST:PORT"),
)

_PLAIN = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "object": "block",
    "array": "list",
    "boolean": "true or false",
}

_ABOUT = frozenset({"title", "description", "default", "examples", "enum"})
"""What a schema says besides the values that it allows."""

Schema = Mapping[str, Any]


def configuration_reference() -> str:
    """Every key of the configuration with kind, range, default and meaning: Markdown, one section a top-level block."""
    schema = settings_schema()
    sections = [_section(name, field, schema) for name, field in schema["properties"].items()]
    return "\n".join([INTRODUCTION, *sections])


def _section(name: str, field: Schema, schema: Schema) -> str:
    required = name in schema["required"]
    lines = [f"## `{name}`", "", *_entry(name, field, required)]
    lines += _keys(name, field, schema)
    if name == "limits":
        lines += [LIMITS, *_built_in()]
    return "\n".join(lines) + "\n"


def _keys(path: str, field: Schema, schema: Schema) -> Iterator[str]:
    """The entries of everything below a key, at any depth."""
    below, suffix = _below(field)
    block = schema["$defs"][below.rpartition("/")[2]] if below is not None else {}
    for name, inner in block.get("properties", {}).items():
        where = f"{path}{suffix}.{name}"
        yield from _entry(where, _resolved(inner, schema), name in block.get("required", ()))
        if not path.endswith(".slices"):  # below stands what stands below `limits`
            yield from _keys(where, inner, schema)


def _below(field: Schema) -> tuple[str | None, str]:
    """The block that a key holds, with what its path goes on with: a name of your own, an entry of a list."""
    if "items" in field:
        return field["items"].get("$ref"), "[]"
    if "patternProperties" in field:
        return next(iter(field["patternProperties"].values())).get("$ref"), ".NAME"
    if isinstance(field.get("additionalProperties"), dict):
        names = field.get("propertyNames", {}).get("$ref", "")
        return field["additionalProperties"].get("$ref"), ".SCHEME" if names.endswith("/Scheme") else ".VALUE"
    given = [one["$ref"] for one in (field, *field.get("anyOf", ())) if "$ref" in one]
    return (given[0] if given else None), ""


def _resolved(field: Schema, schema: Schema) -> Schema:
    """A key's schema with the block or enumeration that it points to, in which its own words win."""
    below, suffix = _below(field)
    return field if below is None or suffix else {**schema["$defs"][below.rpartition("/")[2]], **field}


def _entry(path: str, field: Schema, required: bool) -> list[str]:  # noqa: FBT001, said by position once
    """A line or more of the list: path, kind and range, default, meaning."""
    facts = [_kind(field)]
    if required:
        facts.append("required")
    elif field.get("default") is not None:
        facts.append(f"default `{_written(field['default'])}`")
    words = [f"- `{path}`: {', '.join(facts)}. {field.get('description', '').rstrip('.')}."]
    if path.startswith(NEEDS_RESTART):
        words.append("A change waits for a restart.")
    return textwrap.wrap(" ".join(words), WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _written(value: Any) -> str:
    """A default as it would stand in the file."""
    return str(value) if isinstance(value, str) else json.dumps(value).replace('"', "")


def _kind(field: Schema) -> str:
    branches = [one for one in field.get("anyOf", ()) if one.get("type") != "null"]
    if len(branches) == 1:
        return _kind({**field, **branches[0], "anyOf": []})
    field = {**field, "anyOf": branches}
    known = next((name for kind, name in _KINDS if _same(TypeAdapter(kind).json_schema(), field)), None)
    if known is not None:
        return known
    if "const" in field:
        return f"always `{field['const']}`"
    if "enum" in field:
        return " or ".join((", ".join(f"`{one}`" for one in field["enum"][:-1]), f"`{field['enum'][-1]}`"))
    return _PLAIN[field.get("type", "object")] + _range(field)


def _same(one: Schema, other: Schema) -> bool:
    """Whether two schemas allow the same values."""
    allowed = ({key: value for key, value in each.items() if key not in _ABOUT and value} for each in (one, other))
    return next(allowed) == next(allowed)


def _range(field: Schema) -> str:
    low, high = field.get("minimum"), field.get("maximum")
    if "exclusiveMinimum" in field:
        return f" over {field['exclusiveMinimum']:g}"
    if low is None:
        return ""
    return f", {low:g} or more" if high is None else f", {low:g} to {high:g}"


def _built_in() -> Iterator[str]:
    """The limits of the schemes: one row each."""
    metrics = [metric for metric in Metric if any(metric in one.values() for one in DEFAULT_LIMITS.values())]
    yield f"| scheme | {' | '.join(f'`{metric.value}` warn / critical' for metric in metrics)} |"
    yield "|---" * (len(metrics) + 1) + "|"
    for scheme, settings in DEFAULT_LIMITS.items():
        limits = settings.values()
        cells = [f"{limits[metric].warn:g} / {limits[metric].critical:g}" for metric in metrics]
        yield f"| `{scheme.value}` | {' | '.join(cells)} |"
