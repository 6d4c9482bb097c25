"""The shipped configuration files load, agree with the JSON schema, and show every key."""

import inspect
import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from pydantic import BaseModel

from quantwatch.config.gateway import GatewaySettings
from quantwatch.config.load import load_settings, prompts_file
from quantwatch.config.schema import Settings, TargetSettings, settings_schema
from quantwatch.prompts.load import shipped_sets
from support.shipped import other_gateways

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
SHIPPED_FILES = ["minimal.yaml", "full.yaml"]
Key = tuple[str, str]


def content(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CONFIGS / name).read_text(encoding="utf-8"))
    return loaded


def validate(data: Any) -> None:
    Draft202012Validator(settings_schema()).validate(data)


def branches(annotation: Any) -> Iterator[Any]:
    """The members of a union, without Annotated wrappers."""
    if typing.get_origin(annotation) is typing.Annotated:
        yield from branches(typing.get_args(annotation)[0])
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for argument in typing.get_args(annotation):
            yield from branches(argument)
    else:
        yield annotation


def owner(model: type[BaseModel], field: str) -> str:
    """The class that declares a field, so that what baseline and targets share is asked for once."""
    return next(kind.__name__ for kind in model.__mro__ if field in inspect.get_annotations(kind))


def keys_of(annotation: Any) -> set[Key]:
    """Every key that a value of this type can hold, at any depth."""
    found: set[Key] = set()
    for kind in branches(annotation):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            for name, info in kind.model_fields.items():
                found |= {(owner(kind, name), info.alias or name)} | keys_of(info.annotation)
        else:
            found = found.union(*(keys_of(argument) for argument in typing.get_args(kind)))
    return found


def mentioned(annotation: Any, data: Any) -> set[Key]:
    """The keys that a value of this type does hold."""
    found: set[Key] = set()
    for kind in branches(annotation):
        if isinstance(kind, type) and issubclass(kind, BaseModel) and isinstance(data, dict):
            for name, info in kind.model_fields.items():
                key = info.alias or name
                if key in data:
                    found |= {(owner(kind, name), key)} | mentioned(info.annotation, data[key])
        elif typing.get_origin(kind) is dict and isinstance(data, dict):
            found = found.union(*(mentioned(typing.get_args(kind)[1], item) for item in data.values()))
        elif typing.get_origin(kind) is list and isinstance(data, list):
            found = found.union(*(mentioned(typing.get_args(kind)[0], item) for item in data))
    return found


def test_the_schema_file_is_the_schema_of_the_settings() -> None:
    assert content("quantwatch.schema.json") == settings_schema()


def test_the_schema_file_is_json() -> None:
    assert json.loads((CONFIGS / "quantwatch.schema.json").read_text(encoding="utf-8")) == settings_schema()


def test_the_schema_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(settings_schema())


@pytest.mark.parametrize("name", SHIPPED_FILES)
def test_a_shipped_configuration_loads(name: str) -> None:
    assert load_settings(CONFIGS / name, shipped=shipped_sets()).targets


@pytest.mark.parametrize("name", SHIPPED_FILES)
def test_a_shipped_configuration_satisfies_the_schema(name: str) -> None:
    validate(content(name))


@pytest.mark.parametrize("name", SHIPPED_FILES)
def test_every_task_set_of_a_shipped_configuration_has_its_prompts(name: str) -> None:
    settings, shipped = load_settings(CONFIGS / name, shipped=shipped_sets()), shipped_sets()
    files = [prompts_file(settings, one, folder=CONFIGS, shipped=shipped) for one in settings.task_sets]
    assert all(file.is_file() for file in files)


def test_the_full_configuration_mentions_every_key() -> None:
    shown = mentioned(Settings, content("full.yaml"))
    shown = shown.union(*(mentioned(GatewaySettings, one) for one in other_gateways()))
    told = {("GatewaySettings", "options")}  # of a package's driver, which a valid example would need installed
    assert keys_of(Settings) - shown == told
    assert "`options: {...}`" in (CONFIGS / "full.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("gateway", other_gateways(), ids=lambda one: one["driver"])
def test_another_gateway_of_the_full_configuration_would_be_taken(gateway: dict[str, Any]) -> None:
    assert GatewaySettings.model_validate(gateway).driver == gateway["driver"]
    validate({**content("full.yaml"), "gateway": gateway})


def test_the_full_configuration_shows_the_gateways_that_need_keys_of_their_own() -> None:
    assert {one["driver"] for one in other_gateways()} >= {"haproxy", "file"}


def test_the_minimal_configuration_needs_every_key_it_has() -> None:
    needed = {"schema", "baseline", "targets", "pools", "task_sets"}
    assert set(content("minimal.yaml")) == needed


def test_the_walk_over_the_keys_reaches_every_depth() -> None:
    deep = {("Settings", "schema"), ("UpperLimit", "warn"), ("TlsSettings", "ca_file"), ("ServerSettings", "headers")}
    assert deep <= keys_of(Settings)


def test_the_walk_over_a_file_finds_only_what_it_holds() -> None:
    assert mentioned(TargetSettings, {"name": "a", "tls": {"ca_file": "c"}}) == {
        ("TargetSettings", "name"),
        ("ServerSettings", "tls"),
        ("TlsSettings", "ca_file"),
    }


@pytest.mark.parametrize("name", SHIPPED_FILES)
def test_a_shipped_configuration_holds_no_real_host(name: str) -> None:
    data = content(name)
    hosts = [server["url"].split("/")[2] for server in [data["baseline"], *data["targets"]]]
    assert all(".example." in host for host in hosts)


REFUSED: dict[str, tuple[tuple[str | int, ...], Any]] = {
    "unknown key": (("zzz",), 1),
    "unknown key of a target": (("targets", 0, "zzz"), 1),
    "number for a duration": (("task_sets", "math", "schedule"), {"every": 5}),
    "literal secret": (("baseline", "api_key"), "sk-live"),
    "unknown scheme": (("targets", 0, "scheme"), "int3"),
    "share over one": (("pools", "llama", "max_isolated"), 1.5),
    "no address": (("baseline", "url"), "fp16:8000"),
    "no targets": (("targets",), []),
    "schema of the future": (("schema",), 2),
    "limits of no scheme": (("limits",), {"int3": {}}),
    "no time at all": (("probe",), {"timeout": "0s"}),
    "ratio limit of one": (("task_sets", "math"), {"limits": {"perplexity_ratio": {"warn": 1}}}),
}


@pytest.mark.parametrize(("path", "value"), REFUSED.values(), ids=REFUSED.keys())
def test_editors_see_what_the_loader_refuses(path: tuple[str | int, ...], value: Any) -> None:
    data = content("minimal.yaml")
    here: Any = data
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = value
    with pytest.raises(ValidationError):
        validate(data)


def defaults_of(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property of every block that has a default."""
    for block, definition in {"Settings": schema, **schema["$defs"]}.items():
        for key, described in definition.get("properties", {}).items():
            if "default" in described:
                yield f"{block}.{key}", described


def test_every_default_in_the_schema_could_be_written_in_a_file() -> None:
    schema = settings_schema()
    wrong = [
        key
        for key, described in defaults_of(schema)
        if not Draft202012Validator({**described, "$defs": schema["$defs"]}).is_valid(described["default"])
    ]
    assert wrong == []
