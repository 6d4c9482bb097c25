"""Quality, routing and people's words together, under a gateway that lies, forgets and falls silent, and restarts.

The judge, the flows and the store are the real ones; nodes are replaced by what their runs would have found, and the
gateway by a table of who gets traffic. Whatever happens, in whatever order:

- quantwatch alone never takes the last node out of traffic, and nothing acts twice for one decision;
- nothing is released that was not isolated by quantwatch, and no owner is lost while a node is out;
- no order crosses a person's word, and in a pool of another mode than enforce none is given without a person;
- nothing returns by itself before its hold is over, and isolations are forgiven in traffic alone;
- memory and store agree, and from everywhere there is a way back to a pool that is whole.
"""

import asyncio
import functools
import shutil
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
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

from quantwatch.act.contract import Abilities, Seen, Unanswered
from quantwatch.errors import GatewayRefused, InputError
from quantwatch.expose.meters import Meters
from quantwatch.flow.board import SelfBoard
from quantwatch.flow.check import Check
from quantwatch.flow.decision import Action, Lane, Order, Origin, PoolMode
from quantwatch.flow.fleet import PoolRules
from quantwatch.flow.identity import Identity
from quantwatch.flow.prompt import ProbeMode, PromptSet
from quantwatch.flow.report import Report
from quantwatch.flow.run import RunRecord, Trigger
from quantwatch.flow.state import AWAY, Human, Routing, TargetState
from quantwatch.flow.tokens import PromptsShown
from quantwatch.flow.verdict import Quality
from quantwatch.flow.word import Word
from quantwatch.flows.approve import approve, reject
from quantwatch.flows.cycle import Ran, Turn
from quantwatch.flows.forgive import forgive
from quantwatch.flows.generation import Generation
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory
from quantwatch.flows.people import People
from quantwatch.flows.release import confirm_healthy, release
from quantwatch.flows.resume import look, resume
from quantwatch.flows.tend import tend
from quantwatch.flows.upkeep import end_pauses, retry_store
from quantwatch.flows.watch import Watch
from quantwatch.flows.watched import Watched, WatchedPool, WatchedSet, Watchlist
from quantwatch.flows.words import hold, isolate
from quantwatch.flows.yardstick import Yardstick
from quantwatch.judge.recovery import hold_ends
from quantwatch.probe.contract import Prober
from quantwatch.record.store import Store
from support.watching import HandClock

NAMES = ("a", "b", "c")
PERIOD = 600.0
HOLD, JITTER = 200.0, 0.5
NOBODY = cast("Prober", None)
FAULTS = ("down", "lost", "undone", "refused", "lies")


class Table:
    """A gateway: who is isolated, what it does with the next calls, and what it was asked. Stands in for a driver."""

    name = "table"
    abilities = Abilities(reads_back=True, proven=False, calls=True)

    def __init__(self) -> None:
        self.isolated = dict.fromkeys(NAMES, False)
        self.fault: str | None = None
        self.hear: Any = lambda _: None
        self.ours: set[str] = set()

    async def call(self, order: Order) -> str:
        self.hear(order)
        wish = order.action is Action.ISOLATE
        if self.fault == "refused":
            raise GatewayRefused("no")
        if self.fault == "down":
            raise Unanswered("nobody answers", arrived=False)
        if self.fault in (None, "lost"):
            self.isolated[order.node] = wish
        if self.fault in ("lost", "undone"):
            raise Unanswered("the answer was lost")
        return "done"

    async def observe(self, order: Order) -> Seen:
        if self.fault == "down":
            return Seen.UNKNOWN
        return Seen.ISOLATED if self.isolated[order.node] else Seen.ROUTABLE


def watchlist(mode: PoolMode) -> Watchlist:
    one = WatchedSet(
        "letters",
        cast("PromptSet", None),
        ProbeMode.ONE_TOKEN,
        k=5,
        draw=2,
        continuation_tokens=4,
        positions=4,
        confirm_cycles=2,
        period_seconds=PERIOD,
        act_on=frozenset(Lane),
        limits={},
    )
    rules = PoolRules(mode, max_isolated=0.67, actions_per_hour=1000, storm_share=1.0)
    pool = WatchedPool(
        "chat",
        rules,
        release_after=2,
        minimum_hold_seconds=HOLD,
        approval_seconds=3600.0,
        hold_jitter=JITTER,
        probation_seconds=300.0,
        forgive_after_seconds=900.0,
    )
    targets = {name: Watched(name, "int8", "chat", name, NOBODY, {"letters": one}) for name in NAMES}
    return Watchlist(NOBODY, targets, {"chat": pool})


@dataclass(frozen=True)
class Tools:
    """As much of a turn's tools as taking a run in needs."""

    clock: HandClock
    shown: PromptsShown = PromptsShown.IDS


class Life:
    """One life of the daemon over a store that outlives it."""

    def __init__(self, folder: Path, clock: HandClock, table: Table, mode: PoolMode, *, number: int = 0) -> None:
        self.clock, self.table = clock, table
        self.executor = ThreadPoolExecutor(1)
        self.memory, meters = Memory(), Meters()
        self.store = self.executor.submit(functools.partial(Store.open, folder / "q.db", clock=clock)).result()
        self.keeper = Keeper(self.store, self.executor, meters)
        self.turn = cast("Turn", Tools(clock))
        own = lambda: cast("SelfBoard", None)  # noqa: E731, nobody looks at the page
        generation = Generation(watchlist(mode), table, 3600.0, self.turn, close=_nothing)
        self.watch = Watch(generation, self.memory, self.keeper, meters, clock, Random(number), own=own)
        self.people = People(self.memory, self.keeper, cast("Yardstick", None), clock, Random(2))

    async def begin(self) -> None:
        await self.keeper.write(lambda store: self.memory.restore(store, self.clock.now()))
        await resume(self.watch)
        await self.settle()

    async def end(self) -> None:
        await self.watch.outbox.stop()
        await asyncio.get_running_loop().run_in_executor(self.executor, self.store.close)
        self.executor.shutdown()

    async def settle(self) -> None:
        """Wait until every order has ended or waits on the clock."""
        async with asyncio.timeout(60):
            while self._busy() > self.clock.sleeping:  # noqa: ASYNC110, what is waited for tells nobody
                await asyncio.sleep(0.0005)

    def _busy(self) -> int:
        return sum(one.get_name().startswith("order ") for one in asyncio.all_tasks())

    async def advance(self, seconds: float) -> None:
        end = self.clock.time + seconds
        await self.settle()
        while self.clock.wake_until(end):
            await self.settle()
        self.clock.time = max(self.clock.time, end)
        await self.beat()

    async def beat(self) -> None:
        """What the daemon does every few seconds."""
        end_pauses(self.memory, self.clock)
        await retry_store(self.keeper)
        self.watch.revive()
        await tend(self.watch)
        await self.settle()

    async def run(self, name: str, quality: Quality, process: float, trigger: Trigger = Trigger.SCHEDULE) -> None:
        """A run that found this, and the decision that follows."""
        target = self.watch.watchlist.targets[name]
        wanted, now = target.sets["letters"], self.clock.now()
        node = Identity(name, f"http://{name}", "m", version="1", started=process)
        id_ = f"r-{now.timestamp():.3f}"
        record = RunRecord(id_, name, "letters", "chat", trigger, now, 0.0, quality, f"it is {quality}")
        record = replace(record, basis=f"b-{process}", limits=wanted.limits_digest, node=node)
        ran = Ran(record, Check(now, sound=True), Report(None, (), complete=True))
        await self.watch.turns.digest(ran, wanted, self.turn)
        await self.watch.turns.decider.decide(name)
        await forgive(self.watch.turns.decider, name)
        await self.settle()


async def _nothing() -> None:
    pass


class ThreeAxes(RuleBasedStateMachine):
    """What can happen to a pool of three."""

    names = st.sampled_from(NAMES)

    @initialize(mode=st.sampled_from([PoolMode.ENFORCE, PoolMode.ENFORCE, PoolMode.APPROVE]))
    def start(self, mode: PoolMode) -> None:
        shm = Path("/dev/shm")  # noqa: S108, a folder in memory where there is one
        self.folder = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.clock, self.table, self.mode = HandClock(), Table(), mode
        self.runner = asyncio.Runner()
        self.process = dict.fromkeys(NAMES, 1.0)
        self.out: dict[str, TargetState] = {}
        self.count = dict.fromkeys(NAMES, 0)
        self.forced, self.lives = False, 0
        self.broken: list[str] = []
        self.table.hear = self.heard
        self.life = Life(self.folder, self.clock, self.table, mode)
        self.do(self.life.begin())
        self.all_well()

    def do(self, what: Any) -> Any:
        return self.runner.run(what)

    def heard(self, order: Order) -> None:
        """Hold every call to the gateway against what must never be; what breaks a task of its own is told later."""
        try:
            self.may(order)
        except AssertionError as exc:
            self.broken.append(f"{order.action} {order.target}: {exc}")

    @invariant()
    def no_call_was_wrong(self) -> None:
        assert getattr(self, "broken", []) == []

    def may(self, order: Order) -> None:
        memory, mode = self.life.memory, self.life.watch.watchlist.pools["chat"].rules.mode
        state = memory.target_state(order.target, "chat")
        assert order.decision in self.life.watch.outbox._intents, "a call for a decision that has ended"
        assert state.human is not Human.HELD
        if order.action is Action.RELEASE:
            assert state.owner is not None, "a release of what is not ours"
            assert order.target in self.table.ours
            assert state.human is not Human.FORCED_OUT
            ends = hold_ends(self.out.get(order.target, state), minimum=HOLD, jitter=JITTER)
            over = ends is None or ends <= self.clock.now()
            assert over or order.origin is Origin.PERSON, "it returns before its hold is over"
            return
        self.table.ours.add(order.target)
        assert state.routing is Routing.LEAVING
        assert state.owner == order.decision
        if order.origin is Origin.VERDICTS:
            assert mode is PoolMode.ENFORCE or state.human is Human.FORCED_OUT
        if order.origin is Origin.APPROVED:
            assert mode in (PoolMode.ENFORCE, PoolMode.APPROVE) or state.human is Human.FORCED_OUT
        left = [one for one in NAMES if one != order.target and not self.table.isolated[one]]
        assert left or self.forced, "the last node is taken out, and nobody forced it"

    # What runs find

    @rule(name=names, quality=st.sampled_from(Quality))
    def one_run(self, name: str, quality: Quality) -> None:
        self.clock.time += 1
        before = self.life.memory.target_state(name, "chat")
        self.do(self.life.run(name, quality, self.process[name]))
        after = self.life.memory.target_state(name, "chat")
        if quality in (Quality.UNKNOWN, Quality.SKIPPED, Quality.INVALID) and after.routing in AWAY:
            assert after.owner is not None or before.owner is None, "an owner was lost to a run that cannot tell"

    @rule(name=names, fault=st.sampled_from([None, None, None, *FAULTS]), answer=st.booleans())
    def goes_bad(self, name: str, fault: str | None, answer: bool) -> None:
        """A breach and its confirmation beside sound neighbours, and in a pool that asks perhaps a person's yes."""
        self.well([one for one in NAMES if one != name])
        self.table.fault = fault
        self.clock.time += 60
        self.do(self.life.run(name, Quality.DEGRADED, self.process[name]))
        self.do(self.life.run(name, Quality.DEGRADED, self.process[name], Trigger.CONFIRM))
        if answer:
            self.answers(name)

    @rule(names=st.lists(names, min_size=1, unique=True), answer=st.booleans())
    def restarts_well(self, names: list[str], answer: bool) -> None:
        for name in names:
            self.process[name] += 1
        for _ in range(2):
            self.clock.time += 60
            self.well(names)
        if answer:
            for name in names:
                self.answers(name)

    @rule()
    def all_well(self) -> None:
        self.clock.time += 120
        self.well(NAMES)

    def well(self, names: Iterable[str]) -> None:
        for name in names:
            self.do(self.life.run(name, Quality.OK, self.process[name]))

    # The gateway, the clock and the daemon's own lives

    @rule(fault=st.sampled_from([None, None, *FAULTS]), seconds=st.sampled_from([5.0, 60.0, PERIOD, 4000.0]))
    def time_passes(self, fault: str | None, seconds: float) -> None:
        self.table.fault = fault
        self.do(self.life.advance(seconds))

    @rule(name=names, forgets=st.booleans())
    def looks(self, name: str, forgets: bool) -> None:
        if forgets:
            self.table.isolated[name] = False
        self.do(look(self.life.watch))
        self.do(self.life.settle())

    @rule()
    def restart(self) -> None:
        self.do(self.life.end())
        self.lives += 1
        self.life = Life(self.folder, self.clock, self.table, self.mode, number=self.lives)
        self.do(self.life.begin())

    @rule(mode=st.sampled_from([PoolMode.ENFORCE, PoolMode.APPROVE, PoolMode.APPROVE, *PoolMode]))
    def reload(self, mode: PoolMode) -> None:
        self.mode = mode
        self.life.watch.generation.watchlist = watchlist(mode)
        self.do(self.life.watch.outbox.renew())
        self.do(self.life.settle())

    # People

    def say(self, what: Any) -> Any:
        try:
            return self.do(what)
        except InputError:
            return None
        finally:
            self.do(self.life.settle())

    @rule(name=names, seconds=st.sampled_from([None, 1800.0]), force=st.sampled_from([False, False, False, True]))
    def isolates(self, name: str, seconds: float | None, force: bool) -> None:
        self.forced = self.forced or force
        self.say(isolate(self.life.watch, Word(name, "ada", "x", seconds=seconds, force=force)))

    @rule(name=names, word=st.sampled_from(["hold", "hold for a while", "confirm", "release", "release"]))
    def speaks(self, name: str, word: str) -> None:
        watch, said = self.life.watch, Word(name, "ada", "x", seconds=1800.0 if word == "hold for a while" else None)
        if word == "confirm":
            self.say(confirm_healthy(watch, said))
            state = self.life.memory.set_state(name, "letters")
            assert (state.breaches, state.proof) == (0, None)
        elif word == "release":
            self.releases(name)
        else:
            self.say(hold(watch, said))
            assert self.life.memory.target_state(name, "chat").human is Human.HELD

    @rule(name=names, by_hand=st.booleans(), word=st.sampled_from(["hold", "confirm", "release", "isolate"]))
    def words_cross_an_order(self, name: str, by_hand: bool, word: str) -> None:
        """An order waits for a gateway that is down; a person speaks; the gateway comes back."""
        self.well([one for one in NAMES if one != name])
        if by_hand:
            self.table.fault = "down"
            self.isolates(name, None, force=False)
        else:
            self.goes_bad(name, "down", answer=True)
        if word == "isolate":
            self.isolates(name, None, force=False)
        else:
            self.speaks(name, word)
        self.table.fault = None
        self.do(self.life.advance(120.0))

    def releases(self, name: str) -> None:
        heard = self.say(release(self.life.watch, Word(name, "ada", "x")))
        assert heard is None or self.life.memory.target_state(name, "chat").human is Human.NONE

    @rule(scope=st.sampled_from(["all", "target:a", None, None]))
    def pauses(self, scope: str | None) -> None:
        if scope is None:
            self.resumes()
        else:
            self.do(self.life.people.pause(scope, reason="x", author="bob", seconds=1800.0))
            self.do(self.life.settle())

    def resumes(self) -> None:
        for one in list(self.life.memory.pauses):
            self.do(self.life.people.resume(one.id, author="bob"))

    def answers(self, name: str) -> None:
        """Approve what waits, and learn that it cannot be approved twice."""
        one = self.life.memory.proposals.get(name)
        if one is not None and self.say(approve(self.life.watch, one.decision, author="ada")) is not None:
            assert self.say(approve(self.life.watch, one.decision, author="bob")) is None

    @precondition(lambda self: self.life.memory.proposals)
    @rule(yes=st.booleans())
    def answer_late(self, yes: bool) -> None:
        one = min(self.life.memory.proposals.values(), key=lambda one: one.decision)
        if yes:
            self.answers(one.target)
        else:
            self.say(reject(self.life.watch, one.decision, author="ada", reason="x"))

    # What always holds

    @invariant()
    def what_is_out_has_an_owner(self) -> None:
        for state in self.states():
            if state.routing in (Routing.LEAVING, Routing.OUT, Routing.RETURNING):
                assert state.owner is not None, state
            if state.routing is Routing.IN:
                assert state.owner is None, state

    @invariant()
    def isolations_are_counted_and_forgiven_in_traffic_alone(self) -> None:
        for state in self.states():
            before = self.count[state.target]
            assert state.ejections >= 0
            assert state.ejections >= before or state.routing in (Routing.IN, Routing.LEAVING), "forgiven while out"
            assert state.well_since is None or (state.routing is not Routing.OUT and state.ejections > 0)
            self.count[state.target] = state.ejections
            if state.routing is Routing.OUT:
                self.out[state.target] = state

    @invariant()
    def what_is_under_way_has_one_order(self) -> None:
        orders = [one.order for one in self.life.watch.outbox._intents.values()]
        assert len({one.target for one in orders}) == len(orders), "two orders for one target"
        way = {one.target for one in self.states() if one.routing in (Routing.LEAVING, Routing.RETURNING)}
        assert way == {one.target for one in orders}

    @invariant()
    def the_store_knows_what_memory_knows(self) -> None:
        if hasattr(self, "life"):
            store, memory = self.life.store, self.life.memory
            assert {one.target: one for one in store.target_states()} == memory.targets
            assert {one.target: one for one in store.proposals()[0]} == memory.proposals
            assert {one.order.decision for one in store.open_intents()} == set(self.life.watch.outbox._intents)

    def states(self) -> list[Any]:
        return list(self.life.memory.targets.values()) if hasattr(self, "life") else []

    def teardown(self) -> None:
        if not hasattr(self, "life"):
            return
        try:
            self.way_back()
        finally:
            self.do(self.life.end())
            self.runner.close()
            shutil.rmtree(self.folder)

    def way_back(self) -> None:
        """With a sound gateway, time and a person's word everything is in traffic again."""
        self.table.fault = None
        self.resumes()
        self.do(self.life.advance(7200.0))
        self.do(look(self.life.watch))
        for name in NAMES:
            self.releases(name)
        self.do(self.life.advance(7200.0))
        self.do(look(self.life.watch))
        for state in self.states():
            assert (state.routing, state.human) == (Routing.IN, Human.NONE), state
        assert not any(self.table.isolated.values())
        assert self.life.memory.proposals == {}


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
def test_no_path_through_the_three_axes_breaks_a_promise() -> None:
    run_state_machine_as_test(ThreeAxes, settings=settings(max_examples=40, stateful_step_count=25, deadline=None))
