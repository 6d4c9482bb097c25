"""Values with units: durations (`90s`, `5m`, `2h`, `30d`), sizes (`64MiB`), shares (`50%`)."""

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "kB": 1000, "MB": 1000**2, "GB": 1000**3}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|kB|MB|GB)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def seconds(value: Any) -> float:
    """Seconds of `5m` or `1h30m`. Raises ValueError for a number without a unit."""
    if isinstance(value, str) and _DURATION.fullmatch(value.strip()):
        return _finite(sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(value)))
    raise ValueError(f"a duration with its unit, such as 30s, 5m, 2h or 7d, is wanted{_hint(value, 's')}")


def positive_seconds(value: Any) -> float:
    """Like seconds, but refuses no time at all."""
    found = seconds(value)
    if found <= 0:
        raise ValueError("a duration over 0 is wanted")
    return found


def size(value: Any) -> int:
    """Bytes of `64MiB`. Raises ValueError for a number without a unit."""
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match:
        return int(_finite(float(match[1]) * _BYTES[match[2]]))
    raise ValueError(f"a size with its unit, such as 64MiB or 500kB, is wanted{_hint(value, 'MiB')}")


def share(value: Any) -> float:
    """0.5 of `50%` or of 0.5."""
    match = _SHARE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match:
        value = float(match[1]) / 100
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise ValueError("a share such as 50% or 0.5 is wanted")


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("a smaller number is wanted")
    return value


def _hint(value: Any, unit: str) -> str:
    return f"; write {value}{unit}" if isinstance(value, int | float) and not isinstance(value, bool) else ""


_DURATION_SCHEMA = {"type": "string", "pattern": r"^(\d+(\.\d+)?\s*(ms|s|m|h|d))+$", "examples": ["30s", "5m"]}
_POSITIVE_SCHEMA = {**_DURATION_SCHEMA, "pattern": r"^(?=.*[1-9])(\d+(\.\d+)?\s*(ms|s|m|h|d))+$"}
_SIZE_SCHEMA = {"type": "string", "pattern": r"^\d+(\.\d+)?\s*(B|KiB|MiB|GiB|kB|MB|GB)$", "examples": ["64MiB"]}
_SHARE_SCHEMA = {
    "anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "pattern": r"^\d+(\.\d+)?\s*%$"}]
}

Duration = Annotated[float, BeforeValidator(seconds), WithJsonSchema(_DURATION_SCHEMA)]
PositiveDuration = Annotated[float, BeforeValidator(positive_seconds), WithJsonSchema(_POSITIVE_SCHEMA)]
Count = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Size = Annotated[int, BeforeValidator(size), WithJsonSchema(_SIZE_SCHEMA)]
Share = Annotated[float, BeforeValidator(share), WithJsonSchema(_SHARE_SCHEMA)]
