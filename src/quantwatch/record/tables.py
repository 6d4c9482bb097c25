"""The tables of the store; record/columns.py says how values are written in them."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
)

from quantwatch.flow.decision import Action, Lane, Origin, PoolMode, Result, Ruling
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.proposal import Fate
from quantwatch.flow.run import Trigger
from quantwatch.flow.state import Axis, Human, Routing
from quantwatch.flow.verdict import Quality
from quantwatch.record.columns import Choice, Document, Figure, Moment, Packed, Words

APPLICATION = 0x71776174
"""`qwat` in the header of the file: tells our files from other programs' SQLite files."""


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

TOKEN_EVIDENCE = Table(
    "token_evidence",
    SCHEMA,
    Column("run", Words, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("place", Integer, primary_key=True, autoincrement=False),
    _count("measured"),
    *(_words(name) for name in ("tokenizer", "prompt_id")),
    Column("kl_mean", Figure),
    Column("document", Packed, nullable=False),
)
"""The prompts whose tokens are kept of a run; place: 0 is the worst. measured: of how many. tokenizer: whose ids.

document: the form of flow/tokens_json.prompt_json.
"""

TOKEN_TEXTS = Table(
    "token_texts",
    SCHEMA,
    Column("tokenizer", Words, primary_key=True),
    Column("id", Integer, primary_key=True, autoincrement=False),
    _document("text"),
)
"""What an id of a tokenizer means by itself; as JSON, since it may be any text."""

KEPT = ("transitions", "decisions")
"""Tables whose rows are added and pruned, and never changed."""
