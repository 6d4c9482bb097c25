"""What the daemon costs the machine that it shares with a node; ratios where there is something to hold it against."""

import asyncio
import contextlib
import functools
import json
import math
import random
import statistics
import subprocess
import sys
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from quantwatch.daemon.listeners import Listener
from quantwatch.expose.app import public_app
from quantwatch.expose.meters import Meters
from quantwatch.flow.distribution import NO_ID, Distribution
from quantwatch.flow.divergence import Evidence
from quantwatch.flow.prompt import ProbeMode
from quantwatch.measure.compare import Pair, Scope, measure
from quantwatch.measure.threads import one_thread
from support.boards import board, measured, target_board
from support.daemons import Running, free_port, site, started
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode

pytestmark = pytest.mark.benchmark

ROUNDS = 3
MIB = 2**20
NEVER = "0 0 29 2 *"
IDLE_SECONDS = 20.0
K = 20

CLIENT = """
import http.client, json, sys, time
connection = http.client.HTTPConnection(sys.argv[1], timeout=30)
seconds = []
for _ in range(int(sys.argv[3])):
    started = time.perf_counter()
    connection.request("GET", sys.argv[2])
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, answer.status
    seconds.append(time.perf_counter() - started)
    time.sleep(0.005)
print(json.dumps(seconds))
"""


def told(text: str) -> None:
    print(f"\n{text}")  # noqa: T201, the point of a benchmark


def seconds_of(action: Callable[[], object]) -> float:
    started_at = time.perf_counter()
    action()
    return time.perf_counter() - started_at


def scraped(url: str) -> bool:
    """Whether a first scrape succeeds."""
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/metrics", timeout=5, trust_env=False).status_code == 200
    return False


def test_the_first_scrape_is_answered_in_at_most_one_and_a_half_times_what_torch_takes(tmp_path: Path) -> None:
    """The listeners answer before torch is there: 0.5 to 0.7 seen."""

    def first_scrape() -> None:
        folder = tmp_path / str(free_port())
        folder.mkdir()
        where = site(folder, "http://127.0.0.1:9", {"int8-a": "http://127.0.0.1:19"})
        where.content["task_sets"]["letters"]["schedule"] = {"cron": NEVER}
        with started(where.write()) as daemon:
            daemon.wait(lambda: scraped(where.public), "answered a scrape")

    def torch() -> None:
        subprocess.run([sys.executable, "-c", "import torch"], check=True)

    times = [(seconds_of(first_scrape), seconds_of(torch)) for _ in range(ROUNDS)]
    ours, theirs = (statistics.median(part) for part in zip(*times, strict=True))
    told(f"start to first scrape / import torch = {ours / theirs:.2f} ({ours:.2f} s / {theirs:.2f} s)")

    assert ours / theirs <= 1.5


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A daemon over ten targets, each of which was measured once; nothing more is due."""
    names = [f"int8-{i}" for i in range(10)]
    with ExitStack() as stack:
        baseline = stack.enter_context(served(TinyNode()))
        nodes = {name: stack.enter_context(served(node(0.2))) for name in names}
        where = site(tmp_path_factory.mktemp("daemon"), baseline, nodes)
        where.content["task_sets"]["letters"]["schedule"] = {"cron": NEVER}
        running = stack.enter_context(started(where.write())).ready()
        running.wait(lambda: sum("letters on int8" in event for event in running.events()) >= len(names), "ran")
        yield running


def test_resident_memory_stays_under_350_mib(daemon: Running) -> None:
    resident = psutil.Process(daemon.process.pid).memory_info().rss
    told(f"resident after ten runs = {resident / MIB:.0f} MiB")

    assert resident < 350 * MIB


def test_an_idle_daemon_uses_under_one_percent_of_a_core(daemon: Running) -> None:
    process = psutil.Process(daemon.process.pid)
    before, since = process.cpu_times(), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    after, passed = process.cpu_times(), time.perf_counter() - since
    share = (after.user + after.system - before.user - before.system) / passed
    told(f"idle CPU = {share:.2%} of a core")

    assert share < 0.01


async def test_scrapes_and_verdicts_are_answered_while_16000_positions_are_measured() -> None:
    """Measured in a worker thread, as a run does it."""
    one_thread()
    everything = pairs(prompts=160, positions=100)
    took = seconds_of(lambda: measured_once(everything))
    async with serving() as address:
        for path in ("/metrics", "/verdict/int8-3"):
            idle = await median(address, path)
            busy = await meanwhile(functools.partial(median, address, path), everything)
            told(f"{path} during {took:.2f} s of measuring = {busy * 1e3:.1f} ms, idle {idle * 1e3:.1f} ms")
            assert busy < 0.050


def measured_once(everything: list[Pair]) -> object:
    return measure(everything, scope=Scope.CONTINUATION, evidence=Evidence.DRAW)


async def meanwhile(action: Callable[[], Awaitable[float]], everything: list[Pair]) -> float:
    """Do something while one measurement follows the other; there must be some."""
    rounds, over = 0, asyncio.Event()

    async def work() -> None:
        nonlocal rounds
        while not over.is_set():
            await asyncio.to_thread(measured_once, everything)
            rounds += 1

    task = asyncio.create_task(work())
    result = await action()
    over.set()
    await task
    assert rounds > 1
    return result


async def median(address: str, path: str, *, count: int = 100) -> float:
    """Median seconds of an answer over a real socket, seen from another process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, address, path, str(count), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return float(statistics.median(json.loads(out)))


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """The public listener over a board of ten targets."""
    targets = [target_board(f"int8-{i}", measured(f"int8-{i}"), measured(f"int8-{i}", "code")) for i in range(10)]
    whole, meters = board(*targets), Meters()
    listener = Listener("127.0.0.1:0", key="server.listen")
    await listener.start(public_app(lambda: whole, meters))
    yield f"127.0.0.1:{listener.port}"
    await listener.stop()


def pairs(*, prompts: int, positions: int) -> list[Pair]:
    """Random distributions of both sides."""
    chance = random.Random(1)
    return [Pair(side(f"p-{i}", positions, chance), side(f"p-{i}", positions, chance)) for i in range(prompts)]


def side(prompt_id: str, positions: int, chance: random.Random) -> Distribution:
    """Top-k lists over a vocabulary of 60, so that both sides share tokens."""
    ids, logprobs, actual, floor = array("q"), array("d"), array("d"), array("d")
    for _ in range(positions):
        weights = sorted((chance.random() ** 4 for _ in range(K)), reverse=True)
        values = [math.log(0.95 * one / sum(weights) + 1e-9) for one in weights]
        ids.extend([*chance.sample(range(60), K), NO_ID])
        logprobs.extend([*values, 0.0])
        actual.append(values[0])
        floor.append(values[-1])
    places = array("q", range(10, 10 + positions))
    given: dict[str, Any] = {"ids": ids, "logprobs": logprobs, "actual": actual, "floor": floor}
    return Distribution(prompt_id, ProbeMode.PROMPT_SCORING, K, 10, places, **given)
