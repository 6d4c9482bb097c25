"""Validation errors -> problems that name file, line, key, what was found, what is allowed, the nearest valid key."""

import difflib
import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from quantwatch.config.secrets import SECRET_NAME, without_userinfo
from quantwatch.config.source import Path_, Source, dotted
from quantwatch.errors import ConfigError, Problem

HIDDEN = "a value that is not shown here"

M = typing.TypeVar("M", bound=BaseModel)


def validated(model: type[M], source: Source) -> M:
    """Validate a source against a model. Raises ConfigError with all problems, in the order of the file."""
    if not isinstance(source.data, dict):
        found = "is empty" if source.data is None else f"holds a {type(source.data).__name__}"
        raise ConfigError([Problem(source.file, 1, "", f"the file {found}; a mapping of keys is wanted")])
    try:
        return model.model_validate(source.data)
    except ValidationError as exc:
        problems = [_problem(error, model, source) for error in exc.errors(include_url=False)]
        raise ConfigError(sorted(problems, key=lambda problem: problem.line or 0)) from exc


def _problem(error: ErrorDetails, model: type[BaseModel], source: Source) -> Problem:
    path = _real_path(error["loc"], source.data)
    return Problem(source.file, source.line(path), dotted(path), _message(error, path, model))


def _message(error: ErrorDetails, path: Path_, model: type[BaseModel]) -> str:
    match error["type"]:
        case "extra_forbidden":
            return unknown_key(str(path[-1]), _keys_at(model, path[:-1]))
        case "missing":
            return "this key is required and missing"
        case "value_error" | "assertion_error":
            return str(error["ctx"]["error"]) + _found(error, path)
        case "enum" | "literal_error":
            return f"found {error['input']!r}; allowed: {error['ctx']['expected']}{nearest(error['input'], error)}"
        case _:
            return f"{error['msg']}; found {_shown(error['input'], path)}"


def unknown_key(key: str, allowed: list[str]) -> str:
    """The sentence for a key that is not known here."""
    close = difflib.get_close_matches(key, allowed, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"unknown key; {hint}allowed here: {', '.join(allowed)}"


def known_names(found: str, allowed: list[str]) -> str:
    """The part of a sentence that helps to a name that is known."""
    close = difflib.get_close_matches(found, allowed, n=1)
    return (f"did you mean {close[0]}? " if close else "") + f"known: {', '.join(sorted(allowed))}"


def nearest(found: Any, error: ErrorDetails) -> str:
    """A hint at the allowed value that looks most like what was found."""
    allowed = [word.strip(" '") for word in str(error["ctx"]["expected"]).replace(" or ", ",").split(",")]
    close = difflib.get_close_matches(str(found), allowed, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def _found(error: ErrorDetails, path: Path_) -> str:
    """What stands in the file, unless it is a block of keys or may be a secret."""
    shown = _shown(error["input"], path)
    return f"; found {shown}" if isinstance(error["input"], str | int | float) and shown != HIDDEN else ""


def _shown(value: Any, path: Path_) -> str:
    """A value for a message: scalars as they are, blocks by their kind, secrets not at all."""
    secret_url = path[:1] == ("notifications",) and path[-1] == "url"
    if secret_url or any(SECRET_NAME.search(str(part)) or part == "headers" for part in path):
        return HIDDEN
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = without_userinfo(repr(value))
    return text if len(text) <= 60 else text[:57] + "..."


def _real_path(loc: tuple[int | str, ...], data: Any) -> Path_:
    """Drop the names of union branches and validators that pydantic puts into an error's path."""
    path: list[str | int] = []
    for i, part in enumerate(loc):
        last = i == len(loc) - 1
        if isinstance(data, dict) and (part in data or (last and isinstance(part, str) and "[" not in part)):
            path.append(part)
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            path.append(part)
            data = data[part]
    return tuple(path)


def _keys_at(model: type[BaseModel], path: Path_) -> list[str]:
    """The keys that a model allows at a path."""
    here: Any = model
    for part in path:
        here = _step(here, part)
    return [info.alias or name for found in _models(here) for name, info in found.model_fields.items()]


def _step(annotation: Any, part: str | int) -> Any:
    for found in _models(annotation):
        for name, info in found.model_fields.items():
            if part in (name, info.alias):
                return info.annotation
    arguments = [argument for kind in _branches(annotation) for argument in typing.get_args(kind)]
    return arguments[-1] if arguments else Any


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    for kind in _branches(annotation):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield kind


def _branches(annotation: Any) -> Iterator[Any]:
    """The members of a union, without Annotated wrappers."""
    if typing.get_origin(annotation) is typing.Annotated:
        yield from _branches(typing.get_args(annotation)[0])
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for argument in typing.get_args(annotation):
            yield from _branches(argument)
    else:
        yield annotation
