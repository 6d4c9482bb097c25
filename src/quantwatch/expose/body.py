"""What comes in: JSON objects of bounded size, each field checked, each fault named."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from quantwatch.errors import InputError

LARGEST_BODY = 64 * 1024
LONGEST_FIELD = 500
MOST_FIELDS = 32


class BodyError(InputError):
    """A request that cannot be carried out. field: where the fault is, empty for the body as a whole."""

    def __init__(self, field: str, message: str, *, status: int = 400) -> None:
        self.field = field
        self.message = message
        self.status = status
        super().__init__(f"{field}: {message}" if field else message)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a request; each reader raises BodyError with the field's name."""

    values: Mapping[str, Any]

    def text(self, name: str) -> str:
        """A text that must be there, without white space around it."""
        value = self.maybe_text(name)
        if value is None:
            raise BodyError(name, "is missing")
        return value

    def maybe_text(self, name: str) -> str | None:
        """A text, or None where it is left out or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise BodyError(name, "must be a text that is not empty")
        if len(value) > LONGEST_FIELD:
            raise BodyError(name, f"must have at most {LONGEST_FIELD} characters")
        if not value.isprintable():
            raise BodyError(name, "must not hold line breaks or control characters")
        return value.strip()

    def flag(self, name: str) -> bool:
        """A truth value; False where it is left out."""
        value = self.values.get(name, False)
        if not isinstance(value, bool):
            raise BodyError(name, "must be true or false")
        return value

    def seconds(self, name: str, *, most: float) -> float | None:
        """A positive number of seconds, or None where it is left out or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BodyError(name, "must be a number of seconds")
        if not (0 < value <= most and math.isfinite(value)):
            raise BodyError(name, f"must be over 0 and at most {most:.0f}")
        return float(value)


async def read_body(request: Request, *, known: Sequence[str]) -> Fields:
    """Read a JSON object with no other fields than the known ones. Raises BodyError."""
    values = _parsed(await _bytes(request))
    for name in values:
        if name not in known:
            raise BodyError("", f"there is no field {name[:80]!r} here; known are {', '.join(known)}")
    return Fields(values)


async def read_form(request: Request, *, known: Sequence[str]) -> dict[str, str]:
    """Read a form as a browser sends it: each field once, empty ones left out. Raises BodyError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise BodyError("", "a form is wanted, as browsers send it", status=415)
    try:
        given = parse_qsl((await _bytes(request)).decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as exc:
        raise BodyError("", "the form cannot be read") from exc
    values: dict[str, str] = {}
    for name, value in given:
        if name not in known or name in values:
            raise BodyError("", f"there is no field {name[:80]!r} here, or it is there twice")
        values[name] = value
    return {name: value for name, value in values.items() if value.strip()}


async def _bytes(request: Request) -> bytes:
    """The body, given up as soon as it is too large, whatever its header says about its size."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST_BODY:
                raise BodyError("", f"the body has more than {LARGEST_BODY} bytes", status=413)
    except ClientDisconnect as exc:
        raise BodyError("", "the body broke off") from exc
    return bytes(body)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        values = json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as exc:
        raise BodyError("", "the body is not UTF-8") from exc
    except (ValueError, RecursionError) as exc:
        raise BodyError("", "the body is not JSON") from exc
    if not isinstance(values, dict):
        raise BodyError("", "the body must be a JSON object")
    return values
