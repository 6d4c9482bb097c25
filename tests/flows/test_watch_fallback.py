"""A fallback that does not answer: it is given up after a while, and nobody else waits for it."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.flow.check import Check
from quantwatch.flow.decision import Brake, Result
from quantwatch.flow.reference import ReferenceState, SelfChecked
from quantwatch.flow.state import Routing
from quantwatch.flow.word import Word
from quantwatch.flows.scene import FALLBACK_SECONDS
from quantwatch.flows.words import isolate
from support.gateway import Fault, Gateway
from support.tiny_node import TinyNode
from support.watching import Bench, HandClock, node, restarted, settings, watching

BAD = 1.0


class Hasty(asyncio.SelectorEventLoop):
    """A loop on which time can be skipped. ahead: seconds that were skipped so far."""

    ahead = 0.0

    def time(self) -> float:
        """Its own time."""
        return super().time() + self.ahead


class Silent(httpx.AsyncBaseTransport):
    """A server that takes a request and never answers."""

    def __init__(self) -> None:
        self.asked = 0
        self.left = 0

    async def handle_async_request(self, _: httpx.Request) -> httpx.Response:
        """Wait for ever."""
        self.asked += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.left += 1
        raise AssertionError("never reached")


def two_pools() -> dict[str, Any]:
    """Target a, for whom `spare` takes over, and target b, for whom the baseline does."""
    raw = settings("a", "b", "spare")
    for target, pool in zip(raw["targets"], ("x", "y", "z"), strict=True):
        target["pool"] = pool
    acting = {"mode": "enforce"}
    raw["pools"] = {"x": {**acting, "fallback": "spare"}, "y": {**acting, "fallback": "baseline"}, "z": {}}
    raw["probe"] = {"patience": "0s", "timeout": "300s"}
    return raw


async def both_go_bad(bench: Bench) -> Silent:
    """Prove everything, let the spare fall silent, and a and b go bad."""
    await bench.rounds(1)
    silent = Silent()
    bench.wire._hosts["spare"] = silent
    for name in ("a", "b"):
        restarted(bench.nodes[name], damage=BAD)
    bench.watch.due("a", "letters")
    await bench.until(lambda: silent.asked)
    return silent


async def test_other_pools_do_not_wait_for_a_fallback_that_hangs(tmp_path: Path) -> None:
    async with watching(tmp_path, two_pools()) as bench:
        silent = await both_go_bad(bench)
        bench.watch.due("b", "letters")
        await bench.until(lambda: bench.routing("b") is Routing.OUT)

        assert silent.left == 0  # the spare is still being asked about a
        assert bench.decisions("a") == []
        assert bench.watch.workers["a"].running == "letters"


def test_a_fallback_that_hangs_is_given_up_and_takes_no_traffic(tmp_path: Path) -> None:
    async def hangs() -> None:
        async with watching(tmp_path, two_pools()) as bench:
            silent = await both_go_bad(bench)
            loop = asyncio.get_running_loop()
            assert isinstance(loop, Hasty)
            before = loop.ahead
            while silent.left < silent.asked and loop.ahead - before < 10 * FALLBACK_SECONDS:
                loop.ahead += FALLBACK_SECONDS / 100
                await asyncio.sleep(0)
            await bench.until(lambda: bench.decisions("a"))

            assert loop.ahead - before >= FALLBACK_SECONDS / 2  # it was given some time
            (made,) = bench.decisions("a")
            assert Brake.FALLBACK in [one["brake"] for one in made.objections]
            assert f"did not answer within {FALLBACK_SECONDS:g} s" in repr(made.objections)
            assert bench.gateway.calls == []

    with asyncio.Runner(loop_factory=Hasty) as runner:
        runner.run(hangs())


def with_spare() -> dict[str, Any]:
    """A pool of one whose fallback stands in a pool of its own, beside another."""
    raw = settings("a", pool={"fallback": "spare"})
    raw["targets"] += [
        {"name": one, "url": f"http://{one}", "scheme": "int8", "pool": "spares"} for one in ("spare", "other")
    ]
    raw["pools"]["spares"] = {"mode": "enforce", "max_isolated": "50%"}
    return raw


async def test_a_fallback_that_leaves_while_it_is_asked_takes_no_traffic(tmp_path: Path) -> None:
    """It was well when the question was sent; a person took it out before the answer came."""
    async with watching(tmp_path, with_spare()) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        answers = bench.wire.held["spare"] = asyncio.Event()
        del bench.wire.calls[:]
        bench.watch.due("a", "letters")
        await bench.until(lambda: "spare" in bench.wire.calls)

        await isolate(bench.watch, Word("spare", "ada", "for an upgrade"))
        await bench.until(lambda: bench.routing("spare") is Routing.OUT)
        answers.set()
        await bench.settle()

        assert bench.routing("a") is Routing.IN
        assert bench.gateway.changes == [("http://spare", True)]
        (made,) = bench.decisions("a")
        told = {one["brake"]: one["reason"] for one in made.objections}
        assert told.keys() == {Brake.LAST_BACKEND, Brake.FALLBACK}
        assert told[Brake.FALLBACK] == "the fallback spare cannot take over: spare is itself out of traffic"


@pytest.mark.parametrize("by_hand", [True, False], ids=["taken out", "gone bad"])
async def test_an_isolation_is_withdrawn_when_its_fallback_fails_before_it_is_done(
    tmp_path: Path, *, by_hand: bool
) -> None:
    """The gateway is busy for a while, and the only other backend is lost meanwhile."""
    async with watching(tmp_path, with_spare()) as bench:
        await bench.rounds(1)
        bench.gateway.always = Fault.BUSY
        restarted(bench.nodes["a"], damage=BAD)
        await bench.round("a")
        assert bench.routing("a") is Routing.LEAVING

        if by_hand:
            await isolate(bench.watch, Word("spare", "ada", "it burns", force=True))
        else:
            restarted(bench.nodes["spare"], damage=BAD)
            await bench.round("spare")
        await bench.advance(120)

        assert bench.routing("a") is Routing.IN
        (made,) = [one for one in bench.decisions("a") if one.intent is not None]
        assert made.intent is not None
        assert made.intent.outcome is not None
        assert made.intent.outcome.result is Result.WITHDRAWN
        state = "out" if by_hand else "bad"
        assert f"spare, which was to take the traffic, is {state} itself" in made.intent.outcome.detail


async def test_an_isolation_is_withdrawn_when_nobody_sound_is_left_before_it_is_done(tmp_path: Path) -> None:
    """Without a fallback the other members are who takes the traffic."""
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.gateway.always = Fault.BUSY
        restarted(bench.nodes["a"], damage=BAD)
        await bench.round("a")
        assert bench.routing("a") is Routing.LEAVING

        restarted(bench.nodes["b"], damage=BAD)
        await bench.round("b")
        await bench.advance(120)

        bench.gateway.always = None
        await bench.advance(120)
        assert bench.gateway.changes == []
        (made,) = [one for one in bench.decisions("a") if one.intent is not None]
        assert made.intent is not None
        assert made.intent.outcome is not None
        assert made.intent.outcome.result is Result.WITHDRAWN
        assert "no sound member of chat is left to take the traffic" in made.intent.outcome.detail


async def waits(bench: Bench) -> None:
    """Everything is proven, and the isolation of a waits for a gateway that is busy."""
    await bench.rounds(1)
    bench.gateway.always = Fault.BUSY
    restarted(bench.nodes["a"], damage=BAD)
    await bench.round("a")
    assert bench.routing("a") is Routing.LEAVING


async def why_withdrawn(bench: Bench) -> str:
    """Let the gateway have time for everything, and give why the only order about a came to nothing."""
    bench.gateway.always = None
    await bench.advance(120)
    assert bench.gateway.changes == []
    assert bench.routing("a") is Routing.IN
    (made,) = [one for one in bench.decisions("a") if one.intent is not None]
    assert made.intent is not None
    assert made.intent.outcome is not None
    assert made.intent.outcome.result is Result.WITHDRAWN
    return made.intent.outcome.detail


async def test_an_isolation_is_withdrawn_when_its_fallback_no_longer_answers(tmp_path: Path) -> None:
    async with watching(tmp_path, with_spare()) as bench:
        await waits(bench)
        bench.wire.down.add("spare")
        await bench.round("spare")

        assert "spare, which was to take the traffic, can no longer: spare is" in await why_withdrawn(bench)

        bench.wire.down.clear()  # and the breach stands, so the next run asks again
        await bench.rounds(1, "spare", "a")
        assert bench.gateway.changes == [("http://a", True)]


@pytest.mark.parametrize("lost", ["down", "another", "silent", "drifted"])
async def test_an_isolation_is_withdrawn_when_the_baseline_was_to_take_over_and_is_lost(
    tmp_path: Path, lost: str
) -> None:
    """A pool of one with the baseline for a fallback, and a target of another pool that meets the baseline."""
    async with watching(tmp_path, with_baseline()) as bench:
        await waits(bench)
        if lost == "down":
            bench.wire.down.add("baseline")
            await bench.round("b")
        elif lost == "another":
            restarted(bench.baseline, damage=BAD)
            await bench.round("b")
        elif lost == "silent":
            bench.memory.silent = bench.clock.now()  # as the self-check of enrolled answers notes it
        else:
            check = Check(bench.clock.now(), sound=False)
            bench.memory.self_checks["letters"] = SelfChecked("e", ReferenceState.DRIFTED, check)

        told = await why_withdrawn(bench)
        assert "moved since" in told if lost == "another" else "baseline, which was to take the traffic, can" in told


async def test_an_isolation_of_an_earlier_life_does_not_wait_for_proof_of_the_baseline(tmp_path: Path) -> None:
    clock, gateway = HandClock(), Gateway()
    nodes = {"a": node(number=1), "b": node(number=2), "baseline": TinyNode()}
    async with watching(tmp_path, with_baseline(), gateway=gateway, nodes=nodes, clock=clock) as bench:
        await waits(bench)
    gateway.always = None
    async with watching(tmp_path, with_baseline(), gateway=gateway, nodes=nodes, clock=clock) as bench:
        await bench.settle()
        assert bench.memory.checks == {}
        assert gateway.changes == [("http://a", True)]


async def test_a_baseline_that_was_silent_before_the_order_only_takes_the_traffic(tmp_path: Path) -> None:
    """Self-checks may be hours apart, and it has answered since, when it was asked for the order."""
    async with watching(tmp_path, with_baseline()) as bench:
        await waits(bench)
        bench.memory.silent = bench.clock.now() - timedelta(minutes=5)
        bench.gateway.always = None
        await bench.advance(120)

        assert bench.gateway.changes == [("http://a", True)]


def with_baseline() -> dict[str, Any]:
    """A pool of one whose fallback is the baseline, beside another."""
    raw = settings("a", pool={"fallback": "baseline"})
    raw["targets"] += [{"name": "b", "url": "http://b", "scheme": "int8", "pool": "others"}]
    raw["pools"]["others"] = {"mode": "observe"}
    return raw


async def test_an_isolation_is_withdrawn_when_the_yardstick_that_proved_it_has_moved(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", "b", "c")) as bench:
        await waits(bench)
        restarted(bench.baseline, damage=BAD)
        await bench.round("c")

        assert "the baseline that measured the breach has moved since" in await why_withdrawn(bench)


async def test_an_isolation_is_withdrawn_when_its_fallback_has_left_the_configuration(tmp_path: Path) -> None:
    async with watching(tmp_path, with_spare()) as bench:
        await waits(bench)
        raw = with_spare()
        raw["targets"] = [one for one in raw["targets"] if one["name"] != "spare"]
        raw["pools"]["chat"]["fallback"] = "other"
        await bench.reload(raw)

        bench.gateway.always = None
        await bench.advance(120)

        assert bench.gateway.changes == []
        made = next(one for one in bench.decisions("a") if one.intent is not None)
        assert made.result is Result.FAILED  # after a reload it is not known how an earlier call ended
        assert made.intent is not None
        assert made.intent.outcome is not None
        assert "http://spare, which was to take the traffic, can no longer: it has left" in made.intent.outcome.detail
