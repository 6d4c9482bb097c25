"""Months on a virtual clock: thousands of runs, breaches, isolations and releases, and nothing grows."""

import asyncio
import gc
import logging
import os
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx
import psutil
import pytest

from quantwatch.daemon.build import Base, Built, build
from quantwatch.expose.meters import Meters
from quantwatch.flow.board import SelfBoard
from quantwatch.flow.decision import Action
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory
from quantwatch.flows.upkeep import Retention, prune
from quantwatch.record.archive import Archive
from quantwatch.record.decisions import StoredDecision
from support.builders import FakeClock
from support.daemons import Site, site, started, write_prompts
from support.gateway import Gateway
from support.runs import node
from support.served import served
from support.stored import opened
from support.tiny_node import Network, TinyModel, TinyNode

HOUR = 3600.0
SICK, WELL = TinyModel(damage=1.5), TinyModel()
TASK_SET = {"draw": 24, "k": 5, "continuation_tokens": 2, "limits": {"kl_mean": {"warn": 1e-4, "critical": 2e-4}}}
POOL = {"mode": "enforce", "fallback": "baseline", "release_after": 1, "minimum_hold": "0s", "max_isolated": "50%"}
TARGETS = ("a", "b")
SCHEDULED = float(os.environ["QUANTWATCH_SOAK_SECONDS"]) if "QUANTWATCH_SOAK_SECONDS" in os.environ else None
SKIPPED = "quantwatch_runs_skipped_total"
SPELL = 4
"""Rounds after which a node falls sick or is mended; the two nodes take turns."""

MOST_GROWTH = 8 * 2**20
"""Bytes of resident memory by which the last tenth may lie over the second."""


class Hosts(httpx.AsyncBaseTransport):
    """Nodes and the gateway, without sockets."""

    def __init__(self, nodes: Network, gateway: Gateway) -> None:
        self._nodes, self._gateway = nodes, gateway.transport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass the request on."""
        way = self._gateway if request.url.host == "gateway" else self._nodes
        return await way.handle_async_request(request)


@dataclass(frozen=True, slots=True)
class Sample:
    """What could grow. memory: resident bytes. sizes: entries of what the daemon keeps in memory, by name."""

    memory: int
    tasks: int
    files: int
    series: int
    rows: int
    sizes: dict[str, int]


@dataclass(slots=True)
class Soak:
    """A watch over two nodes on a virtual clock. ran: runs so far, confirmations included."""

    built: Built
    keeper: Keeper
    memory: Memory
    meters: Meters
    clock: FakeClock
    site: Site
    nodes: dict[str, TinyNode]
    gateway: Gateway
    ran: int = 0
    samples: list[Sample] = field(default_factory=list)

    async def go(self, runs: int, *, samples: int = 30) -> None:
        """Make so many runs, an hour apart, and take samples evenly spread over them."""
        rounds = 0
        while self.ran < runs:
            self.clock.time += HOUR
            sick = TARGETS[rounds // SPELL % 4 // 2] if rounds // SPELL % 2 else None
            for name in TARGETS:
                self.nodes[name].model = SICK if name == sick else WELL
                self.built.watch.due(name, "letters")
            await self.built.watch.idle()
            if rounds % 6 == 0:
                await prune(self.keeper, Retention(runs=12 * HOUR, decisions=24 * HOUR), self.clock)
            if self.ran * samples // runs > len(self.samples):
                self.samples.append(self._sample())
            rounds += 1
            for one in self.nodes.values():
                one.asked.clear()
            self.gateway.calls.clear()

    def _sample(self) -> Sample:
        gc.collect()
        watch, process = self.built.watch, psutil.Process()
        with Archive.open(self.site.store) as archive:
            rows = len(archive.history(limit=None)) + len(archive.decisions(limit=None))
        parts = {name: getattr(self.memory, name) for name in Memory.__slots__}
        kept = {name: len(part) for name, part in parts.items() if isinstance(part, list | dict)}
        yardstick = self.built.builder.yardstick
        kept |= {"intents": watch.outbox.open, "orders": len(watch.outbox._tasks)}
        kept |= {"answers": len(yardstick._kept), "turns": len(yardstick._next), "unwritten": self.keeper.unwritten}
        return Sample(
            memory=process.memory_info().rss,
            tasks=len(asyncio.all_tasks()),
            files=process.num_fds(),
            series=sum(len(family.samples) for family in self.meters.registry.collect()),
            rows=rows,
            sizes=kept,
        )


@asynccontextmanager
async def soaking(folder: Path) -> AsyncIterator[Soak]:
    """Everything that the daemon puts together, over nodes and a gateway without sockets."""
    where = site(
        folder,
        "http://baseline",
        {name: f"http://{name}" for name in TARGETS},
        gateway={"driver": "webhook", "url": "http://gateway/act", "state_url": "http://gateway/state"},
        pools={"chat": POOL},
    )
    where.content["task_sets"]["letters"] |= TASK_SET
    write_prompts(folder, texts=("A lamp", "A ship", "17 + 25", "SELECT", "Dear", "def f"))
    settings = where.write().settings()
    clock, memory, meters, gateway = FakeClock(), Memory(), Meters(), Gateway()
    nodes = {name: TinyNode(started=1_700_000_500.0) for name in TARGETS} | {"baseline": TinyNode()}
    async with AsyncExitStack() as stack:
        executor = stack.enter_context(ThreadPoolExecutor(1))
        store = stack.enter_context(opened(folder, name=where.store.name, clock=clock))
        keeper = Keeper(store, executor, meters)
        base = Base(
            keeper,
            memory,
            meters,
            clock,
            Random(1),
            own=lambda: SelfBoard(clock.now(), "", reload_ok=True, reloaded=clock.now()),
            folder=folder,
            cache=folder / "cache",
            transport=Hosts(Network(**nodes), gateway),
        )
        built = await build(settings, base)
        stack.push_async_callback(built.watch.close)
        soak = Soak(built, keeper, memory, meters, clock, where, nodes, gateway)

        def count(_: object) -> None:
            soak.ran += 1

        built.watch.turns = built.watch.turns.hearing(count)
        await built.watch.adopt()
        yield soak
        await built.watch.stop(0)


def flat(samples: Sequence[Sample]) -> None:
    """Nothing of the last tenth lies over the second tenth."""
    tenth = max(1, len(samples) // 10)
    early, late = samples[tenth : 2 * tenth], samples[-tenth:]
    memory = [statistics.median(one.memory for one in part) for part in (early, late)]
    assert memory[1] - memory[0] < MOST_GROWTH
    for name in ("tasks", "files", "series"):
        assert max(getattr(one, name) for one in late) <= max(getattr(one, name) for one in early), name
    for name in early[0].sizes:
        assert max(one.sizes[name] for one in late) <= max(one.sizes[name] for one in early) + 1, name
    assert max(one.rows for one in late) <= 1.2 * max(one.rows for one in early)


async def soaked(folder: Path, runs: int) -> None:
    """So many runs with all that follows from them."""
    async with soaking(folder) as soak:
        await soak.go(runs)
        changes, nodes = soak.gateway.changes, {node for node, _ in soak.gateway.changes}
        assert nodes == {f"http://{name}" for name in TARGETS}
        assert [isolated for _, isolated in changes[:4]] == [True, False, True, False]
        assert len(changes) >= runs // (8 * SPELL)
        assert {one.action for one in archived(soak)} == set(Action)
        assert soak.keeper.trouble is None
        said = [f"{one.memory / 2**20:.1f}" for one in soak.samples]
        print(f"\n{soak.ran} runs, MiB: {' '.join(said)}; {soak.samples[-1]}")  # noqa: T201, numbers for the record
        flat(soak.samples)


def archived(soak: Soak) -> list[StoredDecision]:
    """What was decided lately."""
    with Archive.open(soak.site.store) as archive:
        return archive.decisions(limit=None)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What pytest keeps of the log would grow."""
    caplog.set_level(logging.CRITICAL, logger="quantwatch")


async def test_300_runs_leave_nothing_behind(tmp_path: Path) -> None:
    await soaked(tmp_path, 300)


@pytest.mark.soak
async def test_3000_runs_leave_nothing_behind(tmp_path: Path) -> None:
    await soaked(tmp_path, int(os.environ.get("QUANTWATCH_SOAK_RUNS", "3000")))


@pytest.mark.soak
@pytest.mark.skipif(SCHEDULED is None, reason="QUANTWATCH_SOAK_SECONDS is not set")
def test_a_real_schedule_leaves_nothing_behind(tmp_path: Path) -> None:
    """A real daemon on the shortest schedule: four hours of the default one, on ten targets, are 160 runs."""
    assert SCHEDULED is not None
    with ExitStack() as stack:
        baseline = stack.enter_context(served(TinyNode()))
        nodes = {f"n{i}": stack.enter_context(served(node(0.2))) for i in range(10)}
        where = site(tmp_path, baseline, nodes)
        where.content["task_sets"]["letters"] |= {"schedule": {"every": "10s"}, "draw": 2, "continuation_tokens": 2}
        daemon = stack.enter_context(started(where.write())).ready()
        process, memory = psutil.Process(daemon.process.pid), []
        for _ in range(30):
            time.sleep(SCHEDULED / 30)
            memory.append(process.memory_info().rss)
        runs = sum("letters on n" in event for event in daemon.events())
        page = httpx.get(f"{where.public}/metrics", timeout=10, trust_env=False).text
        skipped = sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(SKIPPED))
    said = " ".join(f"{one / 2**20:.1f}" for one in memory)
    print(f"\n{runs} runs in {SCHEDULED:.0f} s, {skipped:.0f} skipped, MiB: {said}")  # noqa: T201, for the record
    assert runs >= 0.8 * 10 * (SCHEDULED / 10 - 1)
    assert statistics.median(memory[-3:]) - statistics.median(memory[3:6]) < MOST_GROWTH
