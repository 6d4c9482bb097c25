"""The tables of the store, and how values are written in them.

Moments are ISO 8601 text in UTC with microseconds, so that text order is time order. Numbers that are not finite become
NULL. Documents are JSON in ASCII, since servers can send half a character, which is no UTF-8.
"""

import json
import math
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
)
from sqlalchemy.types import TypeDecorator

from quantwatch.errors import StoreError
from quantwatch.flow.decision import Action, Lane, Origin, PoolMode, Result, Ruling
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.proposal import Fate
from quantwatch.flow.run import Trigger
from quantwatch.flow.state import Axis, Human, Routing
from quantwatch.flow.verdict import Quality

APPLICATION = 0x71776174
"""`qwat` in the header of the file: tells our files from other programs' SQLite files."""


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


def _words(name: str, *, null: bool = False) -> "Column[str]":
    return Column(name, Words, nullable=null)


def _moment(name: str, *, null: bool = False) -> "Column[datetime]":
    return Column(name, Moment, nullable=null)


def _choice(name: str, kind: type[StrEnum], *, null: bool = False) -> "Column[StrEnum]":
    return Column(name, Choice(kind), nullable=null)


def _count(name: str, *, null: bool = False) -> "Column[int]":
    return Column(name, Integer, nullable=null)


def _document(name: str) -> "Column[Any]":
    return Column(name, Document, nullable=False)


SCHEMA = MetaData()

META = Table("meta", SCHEMA, Column("key", String, primary_key=True), Column("value", String, nullable=False))

NOTE = "note: "
"""Begins the keys of META under which notes stand."""

RUNS = Table(
    "runs",
    SCHEMA,
    Column("id", Words, primary_key=True),
    *(_words(name) for name in ("target", "task_set", "pool")),
    _choice("trigger", Trigger),
    _moment("started"),
    Column("seconds", Figure),
    _choice("quality", Quality),
    *(_words(name) for name in ("reason", "basis", "limits")),
    Column("measured", Boolean, nullable=False),
    _document("document"),
    Index("runs_by_time", "started"),
    Index("runs_by_pair", "target", "task_set", "started"),
)
"""measured: whether the run gave numbers. document: the whole record, record/documents.py."""

NUMBERS = Table(
    "numbers",
    SCHEMA,
    Column("run", Words, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("metric", String, primary_key=True),
    *(Column(name, Figure) for name in ("value", "low", "high", "warn", "critical")),
    _choice("quality", Quality, null=True),
)
"""low, high: the interval. warn, critical, quality: where the number carries a limit."""

SET_STATES = Table(
    "set_states",
    SCHEMA,
    *(Column(name, Words, primary_key=True) for name in ("target", "task_set")),
    _choice("quality", Quality),
    _choice("last", Quality),
    *(_count(name) for name in ("breaches", "clean", "undecided")),
    _words("basis"),
    _words("run", null=True),
    _moment("at", null=True),
    _words("reason"),
    *(_words(name, null=True) for name in ("proof", "process")),
    _words("limits"),
)

TARGET_STATES = Table(
    "target_states",
    SCHEMA,
    Column("target", Words, primary_key=True),
    _words("pool"),
    _choice("routing", Routing),
    _choice("human", Human),
    _words("owner", null=True),
    _moment("since", null=True),
    _count("ejections"),
    *(_words(name, null=True) for name in ("gone", "lane", "node", "driver")),
    *(_words(name, null=True) for name in ("human_author", "human_reason")),
    *(_moment(name, null=True) for name in ("human_since", "human_until", "vouched", "well_since")),
)

DECISIONS = Table(
    "decisions",
    SCHEMA,
    Column("id", Words, primary_key=True),
    _moment("at"),
    _choice("action", Action),
    *(_words(name) for name in ("target", "pool", "reason")),
    _choice("lane", Lane, null=True),
    *(_words(name, null=True) for name in ("task_set", "run")),
    _choice("mode", PoolMode),
    _choice("ruling", Ruling),
    *(_document(name) for name in ("objections", "findings")),
    Column("author", Words, nullable=False, server_default="quantwatch"),
    Column("origin", Choice(Origin), nullable=False, server_default=Origin.VERDICTS.value),
    Index("decisions_by_time", "at"),
    Index("decisions_by_target", "target", "at"),
)

INTENTS = Table(
    "intents",
    SCHEMA,
    Column("decision", Words, ForeignKey("decisions.id", ondelete="CASCADE"), primary_key=True),
    *(_words(name) for name in ("target", "pool")),
    _choice("action", Action),
    _moment("opened"),
    _count("attempts"),
    _document("sent"),
    _choice("result", Result, null=True),
    _words("detail", null=True),
    _moment("settled", null=True),
    _count("settled_attempts", null=True),
    Column("doubt", Boolean),
    Index("intents_by_pool", "pool", "opened"),
)
"""sent: the order. result to doubt: the outcome, NULL while the intent is open."""

PROPOSALS = Table(
    "proposals",
    SCHEMA,
    Column("decision", Words, ForeignKey("decisions.id", ondelete="CASCADE"), primary_key=True),
    *(_words(name) for name in ("target", "pool")),
    _choice("action", Action),
    *(_words(name) for name in ("reason", "evidence")),
    *(_moment(name) for name in ("opened", "expires")),
    _words("task_set", null=True),
    _choice("lane", Lane, null=True),
    _words("objections"),
    _choice("fate", Fate),
    _moment("closed", null=True),
    *(_words(name, null=True) for name in ("author", "said")),
    Index("proposals_by_target", "target", "opened"),
)
Index("proposals_open", PROPOSALS.c.target, unique=True, sqlite_where=PROPOSALS.c.fate == "open")
"""What waits or waited for a person; one of a target at a time waits. objections: in words."""

TRANSITIONS = Table(
    "transitions",
    SCHEMA,
    Column("number", Integer, primary_key=True),
    _moment("at"),
    _words("target"),
    _choice("axis", Axis),
    *(_words(name) for name in ("old", "new", "reason")),
    *(_words(name, null=True) for name in ("task_set", "run", "decision")),
    _words("author"),
    Index("transitions_by_target", "target", "at"),
    Index("transitions_by_run", "run"),
    Index("transitions_by_decision", "decision"),
)

PAUSES = Table(
    "pauses",
    SCHEMA,
    Column("id", Words, primary_key=True),
    *(_words(name) for name in ("scope", "reason", "author")),
    _moment("since"),
    _moment("until", null=True),
    _moment("ended", null=True),
)
"""until: when it ends by itself. ended: when somebody ended it."""

ANSWERS = Table(
    "reference_answers",
    SCHEMA,
    Column("number", Integer, primary_key=True),
    *(_words(name) for name in ("fingerprint", "pool", "prompt_id")),
    _choice("mode", ProbeMode),
    *(_count(name) for name in ("k", "prompt_length")),
    _moment("made"),
    Column("seconds", Figure),
    *(Column(name, LargeBinary, nullable=False) for name in ("sequence", "positions", "ids")),
    *(Column(name, LargeBinary, nullable=False) for name in ("logprobs", "actual", "floor")),
    _document("marks"),
    _moment("superseded", null=True),
)
Index(
    "reference_answers_in_use",
    *(ANSWERS.c[name] for name in ("fingerprint", "pool", "prompt_id", "mode", "k")),
    unique=True,
    sqlite_where=ANSWERS.c.superseded.is_(None),
)
"""The baseline's own answers; arrays as in record/references.py. superseded: since when it no longer counts."""

_STANDING = (Column("standing", Boolean, nullable=False), _moment("at"), _document("document"))
NOTICES = Table("notices", SCHEMA, Column("key", Words, primary_key=True), *_STANDING)
"""Each matter as it was last told (record/notices.py). standing: False once it is over; such rows are pruned."""

_TO_TELL = (Column("number", Integer, primary_key=True), _words("channel"), _words("notice"), _document("document"))
DELIVERIES = Table("deliveries", SCHEMA, *_TO_TELL, Index("deliveries_by_notice", "channel", "notice", unique=True))
"""What a channel has yet to be told, in its order. notice: its id."""

KEPT = ("transitions", "decisions")
"""Tables whose rows are added and pruned, and never changed."""
