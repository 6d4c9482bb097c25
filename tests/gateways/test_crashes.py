"""SIGKILL within an order at a real gateway: afterwards one effect, the gateway as decided, one complete record.

tests/daemon/test_crash_matrix.py has every point and the webhook; here each real program is held to the four that
differ at a gateway: before the decision, before the call, after the answer, after the end is written.
"""

import asyncio
import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from quantwatch.act.file import Commands, FileDriver
from quantwatch.act.place import Place as File
from quantwatch.act.template import Node, Template
from quantwatch.cli.main import main
from quantwatch.cli.store import app
from quantwatch.flow.decision import Action, Result, Ruling
from quantwatch.flow.state import Axis, Routing
from quantwatch.record.archive import Archive, StoredDecision
from support.crashing import Life, Point
from support.daemons import PATIENCE, Site, free_port, site, write_prompts
from support.gateway import order
from support.lives import KILLED, Lives, forked
from support.real_gateways import HAS_HAPROXY, HAS_NGINX, SERVED_BY, Haproxy, haproxy, nginx, small_servers
from support.routers import DRIVERS, Running, ask, program, worker
from support.stored import opened

POINTS = (Point.BEFORE_DECISION, Point.BEFORE_SEND, Point.AFTER_REPLY, Point.AFTER_SETTLE)
UNSENT = (Point.BEFORE_DECISION, Point.BEFORE_SEND)
TEXTS = ("A lamp", "A ship", "17 + 25", "SELECT", "Dear", "def f")
TASK_SET = {"draw": 24, "k": 5, "continuation_tokens": 6, "limits": {"kl_mean": {"warn": 1e-4, "critical": 2e-4}}}
POOL = {"mode": "enforce", "fallback": "baseline", "release_after": 1, "minimum_hold": "0s"}
PATHS = {
    Action.ISOLATE: [("in", "leaving"), ("leaving", "out")],
    Action.RELEASE: [("out", "returning"), ("returning", "in")],
}


@dataclass(slots=True)
class Place:
    """A real gateway before two nodes. node: what it calls ours. out: whether ours is out of it now. put: by hand.

    gateway, server: blocks of the configuration. files: more files beside it. told: what it was told last, where the
    traffic follows that by and by.
    """

    node: str
    gateway: Mapping[str, Any]
    out: Callable[[], bool]
    put: Callable[[bool], object]
    server: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    told: Callable[[], bool] | None = None

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
            yield Place(ours, gateway, out, put, files={"llm.j2": text}, told=lambda: " down" in real.file.read_text())


@contextmanager
def at_router(kind: str, folder: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        ours, other = (stack.enter_context(worker()).url for _ in range(2))
        router = Running(kind, [ours, other], folder)
        stack.callback(router.stop)
        router.start()

        def put(away: bool) -> None:
            listed = [one for one in router.entries() if one["url"] == ours]
            if away and listed and kind == "vllm_router":
                ask("POST", f"{router.url}/remove_worker?url={ours}")
            elif away and listed:
                ask("DELETE", f"{router.url}/workers/{listed[0]['id']}")
            elif not away and not listed:
                ask("POST", f"{router.url}/workers", json={"url": ours})

        yield Place(ours, {"driver": kind, "url": router.url}, lambda: ours not in router.healthy(), put)


PLACES: dict[str, tuple[bool, Callable[[Path], AbstractContextManager[Place]]]] = {
    "haproxy": (HAS_HAPROXY, at_haproxy),
    "verdict": (HAS_HAPROXY, at_agent_check),
    "file": (HAS_NGINX, at_nginx),
    **{kind: (program(kind) is not None, partial(at_router, kind)) for kind in DRIVERS},
}


@pytest.fixture(scope="module")
def lives() -> Iterator[Lives]:
    with forked() as made:
        yield made


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    installed, maker = PLACES[request.param]
    if not installed:
        pytest.skip(f"what {request.param} speaks to is not installed")
    with maker(tmp_path_factory.mktemp(request.param)) as made:
        yield made


def prepared(folder: Path, place: Place) -> Site:
    """A pool of one node that breaches any limit when it is sick, and acts through the gateway."""
    write_prompts(folder, texts=TEXTS)
    urls, server = {"node": "http://node"}, dict(place.server)
    where = site(folder, "http://baseline", urls, gateway=dict(place.gateway), pools={"chat": POOL}, server=server)
    write_prompts(folder, texts=TEXTS)
    where.content["task_sets"]["letters"] |= TASK_SET
    where.content["targets"][0]["gateway_name"] = place.node
    for name, text in place.files.items():
        (folder / name).write_text(text)
    return where.write()


@pytest.fixture(scope="module")
def earlier(place: Place, lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> dict[Action, Path]:
    """Stores of earlier lives: the baseline proven by a clean run, and after that the node isolated."""
    place.stands(out=False)
    where, stores = prepared(tmp_path_factory.mktemp("earlier"), place), {}
    for seed, action in enumerate((Action.ISOLATE, Action.RELEASE), 100):
        assert lives.live(Life(str(where.file), seed, sick=action is Action.RELEASE)) == 0
        stores[action] = Path(shutil.copy(where.store, where.folder / f"{action}.db"))
    place.until(out=True)
    return stores


class Changes:
    """Looks at the gateway all the time; seen: how our node stood, one after another."""

    def __init__(self, place: Place) -> None:
        self._look_now, self._stop = place.told or place.out, threading.Event()
        self.seen = [self._look_now()]
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Changes":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)

    def _look(self) -> None:
        while not self._stop.wait(0.04):
            out = self._look_now()
            if out is not self.seen[-1]:
                self.seen.append(out)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("action", list(Action))
def test_a_process_killed_within_an_order_acts_once_after_its_restart(
    point: Point,
    action: Action,
    place: Place,
    earlier: dict[Action, Path],
    lives: Lives,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    isolates, seeds = action is Action.ISOLATE, itertools.count(2)
    where = prepared(tmp_path, place)
    shutil.copy(earlier[action], where.store)
    place.stands(out=not isolates)

    def life(end: Point) -> int:
        return lives.live(Life(str(where.file), next(seeds), end, sick=isolates))

    with Changes(place) as changes:
        assert life(point) == KILLED
        if point in UNSENT and place.gateway["driver"] != "verdict":  # there the record is all that HAProxy hears
            assert place.out() is not isolates
        assert life(Point.NEVER) == 0
        place.until(out=isolates)
    assert changes.seen in ([not isolates, isolates], [not isolates])  # it may have ended between two looks
    check_record(where, action, sent=point not in UNSENT)
    assert main(["check", "--store", str(where.store)], commands=app) == 0
    assert "is sound" in capsys.readouterr().out


def check_record(where: Site, action: Action, *, sent: bool) -> None:
    """One decision, one order with its end, one way of the routing."""
    with Archive.open(where.store) as archive:
        (decision,) = [one for one in archive.decisions() if one.action is action]
    intent = decision.intent
    assert (decision.ruling, decision.objections) == (Ruling.ACT, ())
    assert intent is not None
    assert intent.outcome is not None
    assert (intent.outcome.result, intent.outcome.doubt) == (Result.VERIFIED, False)
    assert intent.outcome.attempts == intent.attempts
    assert intent.attempts == 1 if sent else intent.attempts in (1, 2)
    routing = [one for one in decision.transitions if one.axis is Axis.ROUTING]
    assert [(one.old, one.new) for one in routing] == PATHS[action]
    _check_target(where, decision, isolates=action is Action.ISOLATE)


def _check_target(where: Site, decision: StoredDecision, *, isolates: bool) -> None:
    with opened(where.folder, name="quantwatch.db") as store:
        (state,) = store.target_states()
        assert store.open_intents() == []
    assert (state.routing, state.owner) == ((Routing.OUT, decision.id) if isolates else (Routing.IN, None))
    assert state.ejections == 1
