"""What every driver promises, held against each of them."""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from quantwatch.act.apisix import ApisixDriver
from quantwatch.act.contract import Driver, MemoryNotes, Seen, Tells, wished
from quantwatch.act.dry_run import DryRun
from quantwatch.act.haproxy import HaproxyDriver, Runtime
from quantwatch.act.kong import KongDriver
from quantwatch.act.kubernetes import KubernetesDriver, Place
from quantwatch.act.litellm import LitellmDriver
from quantwatch.act.router import Router
from quantwatch.act.sglang_router import SglangRouter
from quantwatch.act.verdict import VerdictDriver
from quantwatch.act.vllm_router import VllmRouter
from quantwatch.act.webhook import WebhookDriver
from quantwatch.clock import SystemClock
from quantwatch.config.gateway import SHIPPED
from quantwatch.errors import GatewayError, GatewayRefused
from quantwatch.flow.decision import Action, Order
from quantwatch.net import Endpoint, Link
from support.admin_fakes import LABEL, AdminFake, FakeApisix, FakeKong, FakeKubernetes, FakeLitellm
from support.builders import QUICK
from support.fake_router import FakeRouter
from support.filing import Filing
from support.gateway import Gateway, order
from support.runtime_socket import runtime_socket


@dataclass
class Bench:
    """A driver; what our own record says of its target; and the gateway that it may call.

    node: what that gateway calls the target. stand: lets it stand isolated or not there. calls: how often the gateway
    was called. fail: lets it go down.
    """

    driver: Driver
    record: dict[str, bool]
    stand: Callable[[bool], Awaitable[None]]
    calls: Callable[[], int]
    fail: Callable[[], None]
    node: str = order().node

    def order(self, action: Action = Action.ISOLATE) -> Order:
        """An order for the target."""
        return order(action, node=self.node)


def over(driver: Driver, record: dict[str, bool], gateway: Gateway) -> Bench:
    """A driver that calls the gateway of these tests, if any."""

    async def stand(isolated: bool) -> None:
        gateway.isolated[order().node] = isolated

    def fail() -> None:
        gateway.down = True

    return Bench(driver, record, stand, lambda: len(gateway.calls), fail)


@asynccontextmanager
async def webhook(*, reads: bool) -> AsyncIterator[Bench]:
    gateway = Gateway()

    def link(path: str) -> Link:
        return Link(Endpoint("gateway", f"http://gateway/{path}"), QUICK, transport=gateway.transport())

    async with link("act") as act, link("state") as state:
        yield over(WebhookDriver(act, state=state if reads else None, clock=SystemClock()), {}, gateway)


@asynccontextmanager
async def verdict() -> AsyncIterator[Bench]:
    record: dict[str, bool] = {}
    yield over(VerdictDriver(lambda target: record.get(target, False)), record, Gateway())


@asynccontextmanager
async def router(kind: type[Router]) -> AsyncIterator[Bench]:
    fake = FakeRouter(order().node)
    async with Link(Endpoint("router", "http://router"), QUICK, transport=fake.transport()) as link:
        yield over(kind(link, clock=SystemClock(), notes=MemoryNotes()), {}, fake.gateway)


@asynccontextmanager
async def dry_run() -> AsyncIterator[Bench]:
    yield over(DryRun(), {}, Gateway())


@asynccontextmanager
async def haproxy() -> AsyncIterator[Bench]:
    with tempfile.TemporaryDirectory() as folder:
        async with runtime_socket(Path(folder), a=0) as played:

            async def stand(isolated: bool) -> None:
                played.states["llm/a"] = 8 * isolated

            driver = HaproxyDriver(Runtime(str(played.path), 10.0), backend="llm")
            yield Bench(driver, {}, stand, lambda: len(played.changes), played.path.unlink, "a")


@asynccontextmanager
async def file() -> AsyncIterator[Bench]:
    with tempfile.TemporaryDirectory() as folder:
        filing = Filing(Path(folder)).begun()
        driver = filing.driver()

        async def stand(isolated: bool) -> None:
            await driver.call(order(Action.ISOLATE if isolated else Action.RELEASE))
            (filing.folder / "reloads").unlink()

        def fail() -> None:
            filing.file.write_text("by hand\n")

        yield Bench(driver, {}, stand, lambda: filing.reloads, fail)


@asynccontextmanager
async def admin(
    fake: AdminFake, made: Callable[[Any], Driver], node: str, switch: Callable[[bool], None]
) -> AsyncIterator[Bench]:
    """A driver of an admin API. switch: lets the node stand isolated there or not, by nobody's order."""

    async def stand(isolated: bool) -> None:
        switch(isolated)

    def fail() -> None:
        fake.down = True

    async with fake.link() as link:
        yield Bench(made(fake.api(link, {})), {}, stand, lambda: len(fake.changes), fail, node)


def litellm() -> AbstractAsyncContextManager[Bench]:
    fake = FakeLitellm()

    def switch(isolated: bool) -> None:
        fake.deployments["a"] = ("llama", isolated)

    return admin(fake, lambda api: LitellmDriver(api, notes=MemoryNotes()), "a", switch)


def kubernetes() -> AbstractAsyncContextManager[Bench]:
    fake = FakeKubernetes()

    def switch(isolated: bool) -> None:
        fake.pods["vllm-0"]["metadata"]["labels"][LABEL] = "out" if isolated else "in"

    return admin(fake, lambda api: KubernetesDriver(api, Place("llm", "vllm", LABEL)), "vllm-0", switch)


def apisix() -> AbstractAsyncContextManager[Bench]:
    fake = FakeApisix()

    def switch(isolated: bool) -> None:
        fake.nodes["node-a:8000"] = 0 if isolated else 3

    return admin(fake, lambda api: ApisixDriver(api, notes=MemoryNotes()), "1/node-a:8000", switch)


def kong() -> AbstractAsyncContextManager[Bench]:
    fake = FakeKong()

    def switch(isolated: bool) -> None:
        fake.weights["node-a:8000"] = 0 if isolated else 100

    return admin(fake, lambda api: KongDriver(api, notes=MemoryNotes()), "llm/node-a:8000", switch)


MAKERS: dict[str, Callable[[], AbstractAsyncContextManager[Bench]]] = {
    "webhook": lambda: webhook(reads=True),
    "webhook, blind": lambda: webhook(reads=False),
    "verdict": verdict,
    "dry_run": dry_run,
    "haproxy": haproxy,
    "file": file,
    "vllm_router": lambda: router(VllmRouter),
    "sglang_router": lambda: router(SglangRouter),
    "litellm": litellm,
    "kubernetes": kubernetes,
    "apisix": apisix,
    "kong": kong,
}


@pytest.fixture(params=MAKERS)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with MAKERS[request.param]() as made:
        yield made


async def test_its_name_can_be_configured(bench: Bench) -> None:
    assert bench.driver.name in SHIPPED


def test_every_driver_of_the_configuration_is_held_to_the_contract() -> None:
    assert {name.split(",")[0] for name in MAKERS} == set(SHIPPED)


@pytest.mark.parametrize("action", Action)
async def test_a_driver_that_acts_answers_with_a_sentence_and_another_refuses(bench: Bench, action: Action) -> None:
    if bench.driver.abilities.acts:
        assert await bench.driver.call(bench.order(action))
    else:
        with pytest.raises(GatewayRefused, match=r"set gateway\.driver"):
            await bench.driver.call(bench.order(action))


async def test_only_a_driver_that_calls_sends_anything_and_once(bench: Bench) -> None:
    if bench.driver.abilities.acts:
        await bench.driver.call(bench.order())

    assert bench.calls() == int(bench.driver.abilities.calls)


@pytest.mark.parametrize("action", Action)
async def test_a_driver_that_reads_back_sees_what_was_done_and_another_knows_nothing(
    bench: Bench, action: Action
) -> None:
    bench.record[order().target] = action is Action.RELEASE
    await bench.stand(action is Action.RELEASE)
    before = await bench.driver.observe(bench.order(action))
    if bench.driver.abilities.acts:
        await bench.driver.call(bench.order(action))
    bench.record[order().target] = action is Action.ISOLATE
    after = await bench.driver.observe(bench.order(action))

    if bench.driver.abilities.reads_back:
        assert before is not wished(action)
        assert before is not Seen.UNKNOWN
        assert after is wished(action)
    else:
        assert (before, after) == (Seen.UNKNOWN, Seen.UNKNOWN)


async def test_trouble_is_unknown_and_never_raised(bench: Bench) -> None:
    """Only a driver that calls can have any."""
    bench.fail()
    seen = await bench.driver.observe(bench.order())

    if bench.driver.abilities.calls:
        assert seen is Seen.UNKNOWN
        with pytest.raises(GatewayError):
            await bench.driver.call(bench.order())


async def test_who_is_there_follows_the_gateway_and_trouble_is_raised(bench: Bench) -> None:
    """A list that cannot be read is not an empty one: whoever asks has to know the difference."""
    if not isinstance(bench.driver, Tells):
        assert bench.driver.name not in {"haproxy", "vllm_router", "sglang_router"}
        return
    asked = [bench.node, "nobody"]
    for isolated in (False, True):
        await bench.stand(isolated)
        assert await bench.driver.present(asked) == (frozenset() if isolated else {bench.node})
    bench.fail()
    with pytest.raises(GatewayError):
        await bench.driver.present(asked)


async def test_a_rehearsal_tells_the_whole_call() -> None:
    told = DryRun().describe(order())

    assert told.startswith("would isolate http://node-a:8000 (target int4-a): {")
    assert '"decision_id": "d-20260101-000000-1f3a9c"' in told
