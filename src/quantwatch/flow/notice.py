"""What people are told: matters that stand or are over, and the notices that tell of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from quantwatch.flow.verdict import Finding


class Severity(StrEnum):
    """How urgent a matter is; a channel may leave the lesser ones out."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for the least."""
        return list(Severity).index(self)


class Topic(StrEnum):
    """What a matter is about.

    QUALITY: a confirmed breach of a task set. ROUTING: a target is away, or on its way. CONTRADICTED: record and
    gateway differ. HELD_BACK: an isolation is wanted and something objects. WOULD_HAVE: only the mode objects. STORM:
    too many of a pool breach at once. PAUSED: quantwatch paused something itself. ORDER: an order to the gateway came
    to nothing. PROPOSAL: an action waits for a person. WORD: a person has set a target aside. BASELINE_MOVED,
    BASELINE_UNPROVEN: the yardstick. REFERENCE: enrolled answers cannot be used. TEST: a person tries a channel.
    """

    QUALITY = "quality"
    ROUTING = "routing"
    CONTRADICTED = "contradicted"
    HELD_BACK = "held_back"
    WOULD_HAVE = "would_have"
    STORM = "storm"
    PAUSED = "paused"
    ORDER = "order"
    PROPOSAL = "proposal"
    WORD = "word"
    BASELINE_MOVED = "baseline_moved"
    BASELINE_UNPROVEN = "baseline_unproven"
    REFERENCE = "reference"
    TEST = "test"


SEVERITY: Mapping[Topic, Severity] = MappingProxyType(
    {
        Topic.QUALITY: Severity.CRITICAL,
        Topic.ROUTING: Severity.WARNING,
        Topic.CONTRADICTED: Severity.CRITICAL,
        Topic.HELD_BACK: Severity.CRITICAL,
        Topic.WOULD_HAVE: Severity.INFO,
        Topic.STORM: Severity.CRITICAL,
        Topic.PAUSED: Severity.WARNING,
        Topic.ORDER: Severity.CRITICAL,
        Topic.PROPOSAL: Severity.WARNING,
        Topic.WORD: Severity.WARNING,
        Topic.BASELINE_MOVED: Severity.CRITICAL,
        Topic.BASELINE_UNPROVEN: Severity.WARNING,
        Topic.REFERENCE: Severity.WARNING,
        Topic.TEST: Severity.INFO,
    }
)
"""One for each topic: a matter keeps its severity, and with it those who hear of it, from beginning to end."""


@dataclass(frozen=True, slots=True)
class Matter:
    """One thing that people want to know of, as it is now.

    subject: with the topic, what tells it from others: a target, a task set of a target, a pool. state: another one of
    the same matter is told anew. standing: False once it is over. reason, done: sentences; what was found, and what
    quantwatch did about it.
    """

    topic: Topic
    subject: str
    state: str
    reason: str
    standing: bool = True
    done: str = ""
    target: str | None = None
    pool: str | None = None
    task_set: str | None = None
    run: str | None = None
    decision: str | None = None
    evidence: tuple[Finding, ...] = ()

    @property
    def key(self) -> str:
        """The same for every state of one matter."""
        return f"{self.topic}:{self.subject}"

    @property
    def severity(self) -> Severity:
        """How urgent it is."""
        return SEVERITY[self.topic]


@dataclass(frozen=True, slots=True)
class Notice:
    """A matter as it is told. id: the same on every try. at: when it came to this state. since: when it began."""

    id: str
    at: datetime
    since: datetime
    matter: Matter
