"""Where a target stands on the three recorded axes: quality, routing, and what a person has said."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from quantwatch.flow.verdict import Quality


class Routing(StrEnum):
    """The routing axis. CONTRADICTED: the gateway says otherwise than our record."""

    IN = "in"
    LEAVING = "leaving"
    OUT = "out"
    RETURNING = "returning"
    CONTRADICTED = "contradicted"


AWAY = frozenset({Routing.LEAVING, Routing.OUT, Routing.RETURNING, Routing.CONTRADICTED})
"""Where a target must not be counted on as a backend."""


class Human(StrEnum):
    """The human axis; anything but NONE wins over every automatic action."""

    NONE = "none"
    HELD = "held"
    FORCED_IN = "forced_in"
    FORCED_OUT = "forced_out"


@dataclass(frozen=True, slots=True)
class SetState:
    """The quality axis of one target on one task set.

    quality: what counts, after confirmation. last: what the latest run said. breaches, clean, undecided: runs in a row,
    the latest included. basis: what must stay equal for runs to be counted together (baseline, node process, prompts,
    k, mode, limits). run, at: the latest run and when it ended, None before the first. reason: its sentence. proof: the
    run that proved a breach, None without one. process: which process of the node the latest evidence is about. limits:
    digest of the limits that judged it.
    """

    target: str
    task_set: str
    quality: Quality = Quality.UNKNOWN
    last: Quality = Quality.UNKNOWN
    breaches: int = 0
    clean: int = 0
    undecided: int = 0
    basis: str = ""
    run: str | None = None
    at: datetime | None = None
    reason: str = "not measured yet"
    proof: str | None = None
    process: str | None = None
    limits: str = ""


@dataclass(frozen=True, slots=True)
class TargetState:
    """The routing and human axes of one target.

    owner: the decision that took it out of traffic; None when we did not. since: when routing last changed. ejections:
    how often it was isolated. gone: the process that was isolated (start time and version), for corrupted nodes, which
    come back only as another process. lane: why it was isolated. node, driver: under which name and through which
    driver it was isolated; a release goes the same way. human_author, human_reason, human_since, human_until: who said
    what the human axis holds, why, when, and until when; None without a word or, human_until, without an end. vouched:
    when a person last vouched for it; runs that began before prove nothing any more. well_since: since when it has
    been in traffic with nothing but clean results, as forgiveness counts it; None where it does not count.
    """

    target: str
    pool: str
    routing: Routing = Routing.IN
    human: Human = Human.NONE
    owner: str | None = None
    since: datetime | None = None
    ejections: int = 0
    gone: str | None = None
    lane: str | None = None
    node: str | None = None
    driver: str | None = None
    human_author: str | None = None
    human_reason: str | None = None
    human_since: datetime | None = None
    human_until: datetime | None = None
    vouched: datetime | None = None
    well_since: datetime | None = None


class Axis(StrEnum):
    """Which axis a transition belongs to."""

    QUALITY = "quality"
    ROUTING = "routing"
    HUMAN = "human"
    EJECTIONS = "ejections"


@dataclass(frozen=True, slots=True)
class Transition:
    """One change on one axis: from what to what, why, by whom. task_set: for the quality axis, None for the target."""

    at: datetime
    target: str
    axis: Axis
    old: str
    new: str
    reason: str
    task_set: str | None = None
    run: str | None = None
    decision: str | None = None
    author: str = "quantwatch"


ROLLOUT = "rollout:"
"""Begins the scope of a pause in which baseline or nodes are exchanged on purpose."""


REVIEW = timedelta(days=1)
"""After so long somebody should look again at a pause that does not end by itself."""


WINDOW = "window:"
"""Begins the id of a pause that the configuration makes, an open window. It is in no store, and nobody ends it."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A person's (or quantwatch's own) word that nothing may act. scope: `all`, `pool:NAME` or `target:NAME`.

    After `rollout:` a scope says as well that what it names is being exchanged, so that a change in it is expected.
    """

    id: str
    scope: str
    reason: str
    author: str
    since: datetime
    until: datetime | None = None

    def covers(self, target: str, pool: str, *, now: datetime) -> bool:
        """Whether the pause holds for this target now."""
        running = self.until is None or now < self.until
        return running and self.scope.removeprefix(ROLLOUT) in ("all", f"pool:{pool}", f"target:{target}")

    @property
    def review(self) -> datetime:
        """When somebody should look at it again at the latest: when it ends, or REVIEW after it began."""
        return self.since + REVIEW if self.until is None else self.until

    @property
    def window(self) -> bool:
        """Whether it is a window of the configuration."""
        return self.id.startswith(WINDOW)

    @property
    def said(self) -> str:
        """Who paused what, and why."""
        return f"{self.author} paused {self.scope}: {self.reason}"

    @property
    def rollout(self) -> bool:
        """Whether what the scope names is being exchanged on purpose."""
        return self.scope.startswith(ROLLOUT)

    def expects(self, *, now: datetime) -> bool:
        """Whether another baseline is expected now: only a rollout of everything exchanges that."""
        return self.scope == f"{ROLLOUT}all" and (self.until is None or now < self.until)
