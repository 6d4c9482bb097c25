"""The file driver and the real nginx, with clients that never stop asking."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from quantwatch.act.contract import Seen, Unanswered
from quantwatch.act.file import Commands, FileDriver
from quantwatch.act.place import Place
from quantwatch.act.template import Node, Template
from quantwatch.errors import GatewayRefused
from quantwatch.flow.decision import Action
from support.gateway import order
from support.real_gateways import HAS_NGINX, Nginx, Traffic, nginx, small_servers, traffic

pytestmark = pytest.mark.skipif(not HAS_NGINX, reason="nginx is not installed")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gateways.md"
RECIPE = re.search(r"```jinja\n(\{# nginx: .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
assert RECIPE is not None
TEMPLATE = RECIPE[1]
"""As people copy it."""

ISOLATE, RELEASE = order(target="a"), order(Action.RELEASE, target="a")


@dataclass(slots=True)
class Scene:
    """An nginx before two servers, and what a driver is made from. addresses: of the servers, by name."""

    nginx: Nginx
    nodes: list[Node]
    met: Traffic

    def driver(self, template: str = TEMPLATE, *, reload: list[str] | None = None) -> FileDriver:
        """A driver as a new life makes it."""
        again = self.nginx.command("-s", "reload") if reload is None else reload
        commands = Commands(self.nginx.command("-t", "-q"), again, self.nginx.folder, 30.0)
        return FileDriver(Place(self.nginx.file), Template(template, self.nodes), commands)

    async def answered_by(self, *names: str) -> None:
        """Wait until the traffic goes to these alone; old workers finish what they have."""
        addresses = [one.address for one in self.nodes if one.name in names]
        await asyncio.to_thread(self.met.only, *addresses)


@contextmanager
def scene(folder: Path) -> Iterator[Scene]:
    with small_servers("a", "b") as urls:
        nodes = [Node(name, "chat", urlsplit(url).netloc, url) for name, url in urls.items()]
        with nginx(folder, Template(TEMPLATE, nodes).text(())) as real, traffic(real.port) as met:
            yield Scene(real, nodes, met)


async def test_traffic_leaves_and_comes_back_without_a_failed_request(tmp_path: Path) -> None:
    with scene(tmp_path) as here:
        driver = here.driver()
        await here.answered_by("a", "b")
        await driver.call(ISOLATE)
        isolated = await driver.observe(ISOLATE)
        await here.answered_by("b")
        await driver.call(RELEASE)
        released = await driver.observe(RELEASE)
        await here.answered_by("a", "b")

    assert (isolated, released) == (Seen.ISOLATED, Seen.ROUTABLE)
    assert here.met.failures == []


async def test_what_nginx_refuses_leaves_file_and_traffic_as_they_were(tmp_path: Path) -> None:
    with scene(tmp_path) as here:
        driver = here.driver(TEMPLATE.replace(" down", " weight=none"))
        before = here.nginx.file.read_bytes()
        with pytest.raises(GatewayRefused, match=r'gateway\.validate_command: nginx ended with 1: .*"weight=none"'):
            await driver.call(ISOLATE)
        seen = await driver.observe(ISOLATE)
        await here.answered_by("a", "b")
        by_hand = await asyncio.create_subprocess_exec(*here.nginx.command("-s", "reload"))
        reloaded = await by_hand.wait()
        await here.answered_by("a", "b")

    assert seen is Seen.ROUTABLE
    assert here.nginx.file.read_bytes() == before
    assert reloaded == 0
    assert here.met.failures == []


async def test_a_driver_killed_before_the_reload_knows_nothing_and_a_repeated_call_ends_as_wished(
    tmp_path: Path,
) -> None:
    with scene(tmp_path) as here:
        with pytest.raises(Unanswered):
            await here.driver(reload=["false"]).call(ISOLATE)
        seen = await here.driver().observe(ISOLATE)
        await here.answered_by("a", "b")
        await here.driver().call(ISOLATE)
        again = await here.driver().observe(ISOLATE)
        await here.answered_by("b")

    assert (seen, again) == (Seen.UNKNOWN, Seen.ISOLATED)
    assert here.met.failures == []


LIFE = """\
import asyncio, json, sys
from pathlib import Path
from quantwatch.act.file import Commands, FileDriver
from quantwatch.act.place import Place
from quantwatch.act.template import Node, Template
from support.gateway import order
file, template, nodes, validate, reload = json.loads(sys.argv[1])
commands = Commands(validate, reload, Path(file).parent, 30.0)
driver = FileDriver(Place(Path(file)), Template(template, [Node(*one) for one in nodes]), commands)
asyncio.run(driver.call(order(target="a")))
"""
KILLS = ["sh", "-c", "kill -9 $PPID"]


@pytest.mark.parametrize("killed_at", ["validate", "reload"])
async def test_a_process_killed_after_writing_leaves_what_the_next_one_ends(tmp_path: Path, killed_at: str) -> None:
    with scene(tmp_path) as here:
        nodes = [(one.name, one.pool, one.gateway_name, one.url) for one in here.nodes]
        validate, reload = (KILLS, ["true"]) if killed_at == "validate" else (["true"], KILLS)
        given = json.dumps([str(here.nginx.file), TEMPLATE, nodes, validate, reload])
        life = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LIFE, given, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        )
        code = await life.wait()
        seen = await here.driver().observe(ISOLATE)
        await here.answered_by("a", "b")
        await here.driver().call(ISOLATE)
        again = await here.driver().observe(ISOLATE)
        await here.answered_by("b")

    assert code == -signal.SIGKILL
    assert (seen, again) == (Seen.UNKNOWN, Seen.ISOLATED)
    assert here.met.failures == []


async def test_a_reload_by_somebody_else_forgets_nothing(tmp_path: Path) -> None:
    with scene(tmp_path) as here:
        await here.driver().call(ISOLATE)
        process = await asyncio.create_subprocess_exec(*here.nginx.command("-s", "reload"))
        await process.wait()
        seen = await here.driver().observe(ISOLATE)
        await here.answered_by("b")

    assert seen is Seen.ISOLATED
    assert here.met.failures == []
