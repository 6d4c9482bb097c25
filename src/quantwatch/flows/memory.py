"""What the daemon knows right now: the states of the store in memory, and the latest numbers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from quantwatch.config.windows import WindowSettings
from quantwatch.flow.as_json import set_json
from quantwatch.flow.check import Check
from quantwatch.flow.decision import Action, Decision, Intent
from quantwatch.flow.fleet import Roll
from quantwatch.flow.handshake import Handshake
from quantwatch.flow.identity import Identity
from quantwatch.flow.load import Load, counting
from quantwatch.flow.pool import PoolStanding
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.reference import ReferenceStanding, SelfChecked
from quantwatch.flow.run import RunRecord
from quantwatch.flow.state import Axis, Pause, Routing, SetState, TargetState, Transition
from quantwatch.flow.verdict import BREACHES, Finding
from quantwatch.flows.moments import later, not_ahead, pool_later, target_later
from quantwatch.flows.windows import open_windows
from quantwatch.record.continuations import fingerprint
from quantwatch.record.store import Store

Pair = tuple[str, str]


@dataclass(slots=True)
class Memory:
    """Everything that outlives a reload of the configuration.

    checks: the latest self-check of the baseline by target and task set. told: what was last decided about each target,
    so that a wish that stands for hours is recorded once. proofs: the runs that proved breaches. baseline_trouble: why
    the baseline gave no answers in the latest run. silent: when a run or a self-check last found it so, None since it
    gave some. failures: orders in a row that came to nothing, by target.
    handshakes: the latest of each target.
    references, self_checks: by task set. baseline_answers: whether it answered the latest self-check of references.
    proposals: what waits for a person, by target. closed: the latest that does not any more, by target and action.
    held: what was last decided against acting, by target; None where nothing is asked for any more. ended: the latest
    order of each target that has ended. windows: of the configuration in force.
    rolls: what the gateway's own list said of each pool last. unkept: pauses of our own that are not written down yet.
    weights: percent of its own weight that each has at the gateway by the last look, the baseline among them. stepped:
    when each took its last step on a ladder in this life.
    storms: where each pool stands; kept: the same as it is in the store; checked: when the yardstick was last checked
    for a pool in a storm. yardsticks: by what each target was last found to breach on a task set, see yardstick_of.
    busy: how many runs in a row spared a busy target. loads: how busy a target was before and after its latest run.
    changed: when the quality of each pair changed last.
    counts: the load of each target that counts its own broken numbers from which a rise is a reason to look.
    """

    sets: dict[Pair, SetState] = field(default_factory=dict)
    targets: dict[str, TargetState] = field(default_factory=dict)
    numbers: dict[Pair, Mapping[str, Any]] = field(default_factory=dict)
    success: dict[Pair, datetime] = field(default_factory=dict)
    identities: dict[str, Identity] = field(default_factory=dict)
    handshakes: dict[str, Handshake] = field(default_factory=dict)
    storms: dict[str, PoolStanding] = field(default_factory=dict)
    kept: dict[str, PoolStanding] = field(default_factory=dict)
    checked: dict[str, datetime] = field(default_factory=dict)
    yardsticks: dict[Pair, str] = field(default_factory=dict)
    pauses: list[Pause] = field(default_factory=list)
    baseline: Identity | None = None
    baseline_trouble: str | None = None
    silent: datetime | None = None
    checks: dict[Pair, Check] = field(default_factory=dict)
    proofs: dict[Pair, RunRecord] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    told: dict[str, object] = field(default_factory=dict)
    proposals: dict[str, Proposal] = field(default_factory=dict)
    closed: dict[tuple[str, Action], Proposal] = field(default_factory=dict)
    held: dict[str, Decision | None] = field(default_factory=dict)
    ended: dict[str, Intent] = field(default_factory=dict)
    windows: Sequence[WindowSettings] = ()
    rolls: dict[str, Roll] = field(default_factory=dict)
    unkept: list[Pause] = field(default_factory=list)
    references: dict[str, ReferenceStanding] = field(default_factory=dict)
    self_checks: dict[str, SelfChecked] = field(default_factory=dict)
    baseline_answers: bool | None = None
    busy: dict[Pair, int] = field(default_factory=dict)
    loads: dict[Pair, tuple[Load | None, Load | None]] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    stepped: dict[str, datetime] = field(default_factory=dict)
    changed: dict[Pair, datetime] = field(default_factory=dict)
    counts: dict[str, Load] = field(default_factory=dict)

    def restore(self, store: Store, now: datetime) -> None:
        """Read back what an earlier life has left."""
        self.sets = {(one.target, one.task_set): one for one in store.set_states()}
        self.targets = {one.target: not_ahead(one, now) for one in store.target_states()}
        self.pauses = store.pauses(now)
        self.storms = {one.pool: one for one in store.pools()}
        self.kept = dict(self.storms)
        waiting, closed = store.proposals()
        self.proposals = {one.target: one for one in waiting}
        self.closed = {(one.target, one.action): one for one in closed}
        self.ended = {one.order.target: one for one in store.last_intents()}
        self.changed = store.last_changes()
        for pair, run in sorted(store.last_documents().items(), key=lambda one: one[1].ended):
            self.numbers[pair], self.success[pair] = run.numbers, run.ended
            if self.set_state(*pair).run == run.id:
                self.loads[pair] = run.loads
            self.counts |= counting(run.target, *self.loads.get(pair, run.loads))

    def pausing(self, now: datetime) -> list[Pause]:
        """Every pause that holds now: those that people or quantwatch made, and windows that are open."""
        made = [one for one in self.pauses if one.until is None or now < one.until]
        return [*made, *open_windows(self.windows, now)]

    def nothing_asked(self, target: str) -> None:
        """Forget what was decided against acting: something was done, or nothing is asked for any more."""
        self.told.pop(target, None)
        self.held[target] = None

    def set_state(self, target: str, task_set: str) -> SetState:
        """The state of a target on a task set; a new one where there is none."""
        return self.sets.get((target, task_set), SetState(target, task_set))

    def target_state(self, target: str, pool: str) -> TargetState:
        """The routing state of a target; in traffic where nothing is known."""
        return replace(self.targets.get(target, TargetState(target, pool)), pool=pool)

    def states_of(self, target: str, names: Iterable[str]) -> list[SetState]:
        """The states of a target on the named task sets."""
        return [self.set_state(target, name) for name in names]

    def learn(self, record: RunRecord, state: SetState, ended: datetime) -> list[Transition]:
        """Take a run in; gives what changed."""
        pair = (record.target, record.task_set)
        old = self.set_state(*pair)
        self.sets[pair] = state
        if state.proof == record.id:
            self.proofs[pair] = record
        elif state.proof is None:
            self.proofs.pop(pair, None)
        if record.quality in BREACHES and record.baseline is not None:
            self.yardsticks[pair] = self.yardstick_of(record.baseline, record.task_set)
        self.loads[pair] = record.load_before, record.load_after
        self.counts |= counting(record.target, *self.loads[pair])
        if record.node is not None:
            self.identities[record.target] = record.node
        if record.report is not None and record.report.divergence is not None:
            self.numbers[pair] = set_json(record.report)
            self.success[pair] = ended
        if old.quality is state.quality:
            return []
        self.changed[pair] = ended
        change = (str(old.quality), str(state.quality), state.reason)
        return [Transition(ended, record.target, Axis.QUALITY, *change, task_set=record.task_set, run=record.id)]

    def yardstick_of(self, baseline: Identity, task_set: str) -> str:
        """What tells one yardstick of a task set from another: the baseline, and its enrolled answers if any."""
        standing = self.references.get(task_set)
        return f"{fingerprint(baseline)} {standing.digest if standing is not None else ''}"

    def often_busy(self, record: RunRecord, *, busy: bool, most: int) -> bool:
        """Count runs in a row that spared a busy target; True from `most` on, until a minimal probe was made."""
        pair = (record.target, record.task_set)
        self.busy[pair] = self.busy.get(pair, 0) + 1 if busy else 0
        return self.busy[pair] >= most

    def heed(self, pair: Pair, check: Check) -> None:
        """Take a self-check in. One that gave nothing does not take a drift back; only a look at the answers does."""
        old = self.checks.get(pair)
        if old is None or old.sound is not False or check.sound is not None or check.new:
            self.checks[pair] = check

    def shift(self, seconds: float) -> None:
        """Move every moment by so many seconds, as the wall clock was: ages stay what they were."""
        by = timedelta(seconds=seconds)
        self.sets = {key: replace(one, at=later(one.at, by)) for key, one in self.sets.items()}
        self.targets = {key: target_later(one, by) for key, one in self.targets.items()}
        self.checks = {key: replace(one, at=one.at + by) for key, one in self.checks.items()}
        self.success = {key: at + by for key, at in self.success.items()}
        self.stepped = {key: at + by for key, at in self.stepped.items()}
        self.storms = {name: pool_later(one, by) for name, one in self.storms.items()}
        self.checked = {name: at + by for name, at in self.checked.items()}
        self.changed = {key: at + by for key, at in self.changed.items()}

    def findings(self, target: str, task_set: str) -> tuple[Finding, ...]:
        """What the run that proved a breach found; nothing when that was in an earlier life of the daemon."""
        record = self.proofs.get((target, task_set))
        return record.report.verdict.findings if record is not None and record.report is not None else ()

    def keep(self, pairs: Collection[Pair]) -> None:
        """Forget what was learned of pairs that are no longer configured, so that nothing old objects for ever."""
        self.checks = {pair: one for pair, one in self.checks.items() if pair in pairs}
        self.proofs = {pair: one for pair, one in self.proofs.items() if pair in pairs}
        self.references = {name: one for name, one in self.references.items() if name in {own for _, own in pairs}}
        self.busy = {pair: one for pair, one in self.busy.items() if pair in pairs}
        self.counts = {target: one for target, one in self.counts.items() if target in dict(pairs)}
        self.yardsticks = {pair: one for pair, one in self.yardsticks.items() if pair in pairs}

    def left_behind(self, configured: Iterable[str]) -> list[TargetState]:
        """Targets that are no longer configured and still out of traffic by our own decision."""
        known = set(configured)
        return [one for one in self.targets.values() if one.target not in known and one.routing is not Routing.IN]


def moved(
    old: TargetState, new: TargetState, *, reason: str, decision: str | None, at: datetime, author: str = "quantwatch"
) -> list[Transition]:
    """The transition from one routing state to another; none where it is the same."""
    if old.routing is new.routing:
        return []
    change = (str(old.routing), str(new.routing), reason)
    return [Transition(at, new.target, Axis.ROUTING, *change, decision=decision, author=author)]
