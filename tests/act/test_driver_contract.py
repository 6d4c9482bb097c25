"""What every driver promises, held against each of them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import get_args

import pytest

from quantwatch.act.contract import Driver, MemoryNotes, Seen, wished
from quantwatch.act.dry_run import DryRun
from quantwatch.act.router import Router
from quantwatch.act.sglang_router import SglangRouter
from quantwatch.act.verdict import VerdictDriver
from quantwatch.act.vllm_router import VllmRouter
from quantwatch.act.webhook import WebhookDriver
from quantwatch.clock import SystemClock
from quantwatch.config.gateway import GatewaySettings
from quantwatch.errors import GatewayError, GatewayRefused
from quantwatch.flow.decision import Action
from quantwatch.net import Endpoint, Link
from support.builders import QUICK
from support.fake_router import FakeRouter
from support.gateway import Gateway, order


@dataclass
class Bench:
    """A driver; what our own record says of its target; the gateway that it may call."""

    driver: Driver
    record: dict[str, bool]
    gateway: Gateway


@asynccontextmanager
async def webhook(*, reads: bool) -> AsyncIterator[Bench]:
    gateway = Gateway()

    def link(path: str) -> Link:
        return Link(Endpoint("gateway", f"http://gateway/{path}"), QUICK, transport=gateway.transport())

    async with link("act") as act, link("state") as state:
        yield Bench(WebhookDriver(act, state=state if reads else None, clock=SystemClock()), {}, gateway)


@asynccontextmanager
async def verdict() -> AsyncIterator[Bench]:
    record: dict[str, bool] = {}
    yield Bench(VerdictDriver(lambda target: record.get(target, False)), record, Gateway())


@asynccontextmanager
async def router(kind: type[Router]) -> AsyncIterator[Bench]:
    fake = FakeRouter(order().node)
    async with Link(Endpoint("router", "http://router"), QUICK, transport=fake.transport()) as link:
        yield Bench(kind(link, clock=SystemClock(), notes=MemoryNotes()), {}, fake.gateway)


@asynccontextmanager
async def dry_run() -> AsyncIterator[Bench]:
    yield Bench(DryRun(), {}, Gateway())


MAKERS: dict[str, Callable[[], AbstractAsyncContextManager[Bench]]] = {
    "webhook": lambda: webhook(reads=True),
    "webhook, blind": lambda: webhook(reads=False),
    "verdict": verdict,
    "dry_run": dry_run,
    "vllm_router": lambda: router(VllmRouter),
    "sglang_router": lambda: router(SglangRouter),
}


@pytest.fixture(params=MAKERS)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with MAKERS[request.param]() as made:
        yield made


async def test_its_name_can_be_configured(bench: Bench) -> None:
    assert bench.driver.name in get_args(GatewaySettings.model_fields["driver"].annotation)


def test_every_driver_of_the_configuration_is_held_to_the_contract() -> None:
    assert {name.split(",")[0] for name in MAKERS} == set(get_args(GatewaySettings.model_fields["driver"].annotation))


@pytest.mark.parametrize("action", Action)
async def test_a_driver_that_acts_answers_with_a_sentence_and_another_refuses(bench: Bench, action: Action) -> None:
    if bench.driver.abilities.acts:
        assert await bench.driver.call(order(action))
    else:
        with pytest.raises(GatewayRefused, match=r"set gateway\.driver"):
            await bench.driver.call(order(action))


async def test_only_a_driver_that_calls_sends_anything_and_once(bench: Bench) -> None:
    if bench.driver.abilities.acts:
        await bench.driver.call(order())

    assert len(bench.gateway.calls) == int(bench.driver.abilities.calls)


@pytest.mark.parametrize("action", Action)
async def test_a_driver_that_reads_back_sees_what_was_done_and_another_knows_nothing(
    bench: Bench, action: Action
) -> None:
    bench.record[order().target] = bench.gateway.isolated[order().node] = action is Action.RELEASE
    before = await bench.driver.observe(order(action))
    if bench.driver.abilities.acts:
        await bench.driver.call(order(action))
    bench.record[order().target] = action is Action.ISOLATE
    after = await bench.driver.observe(order(action))

    if bench.driver.abilities.reads_back:
        assert before is not wished(action)
        assert before is not Seen.UNKNOWN
        assert after is wished(action)
    else:
        assert (before, after) == (Seen.UNKNOWN, Seen.UNKNOWN)


async def test_trouble_is_unknown_and_never_raised(bench: Bench) -> None:
    """Only a driver that calls can have any."""
    bench.gateway.down = True
    seen = await bench.driver.observe(order())

    if bench.driver.abilities.calls:
        assert seen is Seen.UNKNOWN
        with pytest.raises(GatewayError):
            await bench.driver.call(order())


async def test_a_rehearsal_tells_the_whole_call() -> None:
    told = DryRun().describe(order())

    assert told.startswith("would isolate http://node-a:8000 (target int4-a): {")
    assert '"decision_id": "d-20260101-000000-1f3a9c"' in told
