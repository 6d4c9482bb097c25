"""How values are written in the tables of the store.

Moments are ISO 8601 text in UTC with microseconds, so that text order is time order. Numbers that are not finite become
NULL. Documents are JSON in ASCII, since servers can send half a character, which is no UTF-8; large ones are deflated.
"""

import json
import math
import zlib
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Dialect, Float, LargeBinary, String
from sqlalchemy.types import TypeDecorator

from quantwatch.errors import StoreError

LARGEST = 2**22
"""Bytes of a document that was deflated; no larger one is ever written."""


def moment_text(moment: datetime) -> str:
    """A moment as the store writes it. Raises ValueError for one without a time zone, which could be any."""
    if moment.tzinfo is None:
        raise ValueError(f"{moment} has no time zone")
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def moment_of(text: str) -> datetime:
    """The moment that the store wrote. Raises ValueError for any other text, also for one without a time zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return moment.astimezone(UTC)


class Words(TypeDecorator[str]):
    """Text of any origin; half a character is written as an escape."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002, by contract
        """Text that is surely UTF-8."""
        return None if value is None else value.encode("utf-8", "backslashreplace").decode()


class Moment(TypeDecorator[datetime]):
    """A moment in UTC."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:  # noqa: ARG002, by contract
        """ISO text."""
        return None if value is None else moment_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002, by contract
        """The moment again. Raises StoreError for text that is none."""
        try:
            return None if value is None else moment_of(value)
        except (TypeError, ValueError):
            raise _unreadable("a moment") from None


class Figure(TypeDecorator[float]):
    """A finite number, or NULL."""

    impl = Float
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:  # noqa: ARG002, by contract
        """NULL for what is not finite."""
        return value if value is not None and math.isfinite(value) else None


class Document(TypeDecorator[Any]):
    """JSON."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002, by contract
        """ASCII JSON without NaN."""
        return None if value is None else json.dumps(value, allow_nan=False, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002, by contract
        """The document again. Raises StoreError for text that is none."""
        try:
            return None if value is None else json.loads(value)
        except (TypeError, ValueError, RecursionError):
            raise _unreadable("a document") from None


def packed(value: Any) -> bytes:
    """A document as deflated JSON."""
    return zlib.compress(json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii"))


def unpacked(value: Any) -> Any:
    """The document again. Raises ValueError for bytes that are none, or stand for more than LARGEST."""
    reading = zlib.decompressobj()
    try:
        text = reading.decompress(value, LARGEST)
    except (TypeError, zlib.error) as exc:
        raise ValueError("no deflated document") from exc
    if not reading.eof:
        raise ValueError("a deflated document that is cut off or too large")
    return json.loads(text)


class Packed(TypeDecorator[Any]):
    """JSON, deflated."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes | None:  # noqa: ARG002, by contract
        """Deflated ASCII JSON without NaN."""
        return None if value is None else packed(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ARG002, by contract
        """The document again. Raises StoreError for bytes that are none."""
        try:
            return None if value is None else unpacked(value)
        except (ValueError, RecursionError):
            raise _unreadable("a document") from None


class Choice(TypeDecorator[StrEnum]):
    """One of the values of an enum."""

    impl = String
    cache_ok = True

    def __init__(self, kind: type[StrEnum]) -> None:
        self.kind = kind
        super().__init__()

    def process_bind_param(self, value: StrEnum | None, dialect: Dialect) -> str | None:  # noqa: ARG002, by contract
        """Its text."""
        return None if value is None else self.kind(value).value

    def process_result_value(self, value: str | None, dialect: Dialect) -> StrEnum | None:  # noqa: ARG002, by contract
        """The member again. Raises StoreError for text that is none."""
        try:
            return None if value is None else self.kind(value)
        except ValueError:
            raise _unreadable(f"a {self.kind.__name__}") from None


def _unreadable(what: str) -> StoreError:
    return StoreError(f"the store holds {what} that cannot be read; `quantwatch store check` tells more")
