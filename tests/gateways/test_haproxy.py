"""The haproxy driver and the real program, with clients that never stop asking."""

import asyncio
from collections.abc import Iterator

import pytest

from quantwatch.act.contract import Seen, Unanswered
from quantwatch.act.haproxy import HaproxyDriver, Runtime
from quantwatch.config.gateway import Leave
from quantwatch.errors import GatewayRefused
from quantwatch.flow.decision import Action
from support.gateway import order
from support.real_gateways import HAS_HAPROXY, Haproxy, haproxy, small_servers, traffic

pytestmark = pytest.mark.skipif(not HAS_HAPROXY, reason="HAProxy is not installed")

ISOLATE, RELEASE = order(node="a"), order(Action.RELEASE, node="a")


@pytest.fixture(params=[False, True], ids=["forgets", "keeps states"])
def keeps_states(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def real() -> Iterator[Haproxy]:
    with small_servers("a", "b") as urls, haproxy(urls) as running:
        yield running


def driver_of(socket: str, leave: Leave = Leave.DRAIN) -> HaproxyDriver:
    return HaproxyDriver(Runtime(socket, 20.0), backend="llm", leave=leave)


@pytest.mark.parametrize("leave", Leave)
async def test_traffic_leaves_and_comes_back_without_a_failed_request(real: Haproxy, leave: Leave) -> None:
    driver = driver_of(real.socket, leave)
    with traffic(real.port, keep=2) as met:
        both = await asyncio.to_thread(met.next)
        await driver.call(ISOLATE)
        isolated = await driver.observe(ISOLATE)
        one = await asyncio.to_thread(met.next)
        await driver.call(RELEASE)
        released = await driver.observe(RELEASE)
        again = await asyncio.to_thread(met.next)

    assert (isolated, released) == (Seen.ISOLATED, Seen.ROUTABLE)
    assert (set(both), set(one), set(again)) == ({"a", "b"}, {"b"}, {"a", "b"})
    assert met.failures == []


async def test_every_order_may_be_repeated(real: Haproxy) -> None:
    driver = driver_of(real.socket)
    for one in (ISOLATE, ISOLATE, RELEASE, RELEASE):
        await driver.call(one)

    assert await driver.observe(RELEASE) is Seen.ROUTABLE


async def test_the_runtime_socket_may_be_a_port(real: Haproxy) -> None:
    driver = driver_of(f"127.0.0.1:{real.runtime_port}")

    await driver.call(ISOLATE)

    assert await driver.observe(ISOLATE) is Seen.ISOLATED
    assert await driver_of(real.socket).observe(ISOLATE) is Seen.ISOLATED


REFUSED = [("c", "No such server"), ("chat/a", "No such backend"), ("llm/a,llm/c", "No such server")]


@pytest.mark.parametrize(("name", "said"), REFUSED)
async def test_a_name_that_is_not_there_is_refused_and_nothing_is_changed(real: Haproxy, name: str, said: str) -> None:
    driver = driver_of(real.socket)

    with pytest.raises(GatewayRefused, match=said):
        await driver.call(order(node=name))

    assert await driver.observe(order(node=name)) is Seen.UNKNOWN
    assert await driver.observe(ISOLATE) is Seen.ROUTABLE


async def test_a_socket_below_level_admin_reads_and_does_nothing(real: Haproxy) -> None:
    driver = driver_of(real.operator_socket)

    with pytest.raises(GatewayRefused, match=r"Permission denied.*`level admin`"):
        await driver.call(ISOLATE)

    assert await driver.observe(ISOLATE) is Seen.ROUTABLE


async def test_a_haproxy_that_is_gone_got_nothing(real: Haproxy) -> None:
    driver = driver_of(real.socket)
    real.process.kill()
    real.process.wait()
    real.folder.joinpath("admin.sock").unlink()

    with pytest.raises(Unanswered) as caught:
        await driver.call(ISOLATE)

    assert caught.value.arrived is False
    assert await driver.observe(ISOLATE) is Seen.UNKNOWN


async def test_a_reload_forgets_unless_states_are_kept(keeps_states: bool) -> None:
    with (
        small_servers("a", "b") as urls,
        haproxy(urls, keeps_states=keeps_states) as real,
        traffic(real.port) as met,
    ):
        driver = driver_of(real.socket)
        await driver.call(ISOLATE)
        real.keep_states()
        await asyncio.to_thread(real.reload)
        seen = await driver.observe(ISOLATE)
        await asyncio.to_thread(met.only, "b") if keeps_states else await asyncio.to_thread(met.only, "a", "b")

    assert seen is (Seen.ISOLATED if keeps_states else Seen.ROUTABLE)
    assert met.failures == []


async def test_who_is_there_is_told_by_the_real_program(real: Haproxy) -> None:
    """Drained by anybody's hand, never configured, in a backend that is not: none of them gets a request."""
    driver = driver_of(real.socket)
    asked = ["a", "b", "llm/a,llm/b", "c", "chat/a"]
    assert await driver.present(asked) == {"a", "b", "llm/a,llm/b"}
    await Runtime(real.socket, 20.0).ask("set server llm/b state drain")
    assert await driver.present(asked) == {"a"}
    await Runtime(real.socket, 20.0).ask("set server llm/b state ready")
    assert await driver.present(asked) == {"a", "b", "llm/a,llm/b"}


async def test_a_server_that_a_health_check_has_taken_down_is_not_there(real: Haproxy) -> None:
    runtime = Runtime(real.socket, 20.0)
    assert await runtime.ask("set server llm/b health down") == ""
    assert await driver_of(real.socket).present(["a", "b"]) == {"a"}
