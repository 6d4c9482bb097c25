"""A whole watch on a clock that is moved by hand: tiny nodes and a gateway without sockets, and a real store."""

import asyncio
import contextlib
import functools
import heapq
import itertools
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import httpx
import stamina

from quantwatch.config.schema import Settings
from quantwatch.daemon.build import Base, Built, build
from quantwatch.expose.app import public_app
from quantwatch.expose.meters import Meters
from quantwatch.flow.board import Board, SelfBoard, TargetBoard
from quantwatch.flow.run import Trigger
from quantwatch.flow.state import Routing, Transition
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory
from quantwatch.flows.people import People
from quantwatch.flows.resume import resume
from quantwatch.flows.tend import tend
from quantwatch.flows.upkeep import end_pauses, retry_store
from quantwatch.flows.watch import Watch
from quantwatch.record.archive import Archive
from quantwatch.record.decisions import StoredDecision
from quantwatch.record.documents import StoredRun
from quantwatch.record.store import Options, Store
from quantwatch.trace import NoTracer, Tracer
from support.gateway import Gateway
from support.tiny_node import TinyModel, TinyNode

EVERY = 600.0
"""Seconds between two scheduled runs of a task set here."""

TICK = 0.001
"""Seconds that pass with every look at the clock, so that what comes later has a later time."""

PATIENCE = 30.0
"""Real seconds after which a watch that does not come to rest is a failed test."""

WORDS = ("lamp", "keel", "oats", "fern", "dusk", "rope", "salt", "iron", "moss", "wren")


@dataclass(slots=True)
class HandClock:
    """Time that moves when a test moves it. ahead: how far the wall clock is off, in seconds."""

    time: float = 0.0
    ahead: float = 0.0
    _sleepers: list[tuple[float, int, asyncio.Future[None]]] = field(default_factory=list)
    _count: int = 0

    def now(self) -> datetime:
        """A wall clock that started at the beginning of 2026."""
        self.time += TICK
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.time + self.ahead)

    def monotonic(self) -> float:
        """Seconds since the test began."""
        self.time += TICK
        return self.time

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has moved time on so far."""
        self._count += 1
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.time + seconds, self._count, waiting))
        await waiting

    @property
    def sleeping(self) -> int:
        """How many wait."""
        return len(self._alive())

    def wake_until(self, end: float) -> bool:
        """Move time to the next wait that is over by then, and end it; False where there is none."""
        self._alive()
        if not self._sleepers or self._sleepers[0][0] > end:
            return False
        due, _, waiting = heapq.heappop(self._sleepers)
        self.time = max(self.time, due)
        waiting.set_result(None)
        return True

    def _alive(self) -> list[tuple[float, int, asyncio.Future[None]]]:
        self._sleepers = [one for one in self._sleepers if not one[2].done()]
        heapq.heapify(self._sleepers)
        return self._sleepers


class Wire(httpx.AsyncBaseTransport):
    """The network: nodes and the gateway under their host names.

    down: hosts that refuse the connection. held: hosts whose answers wait for an event. hear: hears of every request
    before it is answered.
    """

    def __init__(self, gateway: Gateway, nodes: Mapping[str, TinyNode]) -> None:
        self.down: set[str] = set()
        self.held: dict[str, asyncio.Event] = {}
        self.calls: list[str] = []
        self.hear: Callable[[httpx.Request], None] = lambda _: None
        self._hosts: dict[str, httpx.AsyncBaseTransport] = {"gateway": gateway.transport()}
        for name, node in nodes.items():
            self.add(name, node)

    def add(self, name: str, node: TinyNode) -> None:
        """Put a node on the network."""
        self.put(name, httpx.ASGITransport(app=node.app()))

    def put(self, name: str, transport: httpx.AsyncBaseTransport) -> None:
        """Let this answer under a host name."""
        self._hosts[name] = transport

    def host(self, name: str) -> httpx.AsyncBaseTransport:
        """What answers under a host name."""
        return self._hosts[name]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass the request on."""
        host = request.url.host
        self.calls.append(host)
        self.hear(request)
        if host in self.down or host not in self._hosts:
            raise httpx.ConnectError("Connection refused", request=request)
        if host in self.held:
            await self.held[host].wait()
        return await self._hosts[host].handle_async_request(request)


@dataclass(slots=True)
class Bench:
    """A watch under test, and everything around it."""

    folder: Path
    clock: HandClock
    wire: Wire
    gateway: Gateway
    nodes: dict[str, TinyNode]
    keeper: Keeper
    memory: Memory
    meters: Meters
    built: Built

    @property
    def watch(self) -> Watch:
        """The watch."""
        return self.built.watch

    @property
    def people(self) -> People:
        """What people can say."""
        return self.built.people

    @property
    def baseline(self) -> TinyNode:
        """The baseline's server."""
        return self.nodes["baseline"]

    async def settle(self) -> None:
        """Wait until nothing goes on but waits on the clock."""
        await self.until(lambda: self._busy() <= self.clock.sleeping)

    async def until(self, reached: Callable[[], object]) -> None:
        """Wait until something is so, while everything goes on."""
        async with asyncio.timeout(PATIENCE):
            while not reached():  # noqa: ASYNC110, what is waited for tells nobody
                await asyncio.sleep(0.001)

    async def advance(self, seconds: float) -> None:
        """Let so much time pass, with everything that ends in it."""
        end = self.clock.time + seconds
        while self.clock.wake_until(end):
            await self.settle()
        self.clock.time = max(self.clock.time, end)

    async def round(self, *targets: str, trigger: Trigger = Trigger.SCHEDULE) -> None:
        """Let every task set of these targets, or of all, run now, with the confirmations that follow."""
        for name in targets or tuple(self.watch.watchlist.targets):
            for task_set in self.watch.watchlist.targets[name].sets:
                self.watch.due(name, task_set, trigger)
            await self.settle()

    async def rounds(self, count: int, *targets: str, every: float = EVERY) -> None:
        """Several rounds, each after a period."""
        for _ in range(count):
            await self.advance(every)
            await self.round(*targets)

    async def mend(self) -> None:
        """What the daemon does every few seconds beside the runs."""
        end_pauses(self.memory, self.clock)
        await retry_store(self.keeper)
        if self.keeper.trouble is None:
            self.watch.revive()
            await tend(self.watch)
            await self.watch.notices.look()
        await self.settle()

    async def reload(self, raw: dict[str, Any]) -> None:
        """Let another configuration take over. Raises InputError, and then changes nothing."""
        await self.watch.succeed(await self.built.builder.generation(Settings.model_validate(raw)))
        await self.settle()

    def board(self) -> Board:
        """The picture that is shown now."""
        return self.watch.board()

    def target(self, name: str = "a") -> TargetBoard:
        """A target on the board."""
        found = self.board().target(name)
        assert found is not None, f"{name} is not on the board"
        return found

    def routing(self, name: str = "a") -> Routing:
        """Where a target stands by our own record."""
        return self.target(name).state.routing

    async def get(self, path: str) -> httpx.Response:
        """Ask the public listener."""
        app = public_app(self.board, self.meters)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://quantwatch") as client:
            return await client.get(path)

    async def verdict(self, name: str = "a") -> int:
        """The status of /verdict."""
        return (await self.get(f"/verdict/{name}")).status_code

    async def series(self, name: str, **labels: str) -> float:
        """The value of one series of /metrics, all values added where several fit the labels."""
        lines = (await self.get("/metrics")).text.splitlines()
        fits = [one for one in lines if one.startswith((f"quantwatch_{name} ", f"quantwatch_{name}{{"))]
        fits = [one for one in fits if all(f'{key}="{value}"' in one for key, value in labels.items())]
        assert fits, f"no series {name} {labels}"
        return sum(float(one.rpartition(" ")[2]) for one in fits)

    @contextlib.contextmanager
    def archive(self) -> Iterator[Archive]:
        """What a reader sees of the store."""
        with Archive.open(self.folder / "q.db") as archive:
            yield archive

    def runs(self, target: str | None = None) -> list[StoredRun]:
        """Runs in the store, oldest first."""
        with self.archive() as archive:
            return archive.history(target=target, limit=None)[::-1]

    def decisions(self, target: str | None = None) -> list[StoredDecision]:
        """Decisions in the store, oldest first."""
        with self.archive() as archive:
            return archive.decisions(target=target, limit=None)[::-1]

    def timeline(self, target: str = "a") -> list[Transition]:
        """Changes in the store, oldest first."""
        with self.archive() as archive:
            return archive.timeline(target=target, limit=None)[::-1]

    def path_of(self, axis: str, target: str = "a") -> list[str]:
        """The states that a target went through on an axis by the store, the first one included."""
        changes = [one for one in self.timeline(target) if one.axis == axis]
        for one, after in itertools.pairwise(changes):
            assert after.old == one.new, f"a change is missing between {one} and {after}"
        return [changes[0].old, *(one.new for one in changes)] if changes else []

    def lock(self) -> sqlite3.Connection:
        """Another process that holds the store locked until it is closed."""
        other = sqlite3.connect(self.folder / "q.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        return other

    def _busy(self) -> int:
        orders = [one for one in asyncio.all_tasks() if one.get_name().startswith(("order ", "notices "))]
        workers = [one for one in self.watch.workers.values() if one.running is not None or one.queued]
        return len(orders) + len(workers)


def node(damage: float = 0.0, number: int = 1) -> TinyNode:
    """A node of its own process, as damaged as given."""
    return TinyNode(model=TinyModel(damage=damage), started=1_700_000_000.0 + 500 * number)


def restarted(one: TinyNode, **model: Any) -> None:
    """Start a node again, with this model."""
    one.model, one.started = TinyModel(**model), one.started + 77.0


def settings(
    *targets: str,
    pool: Mapping[str, Any] | None = None,
    gateway: Mapping[str, Any] | None = None,
    task_set: Mapping[str, Any] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """A configuration with one pool, `chat`, of these targets; two where none is named."""
    named = targets or ("a", "b")
    return {
        "schema": 1,
        "baseline": {"url": "http://baseline"},
        "targets": [{"name": one, "url": f"http://{one}", "scheme": "int8", "pool": "chat"} for one in named],
        "pools": {"chat": {"mode": "enforce", "max_isolated": "50%", "release_after": 2, **(pool or {})}},
        "task_sets": {"letters": letters(**(task_set or {}))},
        "gateway": {
            "driver": "webhook",
            "url": "http://gateway/act",
            "release_url": "http://gateway/return",
            "state_url": "http://gateway/state",
            **(gateway or {}),
        },
        "probe": {"patience": "0s"},
        **given,
    }


def letters(**given: Any) -> dict[str, Any]:
    """A small task set."""
    own = {"prompts": "letters.yaml", "schedule": {"every": "10m"}, "k": 5, "draw": 10, "continuation_tokens": 4}
    return {**own, **given}


def write_prompts(folder: Path) -> None:
    """The golden prompts of the small task set; JSON is YAML too."""
    prompts = [
        {"id": f"letters-{word}", "language": "en", "length": "short", "tags": ["x"], "prompt": f"Say {word}"}
        for word in WORDS
    ]
    content = {"schema": 1, "name": "letters", "description": "for tests", "license": "CC0-1.0", "prompts": prompts}
    (folder / "letters.yaml").write_text(json.dumps(content), encoding="utf-8")


@contextlib.asynccontextmanager
async def watching(
    folder: Path,
    raw: dict[str, Any] | None = None,
    *,
    gateway: Gateway | None = None,
    nodes: Mapping[str, TinyNode] | None = None,
    clock: HandClock | None = None,
    options: Options | None = None,
    tracer: Tracer | None = None,
) -> AsyncIterator[Bench]:
    """A watch over sound nodes, as many as are configured, that has begun."""
    write_prompts(folder)
    chosen = Settings.model_validate(raw or settings())
    names = [one.name for one in chosen.targets]
    given = {"baseline": node(number=0), **{name: node(number=i + 1) for i, name in enumerate(names)}, **(nodes or {})}
    time, called = clock or HandClock(), gateway or Gateway()
    called.seconds = time.monotonic
    wire = Wire(called, given)
    executor = ThreadPoolExecutor(1, thread_name_prefix="store")
    loop = asyncio.get_running_loop()
    with stamina.set_testing(True, attempts=2):
        store = await loop.run_in_executor(
            executor, functools.partial(Store.open, folder / "q.db", clock=time, options=options)
        )
        memory, meters = Memory(), Meters()
        keeper = Keeper(store, executor, meters)
        try:
            await keeper.write(lambda one: memory.restore(one, time.now()))
            holder: list[Bench] = []
            base = Base(
                keeper,
                memory,
                meters,
                time,
                Random(1),
                own=lambda: _own(holder[0]),
                folder=folder,
                cache=folder / "cache",
                transport=wire,
                tracer=tracer or NoTracer(),
            )
            built = await build(chosen, base)
            bench = Bench(folder, time, wire, called, given, keeper, memory, meters, built)
            holder.append(bench)
            await _live(bench)
            try:
                yield bench
            finally:
                await built.watch.stop(0)
                await built.watch.close()
        finally:
            await loop.run_in_executor(executor, store.close)
            executor.shutdown()


async def _live(bench: Bench) -> None:
    """Begin as the daemon does."""
    await resume(bench.watch)
    await bench.watch.adopt()


def _own(bench: Bench) -> SelfBoard:
    return SelfBoard(
        started=datetime(2026, 1, 1, tzinfo=UTC),
        config_digest=bench.watch.watchlist.digest,
        reload_ok=True,
        reloaded=datetime(2026, 1, 1, tzinfo=UTC),
        restored=True,
        store_trouble=bench.keeper.trouble,
        unwritten=bench.keeper.unwritten,
        open_intents=bench.watch.outbox.open,
        gateway_trouble=bench.watch.outbox.trouble,
        notices_waiting=bench.watch.notices.waiting,
    )
