"""A target's turn: run, advance its state, write it down, say it in one sentence, and decide."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from quantwatch.errors import StoreError
from quantwatch.expose.meters import Meters
from quantwatch.flow.decision import Lane
from quantwatch.flow.run import RunRecord, Trigger
from quantwatch.flow.state import Routing, SetState
from quantwatch.flow.verdict import BREACHES, CANNOT_TELL, Quality
from quantwatch.flows.cycle import Ran, Turn, run_once
from quantwatch.flows.decide import Decider
from quantwatch.flows.forgive import forgive
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.late_tokens import late
from quantwatch.flows.memory import Memory
from quantwatch.flows.minimal import BUSY_RUNS, run_minimal
from quantwatch.flows.rollout import as_expected, expected, rollout_over
from quantwatch.flows.spans import begun, ended
from quantwatch.flows.storms import Storms
from quantwatch.flows.texts import Texts
from quantwatch.flows.watched import Watched, WatchedSet
from quantwatch.judge.streak import advance, confirm_now, lasting
from quantwatch.judge.threshold import name_of
from quantwatch.log import logger
from quantwatch.trace import root, step

log = logger()

GRACE = 3.0
"""How many times the run's own limit a whole turn may take before it is given up as hung."""


@dataclass(frozen=True, slots=True)
class Turns:
    """Makes turns. again: queues one more run. wanted: whether a target and task set are still configured.

    texts: what token ids mean, to be learned beside the runs.
    """

    memory: Memory
    keeper: Keeper
    meters: Meters
    storms: Storms
    again: Callable[[str, str, Trigger], object]
    wanted: Callable[[str, str], bool]
    heard: Callable[[Ran], None] = field(default=lambda _: None)
    texts: Texts = field(default_factory=Texts)

    @property
    def decider(self) -> Decider:
        """Who decides about targets."""
        return self.storms.decider

    def hearing(self, heard: Callable[[Ran], None]) -> "Turns":
        """The same, with somebody who hears of every run."""
        return replace(self, heard=heard)

    async def take(self, target: Watched, wanted: WatchedSet, *, trigger: Trigger, tools: Turn) -> None:
        """One whole turn. Never raises, so that no fault of one run ends a watch that lasts for months."""
        try:
            async with (
                asyncio.timeout(tools.timeout_seconds * GRACE),
                self.keeper.tokens.after(self.decider.orders.outbox.idle) as behind,
            ):
                with root(tools.tracer, "run", begun(target, wanted, trigger)) as span:
                    ran = await self._made(target, wanted, trigger, tools)
                    span.note(ended(ran.record))
                    self.heard(ran)
                    if not self.wanted(target.name, wanted.name):
                        return  # the configuration no longer asks for it, and its series are gone
                    behind.extend(late(ran.record, ran.tokens))
                    await self.digest(ran, wanted, tools)
                    with step("decide"):
                        await self.storms.look(target.pool)
                        await self.decider.decide(target.name)
                        await forgive(self.decider, target.name)
        except Exception:
            # One of the few broad handlers: a turn must not take the worker with it, and never counts against a node.
            self.meters.run_skipped(target.name, wanted.name, "crashed")
            log.exception("a run broke off by a fault in quantwatch", target=target.name, task_set=wanted.name)

    async def _made(self, target: Watched, wanted: WatchedSet, trigger: Trigger, tools: Turn) -> Ran:
        if trigger is Trigger.MINIMAL:
            basis = self.memory.set_state(target.name, wanted.name).basis
            return await run_minimal(target, wanted, tools, basis=basis)
        last = self.memory.checks.get((target.name, wanted.name))
        moved = last is not None and last.sound is False
        return await run_once(target, wanted, trigger, tools, suspicious=moved)

    async def digest(self, ran: Ran, wanted: WatchedSet, tools: Turn) -> SetState:
        """Take a run in: state, record, metrics, log; queue its confirmation where one is due."""
        ended = tools.clock.now()
        ran = as_expected(ran, expected(self.memory.pausing(ended), now=ended))
        record = ran.record
        old = self.memory.set_state(record.target, record.task_set)
        if record.trigger is Trigger.MINIMAL and record.quality is not Quality.CORRUPTED:
            state = old  # it can only find broken numbers, so without them nothing is known that was not before
        elif self._vouched_since(record):
            state = old  # what it measured was so before a person vouched for the target
        else:
            self._heed(ran, ended)
            counting = lasting(old, now=record.started, period_seconds=wanted.period_seconds)
            state = advance(
                counting, record, confirm_cycles=wanted.confirm_cycles, release_margin=wanted.release_margin
            )
        changes = self.memory.learn(record, state, ended)
        await self.keeper.remember(record, state, changes)
        self.texts.note(ran, tools.shown)
        self.meters.run_finished(record)
        for one in changes:
            self.meters.transition(one)
        rollout = rollout_over(self.memory.pausing(ended), record.target, record.pool, now=ended)
        say(record, state, rollout=rollout is not None)
        await self._worse(record, state)
        # One at most, also where no two runs count together.
        first = record.trigger not in (Trigger.CONFIRM, Trigger.MINIMAL)
        # A baseline that has just moved is checked again at once too: a moment's load must not stop everything.
        moved = ran.check.sound is False and not ran.check.enrolled
        if first and (moved or confirm_now(state, confirm_cycles=wanted.confirm_cycles)):
            self.again(record.target, record.task_set, Trigger.CONFIRM)
        if self.memory.often_busy(ran.record, busy=ran.busy, most=BUSY_RUNS):
            self.again(record.target, record.task_set, Trigger.MINIMAL)
        return state

    def _heed(self, ran: Ran, ended: datetime) -> None:
        """Take in what the run found out about the baseline."""
        if ran.record.baseline is not None:
            self.memory.baseline = ran.record.baseline
        self.memory.baseline_trouble = ran.report.trouble
        self.memory.silent = None if ran.report.trouble is None else ended
        self.memory.handshakes |= {one.target: one.handshake for one in ran.report.targets if one.handshake is not None}
        self.memory.heed((ran.record.target, ran.record.task_set), ran.check)

    async def _worse(self, record: RunRecord, state: SetState) -> None:
        """A target that turns out corrupted while it is out comes back as another process only, whyever it went."""
        if state.quality is not Quality.CORRUPTED:
            return
        async with self.decider.one_at_a_time:
            target = self.memory.targets.get(record.target)
            if target is None or target.owner is None or target.routing is not Routing.OUT:
                return
            worse = replace(target, lane=str(Lane.CORRUPTED), gone=state.process)
            if worse != target:
                self.memory.targets[record.target] = worse
                with contextlib.suppress(StoreError):  # it holds for this life at least
                    await self.keeper.write(lambda store: store.save_target(worse, ()))

    def _vouched_since(self, record: RunRecord) -> bool:
        """Whether a person has vouched for the target after a run began."""
        target = self.memory.targets.get(record.target)
        return target is not None and target.vouched is not None and record.started < target.vouched


def say(record: RunRecord, state: SetState, *, rollout: bool = False) -> None:
    """One sentence a run, with the two numbers that decided. rollout: that nothing can be told is expected then."""
    loud = record.quality in BREACHES or (record.quality in CANNOT_TELL - {Quality.SKIPPED} and not rollout)
    tell = log.warning if loud else log.info
    tell(
        f"{record.task_set} on {record.target}: {record.quality} ({decisive(record)})",
        target=record.target,
        task_set=record.task_set,
        run_id=record.id,
        trigger=str(record.trigger),
        quality=str(record.quality),
        counts_as=str(state.quality),
        breaches=state.breaches,
        seconds=round(record.seconds, 3),
    )


def decisive(record: RunRecord) -> str:
    """The value and the limit that decided, or the reason where no number did."""
    found = record.report.verdict.findings if record.report is not None else ()
    worst = next((one for one in found if one.quality is record.quality), None)
    if worst is None:
        return record.reason
    limit = worst.limit.critical if worst.quality in BREACHES else worst.limit.warn
    return f"{name_of(worst)} {worst.value:.4g}, limit {'none' if limit is None else f'{limit:g}'}"
