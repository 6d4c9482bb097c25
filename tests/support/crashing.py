"""The daemon's parts in a process that kills itself at a named point: `python -m support.crashing`.

Each line on standard input is the JSON of a Life. A child is forked for it, so that nothing is imported twice; the
answers are two lines, the child's process id and later its exit status (-9 where it was killed). The child puts
together what the daemon does, with a store and a driver around the real ones that end the process by SIGKILL, makes
runs until nothing is due, and ends.
"""

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any

import httpx
import torch

from quantwatch.act.contract import Driver, Seen
from quantwatch.clock import SystemClock
from quantwatch.config.load import load_settings, store_file
from quantwatch.config.schema import Settings
from quantwatch.daemon.agent import AgentListener
from quantwatch.daemon.build import Base, build
from quantwatch.expose.meters import Meters
from quantwatch.flow.board import Board, SelfBoard
from quantwatch.flow.decision import Decision, Order
from quantwatch.flow.run import Trigger
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory
from quantwatch.flows.watch import Watch
from quantwatch.record.store import Store
from support.tiny_node import VOCABULARY, Network, TinyModel, TinyNode

DAMAGE = 1.5
ASKED = 8
"""Agent checks that are answered before a life ends: each of two servers has heard it, whatever was under way."""


class Point(StrEnum):
    """Where a life ends. NEVER: it comes to its own end."""

    NEVER = "never"
    BEFORE_DECISION = "before the decision is written"
    AFTER_DECISION = "after the decision is written"
    BEFORE_SEND = "after the call is written down, before it is sent"
    AFTER_REPLY = "after the reply is read"
    AFTER_LOOK = "after the gateway's state is read"
    BEFORE_SETTLE = "before the outcome is written"
    AFTER_SETTLE = "after the outcome is written"


@dataclass(frozen=True, slots=True)
class Life:
    """One process. file: configuration. point: where it ends. sick: whether the node breaches. seed: of its draws."""

    file: str
    seed: int
    point: Point = Point.NEVER
    sick: bool = True

    def line(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))


def die() -> None:
    """End at once, as nothing can refuse."""
    os.kill(os.getpid(), signal.SIGKILL)


class DyingStore(Store):
    """A store whose process ends before or after it has written what counts. point: where."""

    point = Point.NEVER

    def decide(self, decision: Decision, **given: Any) -> None:
        """Keep a decision."""
        self._at(Point.BEFORE_DECISION)
        super().decide(decision, **given)
        self._at(Point.AFTER_DECISION)

    def begin_attempt(self, decision: str) -> int:
        """Count a call."""
        count = super().begin_attempt(decision)
        self._at(Point.BEFORE_SEND)
        return count

    def settle(self, *given: Any, **named: Any) -> None:
        """Write an outcome."""
        self._at(Point.BEFORE_SETTLE)
        super().settle(*given, **named)
        self._at(Point.AFTER_SETTLE)

    def _at(self, point: Point) -> None:
        if self.point is point:
            die()


class DyingDriver:
    """A driver whose process ends when the gateway has spoken."""

    def __init__(self, inner: Driver, point: Point) -> None:
        self.name, self.abilities = inner.name, inner.abilities
        self._inner, self._point = inner, point

    async def call(self, order: Order) -> str:
        """Send the order."""
        said = await self._inner.call(order)
        if self._point is Point.AFTER_REPLY:
            die()
        return said

    async def observe(self, order: Order) -> Seen:
        """Ask how the node stands."""
        seen = await self._inner.observe(order)
        if self._point is Point.AFTER_LOOK:
            die()
        return seen


class Mixed(httpx.AsyncBaseTransport):
    """Nodes in this process, everything on loopback over real sockets."""

    def __init__(self, nodes: Network) -> None:
        self._nodes, self._sockets = nodes, httpx.AsyncHTTPTransport(verify=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass the request on."""
        way = self._sockets if request.url.host == "127.0.0.1" else self._nodes
        return await way.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the sockets."""
        await self._sockets.aclose()


async def live(life: Life) -> None:
    """Take up what an earlier life left open, make runs, carry out what follows, end."""
    async with AsyncExitStack() as stack:
        settings = load_settings(Path(life.file), shipped={})
        watch, keeper = await _put_together(life, settings, stack)
        await watch.adopt()
        asked = await _answers(watch, settings.server.agent_listen, stack)
        for intent in await keeper.write(lambda one: one.open_intents()):
            watch.outbox.start(intent)
        await watch.outbox.idle()
        for name, target in watch.watchlist.targets.items():
            for task_set in target.sets:
                watch.due(name, task_set, Trigger.SCHEDULE)
        await watch.idle()
        await asked()
        await watch.stop(0)


async def _answers(watch: Watch, address: str | None, stack: AsyncExitStack) -> Callable[[], Awaitable[None]]:
    """Answer agent checks where an address is given; gives what waits until each server has asked again."""
    times = 0

    def board() -> Board:
        nonlocal times
        times += 1
        whole = watch.board()
        return replace(whole, own=replace(whole.own, restored=True))

    async def asked() -> None:
        until = times + ASKED if address is not None else times
        while times < until:  # noqa: ASYNC110, what is waited for has no event
            await asyncio.sleep(0.005)

    if address is not None:
        agent = AgentListener(address, board, Meters(), key="server.agent_listen")
        stack.push_async_callback(agent.stop)
        await agent.start()
    return asked


async def _put_together(life: Life, settings: Settings, stack: AsyncExitStack) -> tuple[Watch, Keeper]:
    clock, folder = SystemClock(), Path(life.file).parent
    executor = stack.enter_context(ThreadPoolExecutor(1))
    store = DyingStore.open(store_file(settings, folder=folder), clock=clock)
    stack.callback(store.close)
    store.point = life.point
    keeper, memory = Keeper(store, executor, Meters()), Memory()
    memory.restore(store, clock.now())
    node = TinyNode(model=TinyModel(damage=DAMAGE if life.sick else 0.0), started=1_700_000_500.0)
    transport = Mixed(Network(baseline=TinyNode(), node=node))
    stack.push_async_callback(transport.aclose)
    base = Base(
        keeper,
        memory,
        Meters(),
        clock,
        Random(life.seed),
        own=lambda: _own(clock.now()),
        folder=folder,
        cache=folder / "cache",
        transport=transport,
    )
    watch = (await build(settings, base)).watch
    stack.push_async_callback(watch.close)
    watch.generation.driver = DyingDriver(watch.generation.driver, life.point)
    return watch, keeper


def _own(now: datetime) -> SelfBoard:
    return SelfBoard(now, "", reload_ok=True, reloaded=now)


def warm_up() -> None:
    """Make the nodes' models once, before anything is forked."""
    torch.set_num_threads(1)  # a thread would not live on in a child
    for token in range(VOCABULARY):
        TinyModel().logprobs([token] * 3)
    gc.freeze()


def main() -> None:
    """Fork a child for every line."""
    warm_up()
    for line in sys.stdin:
        given = json.loads(line)
        life = Life(**{**given, "point": Point(given["point"])})
        pid = os.fork()
        if pid == 0:
            asyncio.run(live(life))
            os._exit(0)  # at once: taking the interpreter down takes longer than the life
        print(pid, flush=True)  # noqa: T201, the protocol
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)  # noqa: T201, the protocol


if __name__ == "__main__":
    main()
