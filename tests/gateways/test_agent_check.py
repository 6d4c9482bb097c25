"""HAProxy asks us by agent-check: what isolates, what only looks like it, and that our silence takes nobody out."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from quantwatch.daemon.agent import AgentListener
from quantwatch.expose.meters import Meters
from quantwatch.flow.board import Board
from quantwatch.flow.decision import Action, Result
from quantwatch.flow.state import Routing
from quantwatch.record.archive import Archive
from support.boards import board, isolated, starting, target_board
from support.daemons import free_port, inside, site, until
from support.real_gateways import HAS_HAPROXY, Haproxy, Traffic, haproxy, small_servers, traffic
from support.runs import node
from support.served import served
from support.tiny_node import TinyModel, TinyNode

pytestmark = pytest.mark.skipif(not HAS_HAPROXY, reason="HAProxy is not installed")

POOL = {"mode": "enforce", "max_isolated": "50%", "release_after": 1, "minimum_hold": "0s"}


PAGE = Path(__file__).resolve().parents[2] / "docs" / "gateways.md"
FOUND = re.search(r"^  server int8-a \S+ (check agent-check .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
assert FOUND is not None
RECIPE = FOUND[1]
"""As people copy it."""


def asking(port: int, *names: str, check: str = "inter 50ms") -> dict[str, str]:
    """Options of servers that ask an agent on this port, as people copy them, but oftener."""
    options = RECIPE.replace("9471", str(port)).replace("agent-inter 2s", "agent-inter 50ms")
    return {name: f"{options.replace('llama-int8-a', name)} {check}" for name in names}


def status(real: Haproxy, server: str) -> str:
    """What `show stat` says of a server: UP, DOWN, DRAIN, or `no check` where HAProxy looks at nothing itself."""
    head, *lines = [line.split(",") for line in real.ask("show stat").splitlines() if line]
    return next(line[head.index("status")] for line in lines if line[:2] == ["llm", server])


@dataclass(slots=True)
class Scene:
    """HAProxy before two servers, traffic, and an agent that answers out of `shown`. asked: how often it was asked."""

    urls: dict[str, str]
    shown: Board = field(default_factory=lambda: board(target_board("a"), target_board("b")))
    asked: int = 0
    agent: AgentListener = field(init=False)
    real: Haproxy = field(init=False)
    met: Traffic = field(init=False)

    def __post_init__(self) -> None:
        self.agent = AgentListener("127.0.0.1:0", self._board, Meters(), key="server.agent_listen")

    def _board(self) -> Board:
        self.asked += 1
        return self.shown

    async def answered_by(self, *names: str) -> None:
        """Wait until the traffic goes to these alone."""
        await asyncio.to_thread(self.met.only, *names)

    async def heard(self, shown: Board) -> None:
        """Show another board, and wait until HAProxy has heard it of both servers."""
        self.shown, before = shown, self.asked
        await until(lambda: self.asked >= before + 8)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    with small_servers("a", "b") as urls:
        here = Scene(urls)
        await here.agent.start()
        try:
            options = asking(here.agent.port, "a", "b")
            with haproxy(urls, options=options) as here.real, traffic(here.real.port, keep=2) as here.met:
                yield here
        finally:
            await here.agent.stop()


BOTH = board(target_board("a"), target_board("b"))
ONE = board(target_board("a"), isolated("b"))


async def test_traffic_leaves_and_comes_back_without_a_failed_request() -> None:
    async with scene() as here:
        await here.answered_by("a", "b")
        for _ in range(2):
            here.shown = ONE
            await here.answered_by("a")
            here.shown = BOTH
            await here.answered_by("a", "b")

    assert here.met.failures == []


SILENCE = {
    "starting": starting(ONE),
    "no target of ours": board(target_board("a")),
}


@pytest.mark.parametrize("why", SILENCE)
async def test_what_we_do_not_know_leaves_every_server_as_it_is(why: str) -> None:
    async with scene() as here:
        await here.heard(SILENCE[why])
        await here.answered_by("a", "b")
        here.shown = ONE
        await here.answered_by("a")
        await here.heard(SILENCE[why])
        await here.answered_by("a")

    assert here.met.failures == []


@pytest.mark.parametrize(("shown", "names"), [(BOTH, ("a", "b")), (ONE, ("a",))], ids=["in traffic", "isolated"])
async def test_an_agent_that_is_gone_leaves_every_server_as_it_is(shown: Board, names: tuple[str, ...]) -> None:
    async with scene() as here:
        here.shown = shown
        await here.answered_by(*names)
        await here.agent.stop()
        for _ in range(4):
            await here.answered_by(*names)
        assert status(here.real, "a") == "UP"

    assert here.met.failures == []


async def test_a_drain_by_hand_stays_whatever_we_say() -> None:
    async with scene() as here:
        here.real.ask("set server llm/b state drain")
        await here.answered_by("a")
        for shown in (ONE, BOTH):
            await here.heard(shown)
            await here.answered_by("a")
        here.real.ask("set server llm/b state ready")
        await here.answered_by("a", "b")

    assert here.met.failures == []


async def test_a_server_that_fails_its_health_check_is_not_revived() -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    agent = AgentListener("127.0.0.1:0", lambda: BOTH, Meters(), key="server.agent_listen")
    await agent.start()
    with small_servers("a") as urls:
        options = asking(agent.port, "a", "b", check="inter 50ms fall 1")
        with haproxy({**urls, "b": gone}, options=options) as real:
            await until(lambda: status(real, "b").startswith("DOWN"))
            with traffic(real.port) as met:
                await asyncio.to_thread(met.only, "a")
                stays = {status(real, "b").partition(" ")[0] for _ in range(100)}
    await agent.stop()

    assert stays == {"DOWN"}
    assert met.failures == []


async def test_a_daemon_answers_for_its_own_isolations_and_a_reload_forgets_none(tmp_path: Path) -> None:
    bad, port = node(1.5), free_port()
    with (
        served(TinyNode()) as baseline,
        served(node()) as good_url,
        served(bad) as bad_url,
        haproxy({"a": good_url, "b": bad_url}, options=asking(port, "a", "b")) as real,
        traffic(real.port, path="/version") as met,
    ):
        server = {"agent_listen": f"127.0.0.1:{port}"}
        gateway = {"driver": "verdict"}
        urls = {"a": good_url, "b": bad_url}
        where = site(tmp_path, baseline, urls, pools={"chat": POOL}, gateway=gateway, server=server)
        await asyncio.to_thread(met.only, "a", "b")  # nobody answers the agent checks yet

        async with inside(where) as daemon:
            watch = daemon.desk.watch
            assert watch is not None

            async def run(target: str) -> None:
                await daemon.desk.run_now(target, None)
                await watch.idle()

            await run("a")
            await run("b")
            assert daemon.memory.targets["b"].routing is Routing.OUT
            await asyncio.to_thread(met.only, "a")
            await asyncio.to_thread(real.reload)
            await asyncio.to_thread(met.only, "a")
        await asyncio.to_thread(met.only, "a")  # no daemon, and nothing comes back by that

        bad.model = TinyModel()
        async with inside(where) as daemon:
            await asyncio.to_thread(met.only, "a")
            await daemon.desk.run_now("b", None)
            await until(lambda: daemon.memory.targets["b"].routing is Routing.IN)
            await asyncio.to_thread(met.only, "a", "b")
        await asyncio.to_thread(met.only, "a", "b")

    assert met.failures == []
    with Archive.open(where.store) as archive:
        intents = [one.intent for one in archive.decisions(target="b", limit=None)[::-1] if one.intent is not None]
    ends = [(one.order.action, one.outcome and one.outcome.result) for one in intents]
    assert ends == [(Action.ISOLATE, Result.VERIFIED), (Action.RELEASE, Result.VERIFIED)]
