"""A pool of three under storms, a baseline that is wrong at times, a spare that is, people, restarts and a bad gateway.

The judge, the flows and the store are the real ones, as in test_three_axes.py, whose life of the daemon this takes up.
Whatever happens, in whatever order:

- in a storm nothing leaves but by a person's yes to the whole pool, or up to the cap where the pool is set to that and
  the nodes are proven to be at fault;
- the last backend never leaves, unless a verified fallback stands in for it;
- one yes leads to one order for each member, each under a decision of its own, and never to a second;
- what is in memory is in the store, every change of the pool's state follows the one before, and it ends.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from flows.test_three_axes import NAMES, PERIOD, Life, Table, watchlist
from quantwatch.errors import InputError, NodeUnreachable
from quantwatch.flow.check import Check
from quantwatch.flow.decision import Action, Order, Origin, PoolMode
from quantwatch.flow.identity import Identity
from quantwatch.flow.load import Load
from quantwatch.flow.pool import OnFleetDegraded, PoolState, whole
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.report import Report
from quantwatch.flow.run import RunRecord, Trigger
from quantwatch.flow.state import AWAY, Axis, Human, Routing
from quantwatch.flow.verdict import Quality
from quantwatch.flow.word import Word
from quantwatch.flows.approve import approve, reject
from quantwatch.flows.cycle import Ran
from quantwatch.flows.generation import Generation
from quantwatch.flows.memory import Memory, Pair
from quantwatch.flows.release import release
from quantwatch.flows.resume import look
from quantwatch.flows.watched import Watchlist
from quantwatch.flows.words import hold
from quantwatch.judge.brake import allowed
from quantwatch.probe.contract import Prober
from quantwatch.record.archive import Archive
from support.watching import HandClock

SHARE = 0.34
COOLDOWN = 1200.0
SOUND = st.sampled_from([True, True, None, False])
FAULTS = st.sampled_from([None, None, "down", "lost", "refused"])


class Spare:
    """The full-precision server: the yardstick, and who takes over. sound: what a self-check of it says.

    new: it was never met, so nothing has proven it. proofs: when it was found sound.
    """

    def __init__(self) -> None:
        self.sound: bool | None = True
        self.new = False
        self.proofs: set[datetime] = set()
        self.waiting = 0.0
        self.down = False

    @property
    def ready(self) -> bool:
        """Whether it can take over; that it has moved just now is nothing that anybody knows yet."""
        return not self.down and self.waiting <= 4

    def check(self, clock: HandClock) -> Check:
        now, trouble = clock.now(), "it moved" if self.sound is False else None
        if self.sound:
            self.proofs.add(now)
        return Check(now, sound=self.sound, trouble=trouble, thorough=True, new=self.new)

    async def identify(self) -> Identity:
        if self.down:
            raise NodeUnreachable("nobody answers", node="baseline")
        return Identity("baseline", "http://baseline", "m")

    async def load(self) -> Load | None:
        return Load(running=0.0, waiting=self.waiting, kv_usage=0.1)


class StormyLife(Life):
    """A life that looks at the pool after every run, as the daemon does."""

    def __init__(self, folder: Path, clock: HandClock, table: Table, mode: PoolMode, **given: Any) -> None:
        self.spare: Spare = given.pop("spare")
        on: OnFleetDegraded = given.pop("on")
        super().__init__(folder, clock, table, mode, **given)
        self.watch.generation.watchlist = pool_of(mode, on, self.spare)
        self.watch.prover = self.prove

    async def prove(self, _: Generation, memory: Memory, guilty: Collection[Pair]) -> None:
        for pair in guilty:
            memory.heed(pair, self.spare.check(self.clock))

    async def run(self, name: str, quality: Quality, process: float, trigger: Trigger = Trigger.SCHEDULE) -> None:
        target = self.watch.watchlist.targets[name]
        wanted, now = target.sets["letters"], self.clock.now()
        node = Identity(name, f"http://{name}", "m", version="1", started=process)
        check = self.spare.check(self.clock)
        measured = check.sound or check.new
        found = Quality.INVALID if quality is Quality.DEGRADED and not measured else quality
        record = RunRecord(f"r-{now.timestamp():.3f}", name, "letters", "chat", trigger, now, 0.0, found, "it is so")
        record = replace(record, basis=f"b-{process}", limits=wanted.limits_digest, node=node)
        await self.watch.turns.digest(Ran(record, check, Report(None, (), complete=True)), wanted, self.turn)
        await self.watch.turns.storms.look("chat")
        await self.watch.turns.decider.decide(name)
        await self.settle()


def pool_of(mode: PoolMode, on: OnFleetDegraded, spare: Spare) -> Watchlist:
    whole_list = watchlist(mode)
    pool = whole_list.pools["chat"]
    rules = replace(
        pool.rules, max_isolated=SHARE, storm_share=0.5, storm_cooldown_seconds=COOLDOWN, on_fleet_degraded=on
    )
    pool = replace(pool, rules=rules, fallback="baseline", fallback_name="fp16")
    return replace(whole_list, baseline=cast("Prober", spare), pools={"chat": pool})


class StormPaths(RuleBasedStateMachine):
    """What can happen to a pool of three that goes bad together."""

    names = st.lists(st.sampled_from(NAMES), min_size=1, unique=True)

    @initialize(mode=st.sampled_from([PoolMode.ENFORCE, PoolMode.APPROVE]), on=st.sampled_from(OnFleetDegraded))
    def start(self, mode: PoolMode, on: OnFleetDegraded) -> None:
        shm = Path("/dev/shm")  # noqa: S108, a folder in memory where there is one
        self.folder = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.clock, self.table, self.spare = HandClock(), Table(), Spare()
        self.mode, self.on, self.lives = mode, on, 0
        self.runner = asyncio.Runner()
        self.process = dict.fromkeys(NAMES, 1.0)
        self.met: dict[str, str] = {}
        self.broken: list[str] = []
        self.table.hear = self.heard
        self.live()
        self.cured(list(NAMES))

    def live(self) -> None:
        given = {"number": self.lives, "spare": self.spare, "on": self.on}
        self.life = StormyLife(self.folder, self.clock, self.table, self.mode, **given)
        self.do(self.life.begin())

    def do(self, what: Any) -> Any:
        return self.runner.run(what)

    def say(self, what: Any) -> Any:
        try:
            return self.do(what)
        except InputError:
            return None
        finally:
            self.do(self.life.settle())

    def heard(self, order: Order) -> None:
        try:
            self.may(order)
        except AssertionError as exc:
            self.broken.append(f"{order.action} {order.target}: {exc}")

    def may(self, order: Order) -> None:
        """Hold every call against what must never be; the first of a decision against the moment it was made."""
        assert order.decision in self.life.watch.outbox._intents, "a call for a decision that has ended"
        state = self.life.memory.target_state(order.target, "chat")
        assert state.human is not Human.HELD
        first = order.decision not in self.met
        assert self.met.setdefault(order.decision, order.target) == order.target, "one decision for two targets"
        if order.action is Action.RELEASE:
            assert state.owner is not None, "a release of what is not ours"
            return
        if not first:
            return
        left = [one for one in NAMES if one != order.target and not self.table.isolated[one]]
        assert left or self.spare.ready, "the last backend leaves, and nobody stands in for it"
        stands = self.life.memory.storms["chat"]
        away = sum(one.routing in AWAY for one in self.states())
        if order.origin is Origin.VERDICTS:
            free = stands.degraded and self.on is OnFleetDegraded.UP_TO_CAP
            assert stands.state is PoolState.HEALTHY or free, f"in a storm: {stands}"
            assert self.mode is PoolMode.ENFORCE
            assert away <= allowed(len(NAMES), SHARE), "more than the cap"
        else:
            assert order.origin is Origin.APPROVED
            assert self.mode in (PoolMode.ENFORCE, PoolMode.APPROVE)
            assert stands.proven in self.spare.proofs, "by a yardstick that is not proven"
        assert not any(one.covers(order.target, "chat", now=self.clock.now()) for one in self.life.memory.pauses)

    # What runs find

    @rule(names=names)
    def goes_bad(self, names: list[str]) -> None:
        """Members breach, all of them once and then all of them again."""
        self.table.fault = None
        for trigger in (Trigger.SCHEDULE, Trigger.CONFIRM):
            self.clock.time += 30
            for name in names:
                self.do(self.life.run(name, Quality.DEGRADED, self.process[name], trigger))

    @rule()
    def all_go_bad(self) -> None:
        self.goes_bad(list(NAMES))

    @rule(
        names=names,
        then=st.sampled_from(["nothing", "loaded", "down", "moved", "calms"]),
        yes=st.sampled_from([True, True, False]),
        mode=st.sampled_from([PoolMode.ENFORCE, PoolMode.APPROVE]),
        on=st.sampled_from([OnFleetDegraded.APPROVE, *OnFleetDegraded]),
    )
    def rollout(self, names: list[str], then: str, *, yes: bool, mode: PoolMode, on: OnFleetDegraded) -> None:
        """A pool that was whole and well goes bad, perhaps the baseline with it, and a person answers."""
        self.table.fault = None
        self.spare_recovers()
        self.resumes()
        self.reload(mode, on)
        for name in NAMES:
            self.speaks(name, "release")
        self.cured(list(NAMES))
        self.goes_bad(list(NAMES) if then != "calms" else names)
        if then == "calms":
            self.cured(names[1:])
            self.goes_bad(names[:1])
        moved, full = then == "moved", 9.0 if then == "loaded" else 0.0
        self.spare_changes(sound=not moved, waiting=full, down=then == "down")
        if yes and self.waiting() is not None:
            self.says_yes()

    @rule(on=st.sampled_from(OnFleetDegraded))
    def wrong_baseline(self, on: OnFleetDegraded) -> None:
        """Everybody breaches by a baseline that nothing has proven."""
        self.reload(PoolMode.ENFORCE, on)
        self.cured(list(NAMES))
        self.spare_changes(sound=None, waiting=0.0, down=False)
        self.goes_bad(list(NAMES))
        assert self.life.memory.storms["chat"].state is not PoolState.FLEET_DEGRADED

    @rule(names=names)
    def cured(self, names: list[str]) -> None:
        for name in names:
            self.process[name] += 1
        self.well(names)

    def well(self, names: Iterable[str]) -> None:
        for _ in range(3):
            self.clock.time += 60
            for name in names:
                self.do(self.life.run(name, Quality.OK, self.process[name]))

    @rule(name=st.sampled_from(NAMES), quality=st.sampled_from(Quality))
    def one_run(self, name: str, quality: Quality) -> None:
        self.clock.time += 1
        self.do(self.life.run(name, quality, self.process[name]))

    @rule(
        sound=st.sampled_from([True, True, None, False]), waiting=st.sampled_from([0.0, 0.0, 9.0]), down=st.booleans()
    )
    def spare_changes(self, sound: bool | None, waiting: float, down: bool) -> None:
        self.spare.sound, self.spare.waiting, self.spare.down, self.spare.new = sound, waiting, down, sound is None

    @rule()
    def spare_recovers(self) -> None:
        self.spare_changes(sound=True, waiting=0.0, down=False)

    # The clock, the gateway and the daemon's own lives

    @rule(
        fault=st.sampled_from([None, None, "down", "lost", "refused"]),
        seconds=st.sampled_from([5.0, PERIOD, COOLDOWN, 4000.0]),
    )
    def time_passes(self, fault: str | None, seconds: float) -> None:
        self.table.fault = fault
        self.do(self.life.advance(seconds))

    @rule()
    def restart(self) -> None:
        self.do(self.life.beat())  # closes what another configuration has ended; a restart would close it too
        before = (self.life.memory.kept, self.life.memory.proposals)
        self.do(self.life.end())
        self.lives += 1
        self.live()
        if all(one.raging is not None for one in before[0].values()) and before[0] == self.life.memory.kept:
            assert self.life.memory.proposals == before[1], "asked anew, or forgotten, over a restart"

    @rule(mode=st.sampled_from([PoolMode.ENFORCE, PoolMode.ENFORCE, *PoolMode]), on=st.sampled_from(OnFleetDegraded))
    def reload(self, mode: PoolMode, on: OnFleetDegraded) -> None:
        self.mode, self.on = mode, on
        self.life.watch.generation.watchlist = pool_of(mode, on, self.spare)
        self.do(self.life.watch.outbox.renew())
        self.do(self.life.settle())

    # People

    def waiting(self) -> Proposal | None:
        return self.life.memory.proposals.get(whole("chat"))

    @precondition(lambda self: self.waiting() is not None)
    @rule()
    def says_yes(self) -> None:
        """Everything that follows is under a decision of its own, and the same yes leads to nothing more."""
        one = self.waiting()
        assert one is not None
        if self.say(approve(self.life.watch, one.decision, author="ada")) is not None:
            assert self.say(approve(self.life.watch, one.decision, author="bob")) is None
            assert one.decision not in self.met, "an order under the id of a whole pool's proposal"

    @precondition(lambda self: self.waiting() is not None)
    @rule()
    def says_no(self) -> None:
        one = self.waiting()
        assert one is not None
        self.say(reject(self.life.watch, one.decision, author="ada", reason="x"))
        assert self.waiting() is None

    @rule(name=st.sampled_from(NAMES), word=st.sampled_from(["hold", "release"]))
    def speaks(self, name: str, word: str) -> None:
        said = Word(name, "ada", "x")
        self.say((hold if word == "hold" else release)(self.life.watch, said))

    @rule(paused=st.sampled_from([True, False, False]))
    def pauses(self, paused: bool) -> None:
        if paused:
            self.do(self.life.people.pause("pool:chat", reason="x", author="bob", seconds=1800.0))
            self.do(self.life.settle())
        else:
            self.resumes()

    def resumes(self) -> None:
        for one in list(self.life.memory.pauses):
            self.do(self.life.people.resume(one.id, author="bob"))

    # What always holds

    @invariant()
    def no_call_was_wrong(self) -> None:
        assert getattr(self, "broken", []) == []

    @invariant()
    def the_store_knows_what_memory_knows(self) -> None:
        if hasattr(self, "life"):
            store, memory = self.life.store, self.life.memory
            assert {one.pool: one for one in store.pools()} == memory.kept
            assert {one.target: one for one in store.proposals()[0]} == memory.proposals
            assert {one.target: one for one in store.target_states()} == memory.targets

    @invariant()
    def a_state_and_its_reasons_agree(self) -> None:
        for one in self.life.memory.storms.values() if hasattr(self, "life") else ():
            storm = one.state is not PoolState.HEALTHY
            assert (one.began is not None) == storm
            assert ((one.raging is not None) != (one.until is not None)) == storm
            assert one.state is not PoolState.FLEET_DEGRADED or one.proven in self.spare.proofs

    def states(self) -> list[Any]:
        return list(self.life.memory.targets.values())

    def teardown(self) -> None:
        if not hasattr(self, "life"):
            return
        try:
            self.way_out()
        finally:
            self.do(self.life.end())
            self.runner.close()
            shutil.rmtree(self.folder)

    def way_out(self) -> None:
        """With sound nodes, a sound baseline and time the pool is well and whole again."""
        self.table.fault = None
        self.spare_recovers()
        self.resumes()
        self.reload(PoolMode.ENFORCE, self.on)
        self.do(self.life.advance(7200.0))
        for name in NAMES:
            self.speaks(name, "release")
        self.cured(list(NAMES))
        self.do(self.life.advance(7200.0))
        self.do(look(self.life.watch))
        self.cured(list(NAMES))
        self.do(self.life.advance(10.0))
        assert self.life.memory.storms["chat"].state is PoolState.HEALTHY
        assert self.life.memory.proposals == {}
        for state in self.states():
            assert (state.routing, state.human) == (Routing.IN, Human.NONE), state
        with Archive.open(self.folder / "q.db") as archive:
            changes = [one for one in archive.timeline(target=whole("chat"), limit=None)[::-1] if one.axis is Axis.POOL]
        states = [PoolState.HEALTHY.value, *(one.new for one in changes)]
        assert [one.old for one in changes] == states[:-1]
        assert states[-1] == PoolState.HEALTHY


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
def test_no_path_through_a_storm_breaks_a_promise() -> None:
    run_state_machine_as_test(StormPaths, settings=settings(max_examples=20, stateful_step_count=12, deadline=None))
