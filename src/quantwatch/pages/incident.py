"""The nouns of an incident report: what happened, by how much against which limit, what was done, what to try next."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from quantwatch.flow.tokens import PromptsShown, TokensSeen
from quantwatch.flow.verdict import BREACHES, GOOD, Quality
from quantwatch.pages.advice import Advice
from quantwatch.record.cases import OrderCount, PairCount, Point
from quantwatch.record.decisions import StoredDecision
from quantwatch.record.differences import Difference
from quantwatch.record.documents import StoredRun


class Kind(StrEnum):
    """What an event of a timeline is."""

    RUN = "run"
    CHANGE = "change"
    DECISION = "decision"
    PROPOSAL = "proposal"
    ORDER = "order"
    OUTCOME = "outcome"
    NOTICE = "notice"


class Tone(StrEnum):
    """How a quality or an outcome is coloured; every place says it in words as well."""

    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    PLAIN = "plain"


def tone_of(quality: Quality) -> Tone:
    """Of a quality: a warning and what cannot be told are no breach, and not good either."""
    if quality in BREACHES:
        return Tone.BAD
    return Tone.GOOD if quality in GOOD and quality is not Quality.WARN else Tone.WARN


@dataclass(frozen=True, slots=True)
class Phrase:
    """What can be said in every language, and the free sentence that was stored with it.

    key: of its words. values: by name, as they are. terms: by name, the beginning of a key and a code that ends it;
    a code without a word of its own is told as it is. detail: a sentence of the daemon, in English, or a person's own
    words where it is spoken.
    """

    key: str
    values: Mapping[str, str] = field(default_factory=dict)
    terms: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    detail: str = ""
    spoken: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a timeline. said: in English. by: who did it. run, decision: where more stands.

    acted: it is a decision that was to be carried out. phrases: the same for every language.
    """

    at: datetime
    kind: Kind
    said: str
    tone: Tone = Tone.PLAIN
    by: str = "quantwatch"
    run: str | None = None
    decision: str | None = None
    acted: bool = False
    phrases: tuple[Phrase, ...] = ()


@dataclass(frozen=True, slots=True)
class Number:
    """A number held against its limits. low, high: its interval. part: the slice that it is about, None for the whole.

    warn, critical: None where that level is off. verdict: None where it carries no limit. Smaller is worse for top-1
    agreement alone.
    """

    metric: str
    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    warn: float | None = None
    critical: float | None = None
    verdict: Quality | None = None
    reason: str = ""
    part: str | None = None

    @property
    def times(self) -> float | None:
        """How many times its critical limit it is, None where that says nothing."""
        usable = self.value is not None and self.critical is not None and self.critical > 0
        return self.value / self.critical if usable and self.value is not None and self.critical else None


@dataclass(frozen=True, slots=True)
class Part:
    """A slice of a run. times: its mean KL over that of the whole run, None where either is missing or 0."""

    dimension: str
    value: str
    prompts: int
    positions: int
    kl: float | None
    low: float | None
    high: float | None
    perplexity_ratio: float | None
    top1: float | None
    times: float | None

    @property
    def name(self) -> str:
        """`language zh`."""
        return f"{self.dimension} {self.value}"


@dataclass(frozen=True, slots=True)
class Exchange:
    """What was sent to the gateway and what it answered, without secrets. sent: field and value.

    result, detail, settled: None while it is open. doubt: a call may have taken effect all the same.
    """

    decision: str
    opened: datetime
    attempts: int
    sent: tuple[tuple[str, str], ...]
    result: str | None = None
    detail: str | None = None
    settled: datetime | None = None
    doubt: bool = False


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What is known of the baseline. answers: how many of its own are kept for these prompts; first, last: when.

    doubts: sentences that speak against it, from objections and notices.
    """

    answers: int = 0
    first: datetime | None = None
    last: datetime | None = None
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How many runs, breaches, decisions and changes of its time a report does not list: the oldest of each.

    Of the runs around an incident it lists so many before and after the one in question.
    """

    runs: int = 0
    breaches: int = 0
    decisions: int = 0
    changes: int = 0

    def __bool__(self) -> bool:
        return self.runs + self.breaches + self.decisions + self.changes > 0


@dataclass(frozen=True, slots=True)
class Incident:
    """Everything that a report tells of a run, and of the decision that it led to.

    decision: the one that was asked for, or the first that rests on the run; run: its evidence, None where a person's
    word or a pool has none, or it is pruned. course: runs of the pair, oldest first. sound: the last good run before.
    changed: what differs since that, none without one. tokens: None where nothing was kept, or
    nothing may be shown. shown: how much of golden prompts may be seen. left_out: of the timeline.
    """

    made: datetime
    version: str
    subject: str
    target: str
    task_set: str | None
    pool: str
    quality: Quality | None
    headline: str
    run: StoredRun | None
    decision: StoredDecision | None
    decisions: tuple[StoredDecision, ...]
    timeline: tuple[Event, ...]
    numbers: tuple[Number, ...]
    parts: tuple[Part, ...]
    course: tuple[Point, ...]
    sound: StoredRun | None
    changed: tuple[Difference, ...]
    exchanges: tuple[Exchange, ...]
    yardstick: Yardstick
    tokens: TokensSeen | None
    shown: PromptsShown
    left_out: LeftOut = LeftOut()
    advice: tuple[Advice, ...] = ()

    def advised(self, advice: tuple[Advice, ...]) -> "Incident":
        """The same with what to try next."""
        return replace(self, advice=advice)


@dataclass(frozen=True, slots=True)
class Period:
    """What happened between two moments: since <= at < until. Of very long lists the newest entries are here.

    orders: what came of all decisions, also of those that are not listed.
    """

    made: datetime
    version: str
    since: datetime
    until: datetime
    pairs: tuple[PairCount, ...]
    decisions: tuple[StoredDecision, ...]
    breaches: tuple[Point, ...]
    timeline: tuple[Event, ...]
    orders: OrderCount
    left_out: LeftOut = LeftOut()

    @property
    def breached(self) -> int:
        """All breaches, also those that are not listed."""
        return sum(one.breaches for one in self.pairs)

    @property
    def targets(self) -> int:
        """How many targets breached."""
        return len({one.target for one in self.pairs if one.breaches})
