"""A whole daemon with a ladder of three rungs behind a real HAProxy, and clients that never stop asking."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from quantwatch.act.haproxy import states
from quantwatch.daemon.process import Daemon
from quantwatch.flow.decision import Action, Result
from quantwatch.flow.state import Axis, Routing
from quantwatch.record.archive import Archive
from quantwatch.record.decisions import StoredDecision
from support.daemons import Site, inside, site
from support.real_gateways import HAS_HAPROXY, Haproxy, Traffic, haproxy, traffic
from support.runs import node
from support.served import served
from support.tiny_node import TinyModel, TinyNode

pytestmark = pytest.mark.skipif(not HAS_HAPROXY, reason="HAProxy is not installed")

BAD = TinyModel(damage=1.5)
POOL = {
    "mode": "enforce",
    "variants": ["int4", "int8", "baseline"],
    "release_after": 1,
    "minimum_hold": "0s",
    "actions_per_hour": 10,
}


@dataclass(slots=True)
class Scene:
    """Everything that runs beside the daemon."""

    haproxy: Haproxy
    met: Traffic
    nodes: dict[str, TinyNode]
    site: Site

    async def run(self, daemon: Daemon, *targets: str) -> None:
        """One run of each now, with what follows from it."""
        for target in targets:
            await daemon.desk.run_now(target, None)
            watch = daemon.desk.watch
            assert watch is not None
            await watch.idle()

    async def answered_by(self, *names: str) -> None:
        """Wait until the traffic goes to these alone."""
        await asyncio.to_thread(self.met.only, *names)

    def weights(self) -> dict[str, int]:
        """Percent of the weight of each server that is in."""
        said = states(self.haproxy.ask("show servers state llm"))
        return {name.partition("/")[2]: one.percent for name, one in said.items() if one.admin == 0}

    def decisions(self) -> list[StoredDecision]:
        """All of them, oldest first."""
        with Archive.open(self.site.store) as archive:
            return archive.decisions(limit=None)[::-1]


@asynccontextmanager
async def scene(folder: Path, words: dict[str, str], **pool: Any) -> AsyncIterator[Scene]:
    nodes = {"int4": node(), "int8": node()}
    nodes["int8"].started += 500.0
    with (
        served(TinyNode()) as baseline,
        served(nodes["int4"]) as int4,
        served(nodes["int8"]) as int8,
        haproxy({"int4": int4, "int8": int8, "fp16": baseline}, options=words) as real,
        traffic(real.port, path="/version") as met,
    ):
        where = site(
            folder,
            baseline,
            {"int4": int4, "int8": int8},
            pools={"chat": {**POOL, **pool}},
            gateway={"driver": "haproxy", "socket": real.socket, "backend": "llm"},
        )
        where.content["baseline"]["gateway_name"] = "fp16"
        where.content["probe"]["tokens_per_minute"] = 10_000_000  # a dozen runs within seconds
        where.content["task_sets"]["letters"]["schedule"] = {"every": "7d"}  # and none but those of the test
        for target in where.content["targets"]:
            target |= {"gateway_name": target["name"], "scheme": target["name"]}
        yield Scene(real, met, nodes, where.write())


def routing(daemon: Daemon, target: str) -> Routing:
    return daemon.memory.target_state(target, "chat").routing


async def test_traffic_climbs_from_int4_to_int8_to_fp16_and_back_without_a_failed_request(tmp_path: Path) -> None:
    async with scene(tmp_path, {"int8": "backup", "fp16": "backup"}) as here, inside(here.site) as daemon:
        await here.run(daemon, "int4", "int8")
        await here.answered_by("int4")

        here.nodes["int4"].model = BAD
        await here.run(daemon, "int4")
        await here.answered_by("int8")

        here.nodes["int8"].model = BAD
        await here.run(daemon, "int8")
        await here.answered_by("fp16")

        here.nodes["int8"].model = TinyModel()
        await here.run(daemon, "int4", "int8")
        await here.answered_by("int8")

        here.nodes["int4"].model = TinyModel()
        await here.run(daemon, "int4")
        await here.answered_by("int4")

    assert here.met.failures == []
    made = here.decisions()
    assert [(one.action, one.target) for one in made] == [
        (Action.ISOLATE, "int4"),
        (Action.ISOLATE, "int8"),
        (Action.RELEASE, "int8"),
        (Action.RELEASE, "int4"),
    ]
    intents = [one.intent for one in made if one.intent is not None]
    assert [one.outcome and one.outcome.result for one in intents] == [Result.VERIFIED] * 4
    assert [(one.order.rung, one.order.fallback) for one in intents] == [
        ("int8", "int8"),
        ("baseline", "fp16"),
        ("int8", None),
        ("int4", None),
    ]
    assert "traffic goes up from int4 to int8 (int8)" in made[0].reason
    assert "traffic goes down from baseline to int8" in made[2].reason


async def test_traffic_comes_down_by_weights_over_a_restart_and_a_breach_in_the_middle(tmp_path: Path) -> None:
    words = dict.fromkeys(("int4", "int8", "fp16"), "weight 100")
    async with scene(tmp_path, words, shift=["10%", "50%"]) as here:
        async with inside(here.site) as daemon:
            await here.run(daemon, "int4", "int8")
            assert here.weights() == {"int4": 100, "int8": 0, "fp16": 0}

            here.nodes["int4"].model = BAD
            await here.run(daemon, "int4")
            assert here.weights() == {"int8": 100, "fp16": 0}
            here.nodes["int8"].model = BAD
            await here.run(daemon, "int8")
            assert here.weights() == {"fp16": 100}
            await here.answered_by("fp16")

            here.nodes["int8"].model = TinyModel()
            for expected in (10, 50, 100):
                await here.run(daemon, "int8")
                await here.run(daemon, "int4")  # still bad, and out
                assert here.weights() == {"int8": expected, "fp16": 100 - expected}

            here.nodes["int4"].model = TinyModel()
            await here.run(daemon, "int4")
            assert here.weights() == {"int4": 10, "int8": 90, "fp16": 0}
            here.nodes["int4"].model = BAD
            await here.run(daemon, "int4")
            assert here.weights() == {"int8": 100, "fp16": 0}
            here.nodes["int4"].model = TinyModel()
            await here.run(daemon, "int4")
        async with inside(here.site) as daemon:
            await here.run(daemon, "int8")
            assert here.weights() == {"int4": 10, "int8": 90, "fp16": 0}
            await here.run(daemon, "int4")
            assert here.weights() == {"int4": 50, "int8": 50, "fp16": 0}
            half = await asyncio.to_thread(here.met.next, 400)
            await here.run(daemon, "int4")
            assert here.weights() == {"int4": 100, "int8": 0, "fp16": 0}

    assert here.met.failures == []
    assert min(half["int4"], half["int8"]) > 100
    with Archive.open(here.site.store) as archive:
        changes = archive.timeline(target="int4", limit=None)[::-1]
    steps = [one.reason for one in changes if one.axis is Axis.ROUTING and one.old == one.new]
    assert [one.partition(" of")[0] for one in steps] == ["from 10 % to 50 %", "from 50 % to 100 %"]
