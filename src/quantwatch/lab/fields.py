"""Reading a JSON object field by field; what is of the wrong kind is refused by its name."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quantwatch.lab.refused import Refused


def json_object(body: bytes) -> dict[str, Any]:
    """A request's body. Raises Refused when it is no JSON object, or holds text that is no Unicode."""
    try:
        text = body.decode(json.detect_encoding(body))
        raw = json.loads(text)
        halved = _halved(raw) if "\\u" in text else None  # only an escape can write half a character
    except (ValueError, RecursionError) as exc:
        raise Refused(f"The body is no valid JSON: {exc}") from exc
    if not isinstance(raw, dict):
        raise Refused("The body is no JSON object")
    if halved is not None:
        raise Refused(f"{halved} must be Unicode text, and holds half a surrogate pair", param=halved)
    return raw


def _halved(raw: object) -> str | None:
    """The field in which half a surrogate pair stands, which no encoding can write."""
    fields = raw.items() if isinstance(raw, dict) else ()
    return next((_ascii(name) for name, value in fields if not _is_text(name) or not _is_text(value)), None)


def _is_text(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object. A field that is null counts as left out."""

    raw: Mapping[str, Any]

    def given(self, name: str) -> bool:
        """Whether a field has a value."""
        return self.raw.get(name) is not None

    def integer(self, name: str, default: int, *, least: int, most: int | None = None) -> int:
        """A whole number within limits."""
        value = self.raw.get(name)
        if value is None:
            return default
        if type(value) is not int:
            raise Refused(f"{name} must be an integer, got {_shown(value)}", param=name)
        return int(_within(name, value, least, most))

    def number(self, name: str, default: float, *, least: float, most: float | None = None) -> float:
        """A number within limits."""
        value = self.raw.get(name)
        if value is None:
            return default
        if type(value) not in (int, float):
            raise Refused(f"{name} must be a number, got {_shown(value)}", param=name)
        return _within(name, _finite(name, value), least, most)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """True or false."""
        value = self.raw.get(name)
        if value is None:
            return default
        if type(value) is not bool:
            raise Refused(f"{name} must be true or false, got {_shown(value)}", param=name)
        return value

    def text(self, name: str) -> str | None:
        """A string, or None."""
        value = self.raw.get(name)
        if value is not None and not isinstance(value, str):
            raise Refused(f"{name} must be a string, got {_shown(value)}", param=name)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A string or a list of strings; empty ones are refused."""
        value = self.raw.get(name)
        listed = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(one, str) and one for one in listed):
            raise Refused(f"{name} must be a string or a list of strings, none of them empty", param=name)
        return tuple(listed)

    def ids(self, name: str) -> tuple[int, ...]:
        """A list of token ids."""
        value = self.raw.get(name)
        if value is None:
            return ()
        if not is_ids(value):
            raise Refused(f"{name} must be a list of token ids", param=name)
        return tuple(value)

    def messages(self, name: str) -> list[dict[str, str]]:
        """A conversation: objects with a role and a content, both text."""
        value = self.raw.get(name)
        if not isinstance(value, list) or not value or not all(_is_message(one) for one in value):
            raise Refused(f"{name} must be a list of objects with role and content", param=name)
        return value


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(one), str) for one in ("role", "content"))


def is_ids(value: object) -> bool:
    """Whether a value is a list of whole numbers."""
    return isinstance(value, list) and all(type(one) is int for one in value)


def _finite(name: str, value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Refused(f"{name} must be a finite number, got {_shown(value)}", param=name)
    return number


def _within(name: str, value: float, least: float, most: float | None) -> float:
    if value < least or (most is not None and value > most):
        limits = f"at least {least:g}" if most is None else f"between {least:g} and {most:g}"
        raise Refused(f"{name} must be {limits}, got {value}", param=name)
    return value


def _shown(value: object) -> str:
    return json.dumps(value)[:40]
