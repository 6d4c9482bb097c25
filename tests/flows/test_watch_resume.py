"""A new life of the daemon: what it takes up, what it asks the gateway, and what it leaves to people."""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from quantwatch.act.contract import Abilities, Seen
from quantwatch.act.traffic import Met
from quantwatch.act.traffic import Word as TrafficWord
from quantwatch.daemon.storing import opened
from quantwatch.errors import InputError
from quantwatch.expose.meters import Meters
from quantwatch.flow.decision import Brake, Order
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import Quality
from quantwatch.flow.word import Word
from quantwatch.flows.memory import Memory
from quantwatch.flows.release import release
from quantwatch.flows.resume import LOOK_SECONDS, look
from quantwatch.flows.shift import SECONDS
from support.gateway import Fault, Gateway
from support.watching import Bench, HandClock, node, restarted, settings, watching

BAD = 1.0
HOUR = 3600.0


class Lives:
    """One store, gateway, clock and fleet over several lives of a watch."""

    def __init__(self, folder: Path, **gateway: Any) -> None:
        self.folder = folder
        self.clock = HandClock()
        self.gateway = Gateway(**gateway)
        self.nodes = {"a": node(number=1), "b": node(number=2), "c": node(number=3)}

    def life(self, raw: dict[str, Any] | None = None) -> contextlib.AbstractAsyncContextManager[Bench]:
        """The next life."""
        return watching(self.folder, raw, gateway=self.gateway, nodes=self.nodes, clock=self.clock)

    def change(self, statement: str, *values: object) -> None:
        """Change the store between two lives."""
        with contextlib.closing(sqlite3.connect(self.folder / "q.db")) as store:
            store.execute(statement, values)
            store.commit()


async def goes_bad(bench: Bench, name: str = "a") -> None:
    """Prove everything, then let a node go bad and be measured."""
    await bench.rounds(1)
    restarted(bench.nodes[name], damage=BAD)
    await bench.rounds(1)


# Orders of an earlier life


@pytest.mark.parametrize("mode", ["observe", "dry_run"])
async def test_an_order_of_an_earlier_life_is_not_carried_out_in_a_pool_that_is_only_watched_now(
    tmp_path: Path, mode: str
) -> None:
    lives = Lives(tmp_path, always=Fault.BUSY)
    async with lives.life() as bench:
        await goes_bad(bench)
        assert bench.routing() is Routing.LEAVING
    before, lives.gateway.always = len(lives.gateway.calls), None

    async with lives.life(settings(pool={"mode": mode})) as bench:
        await bench.settle()
        await bench.advance(300)
        assert len(lives.gateway.calls) == before
        assert bench.board().own.open_intents == 0
        assert bench.routing() is not Routing.OUT


async def test_an_order_whose_breach_is_old_is_not_carried_out_by_a_later_life(tmp_path: Path) -> None:
    lives = Lives(tmp_path, always=Fault.BUSY)
    async with lives.life() as bench:
        await goes_bad(bench)
    before, lives.gateway.always = len(lives.gateway.calls), None
    lives.clock.time += HOUR
    restarted(lives.nodes["a"])  # repaired meanwhile

    async with lives.life() as bench:
        await bench.settle()
        await bench.advance(300)
        assert len(lives.gateway.calls) == before
        (made,) = bench.decisions("a")
        assert made.intent is not None
        assert made.intent.outcome is not None
        assert "measured too long ago" in made.intent.outcome.detail


async def test_an_order_whose_breach_is_of_now_is_carried_out_by_the_next_life(tmp_path: Path) -> None:
    lives = Lives(tmp_path, always=Fault.BUSY)
    async with lives.life() as bench:
        await goes_bad(bench)
    lives.gateway.always = None
    lives.clock.time += 60

    async with lives.life() as bench:
        await bench.settle()
        assert bench.routing() is Routing.OUT
        assert len(lives.gateway.ids) == 1


LOST = "an order was under way, and the record of it is lost"


async def test_a_target_on_its_way_out_without_an_order_on_record_is_contradicted(tmp_path: Path) -> None:
    lives, raw = Lives(tmp_path, always=Fault.BUSY), settings(gateway={"state_url": None})
    async with lives.life(raw) as bench:
        await goes_bad(bench)
        assert bench.routing() is Routing.LEAVING
    lives.change("DELETE FROM intents")
    lives.gateway.always = None

    async with lives.life(raw) as bench:
        assert bench.routing() is Routing.CONTRADICTED
        assert bench.timeline()[-1].reason == LOST

        # It is no dead end: the next run that proves the breach orders it out.
        await bench.rounds(1, "b", "a")
        assert bench.routing() is Routing.OUT


@pytest.mark.parametrize(("isolated", "expected"), [(False, Routing.IN), (True, Routing.OUT)])
async def test_where_the_gateway_can_tell_how_a_lost_order_ended_it_is_believed(
    tmp_path: Path, isolated: bool, expected: Routing
) -> None:
    lives = Lives(tmp_path, always=Fault.BUSY)
    async with lives.life() as bench:
        await goes_bad(bench)
    lives.change("DELETE FROM intents")
    lives.gateway.isolated["http://a"] = isolated

    async with lives.life() as bench:
        assert bench.routing() is expected
        assert bench.path_of("routing")[-2:] == ["contradicted", expected]
        assert LOST in [one.reason for one in bench.timeline()]
        state = bench.target().state
        assert (state.owner is not None, state.node) == ((True, "http://a") if isolated else (False, None))


async def test_a_target_on_its_way_back_without_an_order_on_record_is_contradicted(tmp_path: Path) -> None:
    lives, raw = Lives(tmp_path), settings(gateway={"state_url": None})
    async with lives.life(raw) as bench:
        await goes_bad(bench)
        lives.gateway.always = Fault.BUSY
        restarted(bench.nodes["a"])
        await bench.rounds(3)
        assert bench.routing() is Routing.RETURNING
    lives.change("DELETE FROM intents")
    lives.gateway.always = None

    async with lives.life(raw) as bench:
        assert bench.routing() is Routing.CONTRADICTED
        await bench.rounds(3)
        assert bench.routing() is Routing.IN
        assert lives.gateway.stands("http://a") is False


# What the gateway says


async def test_what_the_gateway_has_isolated_and_nobody_remembers_is_contradicted_and_no_backend(
    tmp_path: Path,
) -> None:
    lives = Lives(tmp_path)
    lives.gateway.isolated["http://b"] = True
    async with lives.life() as bench:
        assert bench.routing("a") is Routing.IN
        assert bench.routing("b") is Routing.CONTRADICTED
        assert "not by a decision that is on record" in bench.timeline("b")[-1].reason

        await goes_bad(bench)
        assert lives.gateway.calls == []
        assert {Brake.CAP, Brake.LAST_BACKEND} <= {one["brake"] for one in bench.decisions("a")[0].objections}

        # Who isolated it will know why; clean runs do not bring it back.
        await bench.rounds(6)
        assert bench.routing("b") is Routing.CONTRADICTED
        with pytest.raises(InputError, match="not isolated by quantwatch"):
            await release(bench.watch, Word("b", "ada", "x"))

        # They end it at the gateway, and the next look sees that.
        lives.gateway.isolated.clear()
        await look(bench.watch)
        assert bench.routing("b") is Routing.IN


async def test_what_we_isolated_and_the_gateway_routes_is_contradicted_and_ordered_out_again(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    async with lives.life() as bench:
        await goes_bad(bench)
        assert bench.routing() is Routing.OUT
    lives.gateway.isolated.clear()  # the gateway was restarted, and has forgotten

    async with lives.life() as bench:
        assert bench.routing() is Routing.CONTRADICTED
        assert bench.timeline()[-1].reason == "the gateway says routable, and on record it is isolated"
        await bench.rounds(1, "b", "a")
        assert bench.routing() is Routing.OUT
        assert lives.gateway.stands("http://a") is True


class Users:
    """Requests through the gateway. met: whom they meet; None where they are never answered."""

    def __init__(self) -> None:
        self.met: Met | None = Met.NODE
        self.asked: list[str] = []

    async def ask(self, order: Order) -> TrafficWord:
        """What became of them."""
        self.asked.append(order.decision)
        if self.met is None:
            await asyncio.Event().wait()
        return TrafficWord(self.met or Met.UNKNOWN, "marked requests")


async def test_what_traffic_has_contradicted_stays_so_until_traffic_meets_others(tmp_path: Path) -> None:
    lives, users = Lives(tmp_path), Users()
    async with lives.life() as bench:
        bench.watch.generation.traffic = users
        await goes_bad(bench)
        await bench.advance(60)
        assert bench.routing() is Routing.CONTRADICTED
        assert lives.gateway.stands("http://a") is True, "the gateway's own state says that it is done"

        for users.met in (Met.NODE, Met.UNKNOWN):
            before = len(users.asked)
            await look(bench.watch)
            assert bench.routing() is Routing.CONTRADICTED
            assert len(users.asked) == before + 1

        users.met = Met.OTHERS
        await look(bench.watch)
        assert bench.routing() is Routing.OUT
        before = len(users.asked)
        await look(bench.watch)
        assert len(users.asked) == before, "nothing is in doubt any more"


async def test_where_record_and_gateway_agree_nothing_changes(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    async with lives.life() as bench:
        await goes_bad(bench)
        told = len(bench.timeline())
    async with lives.life() as bench:
        assert (bench.routing("a"), bench.routing("b")) == (Routing.OUT, Routing.IN)
        assert len(bench.timeline()) == told
        assert lives.gateway.looks >= 2


@pytest.mark.parametrize(
    "reply", [Response("busy", 503), Response("{}", 200), Response('{"isolated": 1}', 200)], ids=["503", "{}", "1"]
)
async def test_a_gateway_that_tells_nothing_changes_nothing(tmp_path: Path, reply: Response) -> None:
    lives = Lives(tmp_path, state_reply=lambda: reply)
    lives.gateway.isolated["http://b"] = True
    async with lives.life() as bench:
        assert bench.routing("b") is Routing.IN
        assert bench.timeline("b") == []


async def test_a_gateway_that_is_down_at_the_start_changes_nothing(tmp_path: Path) -> None:
    lives = Lives(tmp_path, down=True)
    async with lives.life() as bench:
        assert bench.routing("b") is Routing.IN


@pytest.mark.parametrize(
    ("pool", "gateway"),
    [({"mode": "observe"}, {}), ({}, {"state_url": None})],
    ids=["only watched", "cannot be read back"],
)
async def test_the_gateway_is_not_asked_about_a_pool_that_is_only_watched_nor_where_it_cannot_tell(
    tmp_path: Path, pool: dict[str, Any], gateway: dict[str, Any]
) -> None:
    lives = Lives(tmp_path)
    lives.gateway.isolated["http://b"] = True
    async with lives.life(settings(pool=pool, gateway=gateway)) as bench:
        assert lives.gateway.looks == 0
        assert bench.routing("b") is Routing.IN


async def test_the_gateway_is_asked_under_the_name_of_the_isolation(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    async with lives.life() as bench:
        await goes_bad(bench)
    raw = settings()
    raw["targets"][0]["gateway_name"] = "pod-7"  # which the gateway routes, for all it knows
    async with lives.life(raw) as bench:
        assert bench.routing() is Routing.OUT


async def test_isolations_that_nothing_will_end_are_told_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lives = Lives(tmp_path)
    async with lives.life() as bench:
        await goes_bad(bench)
    caplog.clear()
    async with lives.life(settings("b", "c")):
        assert "isolated, and it is no longer configured: `quantwatch release` brings it back" in caplog.text
    caplog.clear()
    async with lives.life(settings(pool={"mode": "observe"})):
        assert "isolated, and its pool is only observed: `quantwatch release` brings it back" in caplog.text
    caplog.clear()
    async with lives.life():
        assert "quantwatch release" not in caplog.text


# A store that is gone


async def test_a_store_that_was_corrupt_pauses_everything_until_a_person_has_looked(tmp_path: Path) -> None:
    path, clock = tmp_path / "q.db", HandClock()
    path.write_bytes(b"garbage" * 1000)
    for _ in range(2):  # the pause outlives the next start too
        memory = Memory()
        async with contextlib.AsyncExitStack() as stack:
            await opened(path, memory, clock=clock, meters=Meters(), stack=stack)
            (pause,) = memory.pauses
        assert (pause.scope, pause.author, pause.until) == ("all", "quantwatch", None)
        assert pause.reason.startswith("the store was corrupt and is now q.db.corrupt-")

    lives = Lives(tmp_path)
    lives.clock = clock
    async with lives.life() as bench:
        await goes_bad(bench)
        assert lives.gateway.calls == []
        assert [one["brake"] for one in bench.decisions("a")[0].objections] == [Brake.PAUSED]
        assert await bench.people.resume(pause.id, author="ada")
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT


async def test_a_store_that_is_sound_pauses_nothing(tmp_path: Path) -> None:
    memory = Memory()
    async with contextlib.AsyncExitStack() as stack:
        await opened(tmp_path / "q.db", memory, clock=HandClock(), meters=Meters(), stack=stack)
        assert memory.pauses == []


# A life that goes on


async def test_a_worker_that_broke_off_by_a_fault_of_ours_is_set_to_work_again(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        dead = bench.watch.tasks["a"]
        dead.cancel()
        await bench.until(dead.done)
        bench.watch.due("a", "letters")
        await bench.until(lambda: bench.watch.workers["a"].queued)  # nobody takes it up
        assert len(bench.runs("a")) == 1

        await bench.mend()
        assert len(bench.runs("a")) == 2
        assert bench.watch.tasks["a"] is not dead
        assert bench.target().quality is Quality.OK


async def test_workers_that_live_are_left_alone(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        tasks = dict(bench.watch.tasks)
        await bench.mend()
        assert bench.watch.tasks == tasks


# A gateway that hangs


class Hung:
    """A gateway that answers nothing at all."""

    name = "webhook"
    abilities = Abilities(reads_back=True, proven=True, calls=True, weighs=True)

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def call(self, _: Order) -> str:
        """Hang."""
        return await self._for_ever("call")

    async def observe(self, _: Order) -> Seen:
        """Hang."""
        return Seen(await self._for_ever("observe"))

    async def present(self, _: Sequence[str]) -> frozenset[str]:
        """Hang."""
        return frozenset(await self._for_ever("present"))

    async def weigh(self, _: str, __: int) -> str:
        """Hang."""
        return await self._for_ever("weigh")

    async def weight(self, _: str) -> int | None:
        """Hang."""
        return int(await self._for_ever("weight"))

    async def _for_ever(self, what: str) -> str:
        self.asked.append(what)
        await asyncio.Event().wait()
        raise AssertionError("never reached")


class Skipping(asyncio.SelectorEventLoop):
    """A loop on which time can be skipped. ahead: seconds skipped so far. busy: threads that it waits for.

    stopped: the moment at which its own time stands still, None where it runs.
    """

    ahead = 0.0
    busy = 0
    stopped: float | None = None

    def time(self) -> float:
        """Its own time."""
        return (super().time() if self.stopped is None else self.stopped) + self.ahead

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Count what threads do: it takes real time, which says nothing of how long a server was waited for."""
        self.busy += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._over)
        return future

    def _over(self, _: object) -> None:
        self.busy -= 1


async def skipped(waiting: Awaitable[None]) -> float:
    """Let time pass until something has ended; seconds that were skipped, which a busy machine makes no more."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(waiting)
    assert isinstance(loop, Skipping)
    before, loop.stopped = loop.ahead, loop.time() - loop.ahead
    while not task.done() and loop.ahead - before < 100 * LOOK_SECONDS:
        for _ in range(20):
            await asyncio.sleep(0)
        if loop.busy:
            time.sleep(0.001)  # noqa: ASYNC251, threads need the machine, and nothing else waits for this loop
        else:
            loop.ahead += 0.1
    loop.stopped = None
    await task
    return loop.ahead - before


def many_ladders(count: int) -> dict[str, Any]:
    """Pools that shift, each with two targets."""
    names = [f"{rung}{i}" for i in range(count) for rung in ("a", "b")]
    raw = settings(*names)
    ladder = {"mode": "enforce", "variants": ["int4", "int8"]}
    raw["pools"] = {f"p{i}": ladder for i in range(count)}
    for target in raw["targets"]:
        target["pool"], target["scheme"] = f"p{target['name'][1:]}", "int4" if target["name"][0] == "a" else "int8"
    return raw


def test_a_hung_gateway_delays_a_start_once_and_not_for_each_pool(tmp_path: Path) -> None:
    async def start() -> None:
        async with watching(tmp_path, many_ladders(12)) as bench:
            hung, generation = Hung(), bench.watch.generation
            generation.driver = hung
            pools = {name: replace(one, steps=(10, 50)) for name, one in generation.watchlist.pools.items()}
            generation.watchlist = replace(generation.watchlist, pools=pools)
            took = await skipped(look(bench.watch))

            assert took == pytest.approx(LOOK_SECONDS, abs=1.0)
            assert hung.asked.count("observe") == 24
            assert hung.asked.count("present") == 12
            assert {one.trouble for one in bench.memory.rolls.values()} == {"it did not tell within 10 s"}
            assert bench.routing("a0") is Routing.IN

            # Told in time who is there, it still may not tell the weights.
            hung.asked.clear()
            slow = [bench.watch.shift.tend(one) for one in pools]
            assert await skipped(_all(slow)) == pytest.approx(SECONDS, abs=1.0)
            assert hung.asked == ["weight"] * 12

    with asyncio.Runner(loop_factory=Skipping) as runner:
        runner.run(start())


async def _all(tasks: Sequence[Awaitable[None]]) -> None:
    await asyncio.gather(*tasks)


def test_traffic_that_is_never_answered_changes_nothing_and_holds_up_no_other_look(tmp_path: Path) -> None:
    async def hangs() -> None:
        lives, users = Lives(tmp_path), Users()
        async with lives.life() as bench:
            bench.watch.generation.traffic = users
            await goes_bad(bench)
            await bench.advance(60)
            assert bench.routing() is Routing.CONTRADICTED
            users.met = None
            lives.gateway.isolated["http://b"] = True

            assert await skipped(look(bench.watch)) <= LOOK_SECONDS + 1.0
            assert (bench.routing("a"), bench.routing("b")) == (Routing.CONTRADICTED, Routing.CONTRADICTED)

    with asyncio.Runner(loop_factory=Skipping) as runner:
        runner.run(hangs())
