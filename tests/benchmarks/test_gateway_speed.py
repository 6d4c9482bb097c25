"""How long a node stays in traffic once it is decided that it goes: from the order to what is read back as isolated.

The gateway's own share is what the same commands take without us; both are printed, and only their ratio is held.
"""

import asyncio
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from quantwatch.act.carry_out import carry_out
from quantwatch.act.contract import Driver
from quantwatch.act.file import Commands, FileDriver
from quantwatch.act.haproxy import HaproxyDriver, Runtime
from quantwatch.act.place import Place
from quantwatch.act.template import Node, Template
from quantwatch.clock import SystemClock
from quantwatch.flow.decision import Action, Intent, Order, Result
from support.gateway import MemoryLedger, order
from support.real_gateways import HAS_HAPROXY, HAS_NGINX, haproxy, nginx, small_servers, traffic

pytestmark = pytest.mark.benchmark

ROUNDS = 9
GENEROUS = 20.0
"""Times the gateway's own seconds: on a busy machine a thread and an fsync may wait long."""

TEMPLATE = """\
upstream llm {
{% for target in targets %}
  server {{ target.address }}{% if target.isolated %} down{% endif %};
{% endfor %}
}
"""


async def seconds_of(driver: Driver, orders: tuple[Order, Order]) -> float:
    """Median seconds of an isolation, brought to its verified end; each is released again."""
    times = []
    for _ in range(ROUNDS):
        for one in orders:
            clock, began = SystemClock(), time.perf_counter()
            intent = Intent(one, opened=clock.now())
            outcome = await carry_out(
                intent,
                driver,
                MemoryLedger(),
                clock,
                give_up_seconds=60.0,
                wanted=lambda: None,
                tell=lambda _: None,
            )
            assert outcome.result is Result.VERIFIED, outcome
            if one.action is Action.ISOLATE:
                times.append(time.perf_counter() - began)
    return statistics.median(times)


async def alone(action: Callable[[], Awaitable[object]]) -> float:
    """Median seconds of the gateway's own part."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await action()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def both(**given: Any) -> tuple[Order, Order]:
    """An isolation and its release."""
    return order(**given), order(Action.RELEASE, **given)


@pytest.mark.skipif(not HAS_HAPROXY, reason="HAProxy is not installed")
async def test_from_order_to_verified_isolation_at_haproxy() -> None:
    with small_servers("a", "b") as urls, haproxy(urls) as real, traffic(real.port) as met:
        runtime = Runtime(real.socket, 30.0)

        async def by_hand() -> None:
            await asyncio.to_thread(real.ask, "set server llm/a state drain")
            await asyncio.to_thread(real.ask, "show servers state llm")

        its_own = await alone(by_hand)
        whole = await seconds_of(HaproxyDriver(runtime, backend="llm"), both(node="a"))

    print(f"haproxy: order to verified isolation {whole * 1e3:.1f} ms, two commands by hand {its_own * 1e3:.1f} ms")  # noqa: T201, what it is for
    assert whole < GENEROUS * its_own
    assert met.failures == []


@pytest.mark.skipif(not HAS_NGINX, reason="nginx is not installed")
async def test_from_order_to_verified_isolation_at_nginx(tmp_path: Path) -> None:
    with small_servers("a", "b") as urls:
        nodes = [Node(name, "chat", urlsplit(url).netloc, url) for name, url in urls.items()]
        template = Template(TEMPLATE, nodes)
        with nginx(tmp_path, template.text(())) as real, traffic(real.port) as met:
            check, reload = real.command("-t", "-q"), real.command("-s", "reload")

            def by_hand() -> None:
                for command in (check, reload):
                    subprocess.run(command, check=True, capture_output=True)  # noqa: S603, nginx

            its_own = await alone(lambda: asyncio.to_thread(by_hand))
            driver = FileDriver(Place(real.file), template, Commands(check, reload, tmp_path, 30.0))
            whole = await seconds_of(driver, both(target="a"))

    print(f"nginx: order to verified isolation {whole * 1e3:.1f} ms, check and reload by hand {its_own * 1e3:.1f} ms")  # noqa: T201, what it is for
    assert whole < GENEROUS * its_own
    assert met.failures == []
