"""A whole daemon, two nodes and a real HAProxy between them and clients that never stop asking."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from quantwatch.clock import SystemClock
from quantwatch.daemon.chores import LOOK_SECONDS
from quantwatch.daemon.process import Daemon
from quantwatch.flow.decision import Action, Brake, Result, Ruling
from quantwatch.flow.state import Routing
from quantwatch.record.archive import Archive
from support.daemons import Site, inside, site, until
from support.real_gateways import HAS_HAPROXY, Haproxy, Traffic, haproxy, traffic
from support.receiver import Receiver, received
from support.runs import node
from support.served import served
from support.tiny_node import TinyModel, TinyNode

pytestmark = pytest.mark.skipif(not HAS_HAPROXY, reason="HAProxy is not installed")

POOL = {"mode": "enforce", "max_isolated": "50%", "release_after": 2, "minimum_hold": "0s"}


@dataclass(slots=True)
class LooksWhenTold(SystemClock):
    """The daemon's look at the gateway, due every five minutes, comes when the test says so."""

    now_look: asyncio.Event = field(default_factory=asyncio.Event)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        if seconds != LOOK_SECONDS:
            await SystemClock.sleep(self, seconds)
            return
        await self.now_look.wait()
        self.now_look.clear()


@dataclass(slots=True)
class Scene:
    """Everything that runs. bad: the node that breaches until it is mended."""

    daemon: Daemon
    haproxy: Haproxy
    met: Traffic
    bad: TinyNode
    clock: LooksWhenTold
    site: Site

    async def run(self, target: str) -> None:
        """One run now, with what follows from it."""
        await self.daemon.desk.run_now(target, None)
        watch = self.daemon.desk.watch
        assert watch is not None
        await watch.idle()

    def routing(self) -> Routing:
        """Where the bad node stands on record."""
        state = self.daemon.memory.targets.get("b")
        return Routing.IN if state is None else state.routing

    async def answered_by(self, *names: str) -> None:
        """Wait until the traffic goes to these alone."""
        await asyncio.to_thread(self.met.only, *names)


@asynccontextmanager
async def scene(folder: Path, *, names: Mapping[str, str] | None = None, **more: Any) -> AsyncIterator[Scene]:
    """A good node a and a bad node b. names: what the configuration believes that HAProxy calls them.

    more: keys of the pool, and `notifications`.
    """
    bad, clock = node(1.5), LooksWhenTold()
    with (
        served(TinyNode()) as baseline,
        served(node()) as good_url,
        served(bad) as bad_url,
        haproxy({"a": good_url, "b": bad_url}) as real,
        traffic(real.port, path="/version") as met,
    ):
        gateway = {"driver": "haproxy", "socket": real.socket, "backend": "llm"}
        told, pool = more.pop("notifications", []), POOL | more
        urls, pools = {"a": good_url, "b": bad_url}, {"chat": pool}
        where = site(folder, baseline, urls, pools=pools, gateway=gateway, notifications=told)
        for target in where.content["targets"]:
            target["gateway_name"] = (names or {}).get(target["name"], target["name"])
        async with inside(where.write(), clock=clock) as daemon:
            yield Scene(daemon, real, met, bad, clock, where)


async def test_a_bad_node_leaves_is_kept_out_over_a_reload_and_comes_back_without_a_failed_request(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as here:
        await here.run("a")  # a clean run proves the baseline's answers
        await here.run("b")
        assert here.routing() is Routing.OUT
        await here.answered_by("a")

        await asyncio.to_thread(here.haproxy.reload)
        await here.answered_by("a", "b")
        here.clock.now_look.set()
        await until(lambda: here.routing() is Routing.CONTRADICTED)
        await here.run("b")
        assert here.routing() is Routing.OUT
        await here.answered_by("a")

        here.bad.model = TinyModel()
        await here.run("b")
        await here.run("b")
        assert here.routing() is Routing.IN
        await here.answered_by("a", "b")

    assert here.met.failures == []
    with Archive.open(here.site.store) as archive:
        intents = [one.intent for one in archive.decisions(target="b", limit=None)[::-1] if one.intent is not None]
    assert [(one.order.action, one.outcome and one.outcome.result) for one in intents] == [
        (Action.ISOLATE, Result.VERIFIED),
        (Action.ISOLATE, Result.VERIFIED),
        (Action.RELEASE, Result.VERIFIED),
    ]


async def test_a_peer_that_haproxy_does_not_have_is_no_backend(tmp_path: Path) -> None:
    """By our record a is sound and in traffic. HAProxy knows no server of that name, so b may be its last one."""
    async with scene(tmp_path, names={"a": "llm/elsewhere"}) as here:
        await here.run("a")
        await here.run("b")
        assert here.routing() is Routing.IN
        await here.answered_by("a", "b")
    with Archive.open(here.site.store) as archive:
        (made,) = archive.decisions(target="b", limit=None)
    assert [one["brake"] for one in made.objections] == [Brake.CAP, Brake.LAST_BACKEND]
    assert "(a by the gateway's own list)" in made.objections[0]["reason"]


async def test_a_gateway_that_forgets_again_and_again_is_told_so_often_and_then_a_person_hears(tmp_path: Path) -> None:
    """Each reload forgets the drain; the pool's isolations an hour are the bound, and beyond it people are told."""
    receiver = Receiver()
    with received(receiver) as url:
        channel = {"name": "ops", "kind": "webhook", "url": f"{url}/in", "min_severity": "info"}
        async with scene(tmp_path, actions_per_hour=2, notifications=[channel]) as here:
            await here.run("a")
            for _ in range(2):
                await here.run("b")
                assert here.routing() is Routing.OUT
                await here.answered_by("a")
                await asyncio.to_thread(here.haproxy.reload)
                here.clock.now_look.set()
                await until(lambda: here.routing() is Routing.CONTRADICTED)
            for _ in range(2):
                await here.run("b")
            await here.answered_by("a", "b")
            await until(lambda: {"contradicted", "held_back"} <= {one["topic"] for one in receiver.bodies})

    assert here.met.failures == []
    held = next(one for one in receiver.bodies if one["topic"] == "held_back")
    assert "2 isolations within the last hour, and 2 may be" in held["reason"]
    with Archive.open(here.site.store) as archive:
        rulings = [one.ruling for one in archive.decisions(target="b", limit=None)[::-1]]
    assert rulings == [Ruling.ACT, Ruling.ACT, Ruling.SUPPRESSED]
