"""Every gateway of the proven drivers, running before two nodes of which one is ours, by any driver's settings."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from quantwatch.act.file import Commands, FileDriver
from quantwatch.act.place import Place as File
from quantwatch.act.template import Node, Template
from quantwatch.flow.decision import Action
from support.daemons import PATIENCE, free_port
from support.gateway import Gateway, order, served_gateway
from support.real_gateways import HAS_HAPROXY, HAS_NGINX, SERVED_BY, Haproxy, haproxy, nginx, small_servers
from support.routers import DRIVERS, Running, ask, program, worker


@dataclass(slots=True)
class Place:
    """A real gateway before two nodes. node: what it calls ours. out: whether ours is out of it now. put: by hand.

    gateway, server: blocks of the configuration. files: more files beside it. told: what it was told last, where the
    traffic follows that by and by. alone: an isolation and its read-back without us, where `put` is another thing.
    """

    node: str
    gateway: Mapping[str, Any]
    out: Callable[[], bool]
    put: Callable[[bool], object]
    server: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    told: Callable[[], bool] | None = None
    alone: Callable[[], object] | None = None

    def stands(self, *, out: bool) -> None:
        """Let our node stand so, by hand."""
        self.put(out)
        self.until(out=out)

    def until(self, *, out: bool) -> None:
        """Wait until it stands so."""
        late = time.monotonic() + PATIENCE
        while self.out() is not out:
            assert time.monotonic() < late, f"never {'out' if out else 'in'}"
            time.sleep(0.02)


@contextmanager
def at_haproxy(_: Path) -> Iterator[Place]:
    with small_servers("ours", "other") as urls, haproxy(urls) as real:
        yield Place(
            "ours",
            {"driver": "haproxy", "socket": real.socket, "backend": "llm"},
            lambda: column(real, "srv_admin_state") != "0",
            lambda out: real.ask(f"set server llm/ours state {'drain' if out else 'ready'}"),
        )


@contextmanager
def at_agent_check(_: Path) -> Iterator[Place]:
    """HAProxy asks; by hand its weight is what the agent would have said."""
    port = free_port()
    agent = f'agent-check agent-addr 127.0.0.1 agent-port {port} agent-inter 20ms agent-send "node\\n"'
    with small_servers("ours", "other") as urls, haproxy(urls, options={"ours": agent}) as real:
        yield Place(
            "ours",
            {"driver": "verdict"},
            lambda: column(real, "srv_uweight") == "0",
            lambda out: real.ask(f"set weight llm/ours {0 if out else 1}"),
            server={"agent_listen": f"127.0.0.1:{port}"},
        )


def column(real: Haproxy, name: str) -> str:
    """What the state of our server says in one column."""
    head, *lines = real.ask("show servers state llm").splitlines()[1:]
    (ours,) = [line.split() for line in lines if " ours " in line]
    return ours[head.removeprefix("# ").split().index(name)]


TEMPLATE = """\
upstream llm {
{% for target in targets %}
  server {{ target.gateway_name }}{% if target.isolated %} down{% endif %};
{% endfor %}
  server OTHER;
}
"""


def answered(port: int) -> str | None:
    """Who answers one request."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", "/", headers={"Connection": "close"})
    told = connection.getresponse().headers.get(SERVED_BY)
    connection.close()
    return told


@contextmanager
def at_nginx(folder: Path) -> Iterator[Place]:
    with small_servers("ours", "other") as urls:
        ours, other = (urlsplit(url).netloc for url in urls.values())
        text = TEMPLATE.replace("OTHER", other)
        made = Template(text, [Node("node", "chat", ours, "http://node")])
        with nginx(folder, made.text(())) as real:
            check, reload = real.command("-t", "-q"), real.command("-s", "reload")
            driver = FileDriver(File(real.file), made, Commands(check, reload, folder, 30.0))

            def out() -> bool:
                """Nginx tells nobody who is down; its answers do."""
                return ours not in {answered(real.port) for _ in range(4)}

            def put(away: bool) -> None:
                asyncio.run(driver.call(order(Action.ISOLATE if away else Action.RELEASE, target="node")))

            gateway: dict[str, Any] = {"driver": "file", "path": str(real.file), "template": "llm.j2"}
            gateway |= {"validate_command": check, "reload_command": reload}

            def alone() -> None:
                for command in (check, reload):
                    subprocess.run(command, check=True, capture_output=True)  # noqa: S603, nginx

            def told() -> bool:
                return " down" in real.file.read_text()

            yield Place(ours, gateway, out, put, files={"llm.j2": text}, told=told, alone=alone)


@contextmanager
def at_router(kind: str, folder: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        ours, other = (stack.enter_context(worker()).url for _ in range(2))
        router = Running(kind, [ours, other], folder)
        stack.callback(router.stop)
        router.start()

        def put(away: bool) -> None:
            found = [one for one in router.entries() if one["url"] == ours]
            if away and found and kind == "vllm_router":
                ask("POST", f"{router.url}/remove_worker?url={ours}")
            elif away and found:
                ask("DELETE", f"{router.url}/workers/{found[0]['id']}")
            elif not away and not found:
                ask("POST", f"{router.url}/workers", json={"url": ours})

        client = stack.enter_context(httpx.Client(base_url=router.url, trust_env=False))

        def listed() -> dict[str, str]:
            return {one["url"]: one.get("id", "") for one in client.get("/workers").json()["workers"]}

        def alone() -> None:
            if kind == "vllm_router":
                client.post("/remove_worker", params={"url": ours})
            else:
                client.delete(f"/workers/{listed()[ours]}")
            while ours in listed():
                pass

        given = {"driver": kind, "url": router.url}
        yield Place(ours, given, lambda: ours not in router.healthy(), put, alone=alone)


@contextmanager
def at_webhook(_: Path) -> Iterator[Place]:
    """The stand-in: every receiver is another program."""
    gateway = Gateway()
    with served_gateway(gateway) as server, httpx.Client(trust_env=False) as client:

        def put(away: bool) -> None:
            gateway.isolated["ours"] = away

        def alone() -> None:
            client.post(f"{server.url}/act", json={"node_endpoint": "ours", "action": "isolate"})
            client.get(f"{server.url}/state", params={"node_endpoint": "ours"})

        given = {"driver": "webhook", "url": f"{server.url}/act", "state_url": f"{server.url}/state"}
        yield Place("ours", given, lambda: gateway.stands("ours"), put, alone=alone)


PLACES: dict[str, tuple[bool, Callable[[Path], AbstractContextManager[Place]]]] = {
    "webhook": (True, at_webhook),
    "haproxy": (HAS_HAPROXY, at_haproxy),
    "verdict": (HAS_HAPROXY, at_agent_check),
    "file": (HAS_NGINX, at_nginx),
    **{kind: (program(kind) is not None, partial(at_router, kind)) for kind in DRIVERS},
}
"""By driver: whether its gateway is installed, and what runs it."""
