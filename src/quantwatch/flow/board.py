"""Everything that is shown, as one frozen picture: for /metrics, /verdict, the pages and `quantwatch status`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from quantwatch.flow.decision import PoolMode
from quantwatch.flow.handshake import Handshake
from quantwatch.flow.identity import Identity
from quantwatch.flow.load import Load
from quantwatch.flow.pool import PoolStanding
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.reference import ReferenceStanding
from quantwatch.flow.state import Pause, SetState, TargetState
from quantwatch.flow.verdict import Limit, Metric, Quality


@dataclass(frozen=True, slots=True)
class SetBoard:
    """One target on one task set.

    numbers: the last run that gave numbers, in the form of flow/as_json.set_json; empty before the first. success:
    when that run ended. period: the longest gap between two runs in seconds. fresh: whether the state still counts.
    loads: how busy the target was before and after its latest run. since: when the verdict that counts became what it
    is; None where it never changed.
    """

    state: SetState
    limits: Mapping[Metric, Limit]
    period: float
    fresh: bool
    numbers: Mapping[str, Any] = field(default_factory=dict)
    success: datetime | None = None
    loads: tuple[Load | None, Load | None] = (None, None)
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class TargetBoard:
    """One target. quality: the worst fresh task set. left: no longer in the configuration, kept for its isolation.

    verified: whether the gateway showed that our isolation took effect; None where it is not out by us.
    hold_until: before when it does not come back; None where it is not out by us. probation_until: None where it is
    not on probation.
    weight: percent of its own weight that it had at the gateway at the last look, None where nobody weighs.
    counts: the load with what it counts of its own numbers, see Memory; None where it counts nothing.
    """

    state: TargetState
    quality: Quality
    reason: str
    sets: tuple[SetBoard, ...]
    scheme: str = ""
    gateway_name: str = ""
    identity: Identity | None = None
    handshake: Handshake | None = None
    running: str | None = None
    queued: int = 0
    left: bool = False
    hold_until: datetime | None = None
    probation_until: datetime | None = None
    weight: int | None = None
    verified: bool | None = None
    counts: Load | None = None


WELL = PoolStanding("")
"""Of a pool about which nothing more is known."""


@dataclass(frozen=True, slots=True)
class TaskSetBoard:
    """One task set as it is asked. digest: of its prompts. prompts: how many there are. draw: how many a run draws."""

    name: str
    digest: str
    prompts: int
    draw: int
    k: int
    mode: ProbeMode


@dataclass(frozen=True, slots=True)
class PoolBoard:
    """One pool. allowed: how many of its targets may be isolated at once. storm: it is not healthy as a whole.

    missing: targets in traffic on record that get none by the gateway's own list; None where that is not known.
    rungs: of its ladder, the cheapest first; empty without. rung: the one that the traffic is on, None where nobody of
    it is in. stands: where it stands as a whole, and why.
    """

    name: str
    mode: PoolMode
    targets: int
    isolated: int
    allowed: int
    storm: bool = False
    missing: tuple[str, ...] | None = None
    rungs: tuple[str, ...] = ()
    rung: str | None = None
    stands: PoolStanding = WELL


@dataclass(frozen=True, slots=True)
class BaselineBoard:
    """The yardstick. up: whether it answered in the latest run. sound: whether it still gives its stored answers.

    Both are None when that is not known. references: where its answers to each task set come from, as far as that was
    looked at. answers: whether it answered the latest self-check of enrolled answers; None without one.
    """

    identity: Identity | None = None
    up: bool | None = None
    sound: bool | None = None
    trouble: str | None = None
    checked: datetime | None = None
    drift: float | None = None
    references: tuple[ReferenceStanding, ...] = ()
    answers: bool | None = None


@dataclass(frozen=True, slots=True)
class SelfBoard:
    """quantwatch itself. reload_ok: whether the configuration on disk is the one that runs; reloaded: since when.

    restored: the store has been read. store_trouble: why nothing can be written, None when it can. unwritten: runs
    that wait for the store. open_intents: orders not settled yet. lag: seconds that the event loop was late at worst.
    notices_waiting: by channel, what it has yet to be told.
    """

    started: datetime
    config_digest: str
    reload_ok: bool
    reloaded: datetime
    restored: bool = False
    store_trouble: str | None = None
    unwritten: int = 0
    open_intents: int = 0
    lag: float = 0.0
    gateway_trouble: str | None = None
    notices_waiting: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Board:
    """The whole picture at one moment."""

    own: SelfBoard
    baseline: BaselineBoard
    targets: tuple[TargetBoard, ...] = ()
    pools: tuple[PoolBoard, ...] = ()
    pauses: tuple[Pause, ...] = ()
    proposals: tuple[Proposal, ...] = ()
    task_sets: tuple[TaskSetBoard, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether configuration, restored state and store are there."""
        return self.own.restored and self.own.store_trouble is None

    def target(self, name: str) -> TargetBoard | None:
        """A target by its name."""
        return next((one for one in self.targets if one.state.target == name), None)
