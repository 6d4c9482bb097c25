"""A rehearsal against a gateway that behaves in every way it can: whatever went out comes back, or that is said."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.responses import Response

from quantwatch.act.contract import Abilities, Driver, MemoryNotes, Seen
from quantwatch.act.sglang_router import SglangRouter
from quantwatch.act.vllm_router import VllmRouter
from quantwatch.act.webhook import WebhookDriver
from quantwatch.flow.decision import Action, Order, Result
from quantwatch.flows.rehearse import GIVE_UP_SECONDS, Part, Rehearsal, rehearse
from quantwatch.flows.standings import standings
from quantwatch.flows.witness import Step
from quantwatch.net import Endpoint, Link
from support.builders import QUICK, FakeClock
from support.fake_router import OTHER, FakeRouter
from support.gateway import Fault, Gateway, order

NODE = order().node
PART = Part("int4-a", "chat", NODE, (OTHER,))


@dataclass
class Bench:
    """A gateway and the clock that it queues on."""

    gateway: Gateway = field(default_factory=Gateway)
    clock: FakeClock = field(default_factory=FakeClock)
    reads: bool = True
    part: Part = PART
    told: list[Step] = field(default_factory=list)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[WebhookDriver]:
        self.gateway.seconds = self.clock.monotonic

        def link(path: str) -> Link:
            return Link(Endpoint("gateway", f"http://gateway/{path}"), QUICK, transport=self.gateway.transport())

        async with link("act") as act, link("state") as state:
            yield WebhookDriver(act, state=state if self.reads else None, clock=self.clock)

    async def run(self) -> Rehearsal:
        async with self.driver() as driver:
            return await rehearse(self.part, driver, self.clock, tell=self.told.append, stop=self.stop)


def results(done: Rehearsal) -> list[Result | None]:
    return [one.result if one is not None else None for one in (done.out, done.back)]


async def test_it_goes_out_is_read_back_and_returns() -> None:
    bench = Bench()
    done = await bench.run()

    assert results(done) == [Result.VERIFIED, Result.VERIFIED]
    assert (done.proven, done.by_hand, done.refused, done.interrupted) == (True, None, None, False)
    assert bench.gateway.changes == [(NODE, True), (NODE, False)]
    assert [one.what for one in done.steps] == ["look", "isolate", "read back", "release", "read back"]
    assert [one.said for one in done.steps][1:] == [
        *("gateway answered 200", "isolated"),
        *("gateway answered 200", "routable"),
    ]
    assert bench.told == list(done.steps)


async def test_a_gateway_that_cannot_be_read_back_proves_nothing() -> None:
    bench = Bench(reads=False)
    done = await bench.run()

    assert results(done) == [Result.ACCEPTED, Result.ACCEPTED]
    assert not done.proven
    assert bench.gateway.changes == [(NODE, True), (NODE, False)]


@pytest.mark.parametrize(
    ("fault", "out"),
    [
        (Fault.YES_AND_NOTHING, Result.CONTRADICTED),
        (Fault.ERROR_UNDONE, Result.VERIFIED),
        (Fault.ERROR_DONE, Result.VERIFIED),
        (Fault.HANGS_DONE, Result.VERIFIED),
        (Fault.CUT_DONE, Result.VERIFIED),
        (Fault.QUEUED, Result.VERIFIED),
        (Fault.BUSY, Result.VERIFIED),
    ],
)
async def test_whatever_the_first_call_does_the_node_is_back_at_the_end(fault: Fault, out: Result) -> None:
    bench = Bench(Gateway(faults=[fault], delay=2.0))
    done = await bench.run()

    assert results(done) == [out, Result.VERIFIED]
    assert done.by_hand is None
    assert bench.gateway.stands(NODE) is False


async def test_a_refusal_changes_nothing_and_needs_no_release() -> None:
    bench = Bench(Gateway(always=Fault.REFUSED))
    done = await bench.run()

    assert results(done) == [Result.REFUSED, None]
    assert len(bench.gateway.calls) == 1


async def test_what_does_not_come_back_is_said_with_what_to_do() -> None:
    bench = Bench(Gateway(faults=[None], always=Fault.ERROR_UNDONE))
    done = await bench.run()

    assert results(done) == [Result.VERIFIED, Result.FAILED]
    assert done.by_hand == f"take {NODE} back into traffic at the gateway, by its own means"
    assert bench.clock.time > GIVE_UP_SECONDS[Action.RELEASE] / 2
    assert len(bench.gateway.calls) > 5


@pytest.mark.parametrize(
    ("isolated", "part", "refused"),
    [
        ({NODE: True}, PART, "is isolated at the gateway already"),
        ({OTHER: True}, PART, "nobody else of pool chat is routable"),
        ({}, Part("int4-a", "chat", NODE), "nobody else of pool chat is routable"),
    ],
)
async def test_nothing_is_begun_where_it_would_do_harm(isolated: dict[str, bool], part: Part, refused: str) -> None:
    bench = Bench(Gateway(isolated=dict(isolated)), part=part)
    done = await bench.run()

    assert refused in (done.refused or "")
    assert (results(done), bench.gateway.calls) == ([None, None], [])
    assert bench.gateway.isolated == isolated


async def test_a_state_that_cannot_be_told_is_no_beginning() -> None:
    bench = Bench(Gateway(state_reply=lambda: Response(status_code=500)))
    done = await bench.run()

    assert "does not tell how int4-a stands" in (done.refused or "")
    assert bench.gateway.calls == []


async def test_a_single_node_behind_a_blind_gateway_stays() -> None:
    bench = Bench(reads=False, part=Part("int4-a", "chat", NODE))

    assert "is alone in pool chat" in ((await bench.run()).refused or "")
    assert bench.gateway.calls == []


async def test_one_who_breaks_off_in_the_middle_finds_the_node_back() -> None:
    """The stop comes while the read-back waits for a gateway that says yes and does it much later."""
    bench = Bench(Gateway(faults=[Fault.QUEUED], delay=5.0))
    stop = bench.stop

    class Stopping(FakeClock):
        async def sleep(self, seconds: float) -> None:
            await super().sleep(seconds)
            if not stop.is_set():
                stop.set()
                await asyncio.sleep(30)  # the one that is cancelled

    bench.clock = Stopping()
    done = await bench.run()

    assert (results(done), done.interrupted, done.proven) == ([None, Result.VERIFIED], True, False)
    assert [call.body["action"] for call in bench.gateway.calls] == ["isolate", "release"]


async def test_one_who_breaks_off_before_the_call_changes_nothing() -> None:
    bench = Bench()
    bench.stop.set()
    done = await bench.run()

    assert (results(done), done.interrupted) == ([None, None], True)
    assert bench.gateway.calls == []


@dataclass
class Faulty:
    """A driver with a fault of ours in it, right after its call."""

    inner: Driver
    name: str = "webhook"
    abilities: Abilities = field(default_factory=lambda: Abilities(reads_back=True, proven=False, calls=True))
    fault: bool = False

    async def call(self, order: Order) -> str:
        self.fault = order.action is Action.ISOLATE
        return await self.inner.call(order)

    async def observe(self, order: Order) -> Seen:
        if self.fault:
            raise ZeroDivisionError
        return await self.inner.observe(order)


async def test_after_a_fault_of_ours_the_node_is_back_too() -> None:
    bench = Bench()
    async with bench.driver() as driver:
        with pytest.raises(ZeroDivisionError):
            await rehearse(PART, Faulty(driver), bench.clock, tell=bench.told.append, stop=bench.stop)

    assert bench.gateway.changes == [(NODE, True), (NODE, False)]


@pytest.mark.parametrize("kind", [VllmRouter, SglangRouter])
async def test_a_router_that_loses_its_voice_is_told_with_the_line_to_type(kind: Any) -> None:
    fake = FakeRouter(NODE)
    async with Link(Endpoint("router", "http://router"), QUICK, transport=fake.transport()) as link:
        driver = kind(link, clock=FakeClock(), notes=MemoryNotes())

        def tell(step: Step) -> None:
            fake.gateway.down = fake.gateway.down or step.said == "isolated"

        done = await rehearse(PART, driver, FakeClock(), tell=tell, stop=asyncio.Event())

    assert results(done) == [Result.VERIFIED, Result.FAILED]
    assert (done.by_hand or "").startswith("curl -X POST 'http://router/")


async def test_standings_tell_each_target_and_who_else_is_there() -> None:
    fake = FakeRouter(NODE)
    async with Link(Endpoint("router", "http://router"), QUICK, transport=fake.transport()) as link:
        driver = VllmRouter(link, clock=FakeClock(), notes=MemoryNotes())
        both = await standings(driver, [PART, Part("b", "chat", OTHER)])
        one = await standings(driver, [Part("b", "chat", OTHER)])
        fake.gateway.isolated[NODE] = True
        out = await standings(driver, [PART])
        fake.gateway.down = True
        down = await standings(driver, [PART])

    assert ([seen for _, seen in both.stands], both.others, both.told) == ([Seen.ROUTABLE] * 2, (), True)
    assert one.others == (NODE,)
    assert (both.missing, out.missing, down.missing) == ((), (PART.target,), ())
    assert ([seen for _, seen in out.stands], out.told) == ([Seen.ISOLATED], True)
    assert ([seen for _, seen in down.stands], down.told) == ([Seen.UNKNOWN], False)
    assert "cannot connect" in (down.trouble or "")
    assert fake.gateway.calls == []
