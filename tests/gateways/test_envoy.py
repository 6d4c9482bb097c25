"""The file driver and the real Envoy: traffic moves without a failed request, and no panic is taken for success."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from quantwatch.act.carry_out import carry_out
from quantwatch.act.contract import Driver, Seen
from quantwatch.act.template import Template, nodes_of
from quantwatch.cli.main import main
from quantwatch.clock import SystemClock
from quantwatch.config.load import load_settings
from quantwatch.flow.decision import Action, Intent, Outcome, Result
from quantwatch.wiring.drivers import driver
from quantwatch.wiring.tools import Tools
from support.daemons import Site, site
from support.envoy import BINARY, Envoy, Servers, envoy, servers
from support.gateway import MemoryLedger, order
from support.real_gateways import Traffic, traffic, wait_until

pytestmark = [pytest.mark.envoy, pytest.mark.skipif(BINARY is None, reason="no Envoy; see docs/gateways.md")]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gateways.md"
RECIPE = re.search(r"```jinja\n(\{# envoy: .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
assert RECIPE is not None
DRAINS = RECIPE[1]
"""As people copy it."""

MARKS_ILL = DRAINS.replace("DRAINING", "UNHEALTHY")
"""As the page says not to do it."""


@dataclass(slots=True)
class Scene:
    """An Envoy before three servers, and a configuration for it."""

    where: Site
    envoy: Envoy
    servers: Servers

    def addresses(self, *names: str) -> list[str]:
        """How Envoy names them."""
        return [self.servers.urls[name].removeprefix("http://") for name in names]

    async def carried(self, made: Driver, target: str, action: Action = Action.ISOLATE) -> Outcome:
        """An order carried out as the daemon does it."""
        clock = SystemClock()
        wanted = order(action, target=target, node=self.servers.urls[target], driver="file")
        return await carry_out(
            Intent(wanted, clock.now(), 0),
            made,
            MemoryLedger(),
            clock,
            give_up_seconds=60,
            wanted=lambda: None,
            tell=lambda _: None,
        )

    async def driver(self, stack: AsyncExitStack) -> Driver:
        """As the daemon makes it."""
        settings = load_settings(self.where.file, shipped={})
        tools = Tools(SystemClock(), Random(1))
        return await driver(settings, stack, tools, isolated=lambda _: False, folder=self.where.folder)


@contextmanager
def scene(folder: Path, template: str = DRAINS, *, threshold: int | None = None) -> Iterator[Scene]:
    (folder / "llm.j2").write_text(template)
    with servers("a", "b", "c") as made:
        gateway: dict[str, Any] = {"driver": "file", "path": "llm.yaml", "template": "llm.j2", "envoy_cluster": "llm"}
        pools = {"chat": {"mode": "enforce", "max_isolated": "70%"}}
        where = site(
            folder, "http://127.0.0.1:9", made.urls, gateway=gateway | {"envoy_admin": "http://x"}, pools=pools
        )
        settings = load_settings(where.file, shipped={})
        hosts = Template(template, list(nodes_of(settings))).text(())
        with envoy(folder, hosts, panic_threshold=threshold) as real:
            where.content["gateway"]["envoy_admin"] = real.admin
            where.write()
            wait_until(lambda: real.gauge("membership_healthy") == 3, "all were healthy")
            yield Scene(where, real, made)


async def answered_by(here: Scene, met: Traffic, *names: str) -> None:
    await asyncio.to_thread(met.only, *here.addresses(*names))


async def test_traffic_leaves_and_comes_back_without_a_failed_request(tmp_path: Path) -> None:
    with scene(tmp_path) as here, traffic(here.envoy.port) as met:
        async with AsyncExitStack() as stack:
            made = await here.driver(stack)
            out = await here.carried(made, "a")
            await answered_by(here, met, "b", "c")
            back = await here.carried(made, "a", Action.RELEASE)
            await answered_by(here, met, "a", "b", "c")

        assert (out.result, back.result) == (Result.VERIFIED, Result.VERIFIED)
        assert here.envoy.gauge("lb_healthy_panic") == 0
    assert met.failures == []


async def test_a_drained_node_that_a_panic_brings_back_counts_as_in_traffic(tmp_path: Path) -> None:
    """The others fail Envoy's own health check after the isolation was verified; a later look finds it."""
    with scene(tmp_path) as here, traffic(here.envoy.port) as met:
        async with AsyncExitStack() as stack:
            made = await here.driver(stack)
            out = await here.carried(made, "a")
            here.servers.ill |= {"b", "c"}
            await answered_by(here, met, "a", "b", "c")  # the drained one too
            isolated = order(target="a", driver="file")
            first = await made.observe(isolated)
            await asyncio.to_thread(met.next)
            panicking = await made.observe(isolated)
            here.servers.ill.clear()
            await answered_by(here, met, "b", "c")
            calm = await made.observe(isolated)

    assert out.result is Result.VERIFIED
    assert (first, panicking, calm) == (Seen.UNKNOWN, Seen.ROUTABLE, Seen.ISOLATED)


async def test_an_isolation_under_panic_is_contradicted(tmp_path: Path) -> None:
    with scene(tmp_path) as here, traffic(here.envoy.port) as met:
        here.servers.ill |= {"b", "c"}
        wait_until(lambda: here.envoy.gauge("membership_healthy") == 1, "two were ill")
        async with AsyncExitStack() as stack:
            outcome = await here.carried(await here.driver(stack), "a")
        answering = await asyncio.to_thread(met.next)

    assert outcome.result is Result.CONTRADICTED
    assert here.addresses("a")[0] in answering


async def test_without_a_panic_threshold_the_node_stays_out(tmp_path: Path) -> None:
    with scene(tmp_path, threshold=0) as here, traffic(here.envoy.port) as met:
        async with AsyncExitStack() as stack:
            made = await here.driver(stack)
            assert (await here.carried(made, "a")).result is Result.VERIFIED
            here.servers.ill |= {"b"}
            await answered_by(here, met, "c")
            assert await made.observe(order(target="a", driver="file")) is Seen.ISOLATED


def test_gateway_test_reports_a_panic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A template that marks hosts unhealthy, while another one is ill: Envoy sends to all three."""
    with scene(tmp_path, MARKS_ILL) as here, traffic(here.envoy.port):
        assert main(["gateway", "test", "--config", str(here.where.file), "--target", "a", "--yes"]) == 0
        here.servers.ill |= {"b"}
        wait_until(lambda: here.envoy.gauge("membership_healthy") == 2, "one was ill")
        capsys.readouterr()
        assert main(["gateway", "test", "--config", str(here.where.file), "--target", "a", "--yes"]) == 1

    told = capsys.readouterr().err
    assert "a: out: contradicted" in told
    assert "its state says routable" in told


async def test_an_envoy_that_does_not_answer_is_unknown(tmp_path: Path) -> None:
    with scene(tmp_path) as here:
        here.where.content["gateway"]["envoy_admin"] = "http://127.0.0.1:9"
        here.where.write()
        async with AsyncExitStack() as stack:
            outcome = await (await here.driver(stack)).observe(order(target="a", driver="file"))
    assert outcome is Seen.UNKNOWN
