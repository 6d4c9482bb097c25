"""Marked requests through real gateways that name who answers: after an isolation they meet others, or contradict."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from quantwatch.act.carry_out import LOOKS, carry_out
from quantwatch.act.contract import Driver
from quantwatch.act.file import Commands, FileDriver
from quantwatch.act.haproxy import HaproxyDriver, Runtime
from quantwatch.act.place import Place
from quantwatch.act.template import Node, Template
from quantwatch.act.traffic import MARK, Probed, Question, TrafficProbe, names_of
from quantwatch.cli.main import main
from quantwatch.clock import SystemClock
from quantwatch.flow.decision import Intent, Outcome, Result
from quantwatch.flow.state import Routing
from quantwatch.net import Endpoint, Limits, Link
from quantwatch.record.archive import Archive
from support.daemons import Site, inside, site
from support.gateway import MemoryLedger, order
from support.real_gateways import HAS_HAPROXY, HAS_NGINX, SERVED_BY, Haproxy, haproxy, nginx, traffic
from support.routers import Worker, worker
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode

HAPROXY = pytest.mark.skipif(not HAS_HAPROXY, reason="HAProxy is not installed")
NGINX = pytest.mark.skipif(not HAS_NGINX, reason="nginx is not installed")
REQUESTS = 6
TEMPLATE = """\
upstream llm {
{% for target in targets %}
  server {{ target.address }}{% if target.isolated %} down{% endif %};
{% endfor %}
}
"""


class Brisk(SystemClock):
    """A clock on which the looks at a gateway follow one another sooner."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await SystemClock.sleep(self, 0.1 if seconds in LOOKS else seconds)


@dataclass(slots=True)
class Scene:
    """Two nodes and a HAProxy before them."""

    workers: dict[str, Worker]
    real: Haproxy

    @property
    def urls(self) -> dict[str, str]:
        """The nodes' addresses."""
        return {name: one.url for name, one in self.workers.items()}

    def driver(self, backend: str = "llm") -> HaproxyDriver:
        """A driver of that backend."""
        return HaproxyDriver(Runtime(self.real.socket, 30.0), backend=backend)


@contextmanager
def scene(*, names_servers: bool = True) -> Iterator[Scene]:
    with ExitStack() as stack:
        workers = {name: stack.enter_context(worker()) for name in ("a", "b")}
        urls = {name: one.url for name, one in workers.items()}
        yield Scene(workers, stack.enter_context(haproxy(urls, names_servers=names_servers)))


async def isolated(driver: Driver, port: int, urls: dict[str, str], *, header: str = SERVED_BY) -> Outcome:
    """Carry out the isolation of a."""
    clock = Brisk()
    names = {name: names_of(name, None, url) for name, url in urls.items()}
    there = Endpoint("gateway (traffic)", f"http://127.0.0.1:{port}")
    async with Link(there, Limits(5.0, 20.0, attempts=1)) as link:
        probe = TrafficProbe(link, Question("tiny", header, requests=REQUESTS), names)
        return await carry_out(
            Intent(order(node="a", target="a"), clock.now()),
            Probed(driver, probe),
            MemoryLedger(),
            clock,
            give_up_seconds=3600.0,
            wanted=lambda: None,
            tell=lambda _: None,
        )


def marked(one: Worker) -> int:
    """How many marked requests a node was asked."""
    return sum(1 for headers in one.asked if {key.lower() for key in headers} & {MARK.lower()})


@HAPROXY
async def test_haproxy_sends_no_marked_request_to_who_is_out() -> None:
    with scene() as here, traffic(here.real.port, path="/health") as met:
        outcome = await isolated(here.driver(), here.real.port, here.urls)

    assert outcome.result is Result.VERIFIED
    assert outcome.detail.endswith(f"and its state says isolated; {REQUESTS} marked requests were answered by others")
    assert (marked(here.workers["a"]), marked(here.workers["b"])) == (0, REQUESTS)
    assert met.failures == []


@HAPROXY
async def test_an_isolation_in_a_backend_that_nobody_uses_is_contradicted() -> None:
    """The socket says yes, its state says yes, and the users still meet the node."""
    with scene() as here:
        outcome = await isolated(here.driver("unused"), here.real.port, here.urls)

    assert (outcome.result, outcome.doubt) == (Result.CONTRADICTED, True)
    assert "its state says isolated, but marked request" in outcome.detail
    assert outcome.detail.endswith("was answered by a")
    assert marked(here.workers["a"]) >= 1


@HAPROXY
@pytest.mark.parametrize(("names_servers", "header"), [(False, SERVED_BY), (True, "x-other")])
async def test_a_gateway_that_names_nobody_leaves_it_at_what_was_read_back(names_servers: bool, header: str) -> None:
    with scene(names_servers=names_servers) as here:
        outcome = await isolated(here.driver("unused"), here.real.port, here.urls, header=header)

    assert outcome.result is Result.VERIFIED
    assert outcome.detail.endswith(f"marked requests tell nothing: no header {header} in the answer")
    assert marked(here.workers["a"]) + marked(here.workers["b"]) == 1


@NGINX
@pytest.mark.parametrize("template", [TEMPLATE, TEMPLATE.replace(" down", " weight=2")], ids=["right", "lies"])
async def test_nginx_names_addresses_and_a_template_that_takes_nobody_out_is_found(
    tmp_path: Path, template: str
) -> None:
    with ExitStack() as stack:
        workers = {name: stack.enter_context(worker()) for name in ("a", "b")}
        urls = {name: one.url for name, one in workers.items()}
        made = Template(template, [Node(name, "chat", urlsplit(url).netloc, url) for name, url in urls.items()])
        real = stack.enter_context(nginx(tmp_path, made.text(())))
        commands = Commands(real.command("-t", "-q"), real.command("-s", "reload"), tmp_path, 30.0)
        outcome = await isolated(FileDriver(Place(real.file), made, commands), real.port, urls)

    if template == TEMPLATE:
        # the old worker may answer for a moment after the reload, which the looks one after another allow for
        assert outcome.result is Result.VERIFIED, outcome
        assert outcome.detail.endswith(f"{REQUESTS} marked requests were answered by others")
    else:
        assert outcome.result is Result.CONTRADICTED
        assert outcome.detail.endswith(f"was answered by {urlsplit(urls['a']).netloc}")


def configured(folder: Path, baseline: str, urls: dict[str, str], real: Haproxy, **gateway: Any) -> Site:
    """A site whose gateway is this HAProxy, with marked requests."""
    probe = {"url": f"http://127.0.0.1:{real.port}", "model": "tiny", "node_header": SERVED_BY, "requests": REQUESTS}
    given = {"driver": "haproxy", "socket": real.socket, "backend": "llm", "traffic_probe": probe, **gateway}
    pool = {"mode": "enforce", "max_isolated": "50%"}
    where = site(folder, baseline, urls, pools={"chat": pool}, gateway=given)
    for target in where.content["targets"]:
        target["gateway_name"] = target["name"]
    return where.write()


@HAPROXY
@pytest.mark.parametrize("backend", ["llm", "unused"])
async def test_a_daemon_writes_what_the_traffic_says_into_the_order(tmp_path: Path, backend: str) -> None:
    with (
        served(TinyNode()) as baseline,
        served(node()) as good,
        served(node(1.5)) as bad,
        haproxy({"a": good, "b": bad}) as real,
        traffic(real.port, path="/version") as met,
    ):
        where = configured(tmp_path, baseline, {"a": good, "b": bad}, real, backend=backend)
        async with inside(where, clock=Brisk()) as daemon:
            watch = daemon.desk.watch
            assert watch is not None
            for target in ("a", "b"):
                await daemon.desk.run_now(target, None)
                await watch.idle()
            await watch.outbox.idle()
            routing = daemon.memory.targets["b"].routing

    with Archive.open(where.store) as archive:
        (intent,) = [one.intent for one in archive.decisions(target="b", limit=None) if one.intent is not None]
    assert intent.outcome is not None
    if backend == "llm":
        assert (routing, intent.outcome.result) == (Routing.OUT, Result.VERIFIED)
        assert intent.outcome.detail.endswith(f"{REQUESTS} marked requests were answered by others")
    else:
        assert (routing, intent.outcome.result) == (Routing.CONTRADICTED, Result.CONTRADICTED)
        assert intent.outcome.detail.endswith("was answered by b")
    assert met.failures == []


@HAPROXY
def test_a_rehearsal_shows_it_as_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with scene() as here:
        where = configured(tmp_path, "http://127.0.0.1:9", here.urls, here.real)
        asked = ["gateway", "test", "--config", str(where.file), "--target", "a", "--yes", "--json", "-"]
        code = main(asked)
    (one,) = json.loads(capsys.readouterr().out)["rehearsals"]

    assert (code, one["proven"]) == (0, True)
    assert [step["what"] for step in one["steps"]] == [
        "look",
        "isolate",
        "read back",
        "traffic",
        "release",
        "read back",
    ]
    assert [step["said"] for step in one["steps"] if step["what"] == "traffic"] == [
        f"{REQUESTS} marked requests were answered by others"
    ]
