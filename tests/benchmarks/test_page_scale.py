"""What 100,000 runs and 1,000 targets cost the live page, against an empty store.

A run and a decision have no page there: theirs are held against a store that has as much as one page shows.

Both sides answer in turn in the same process, so that a busy machine slows them alike; only ratios are held.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from quantwatch.daemon.listeners import Listener
from quantwatch.flow.board import Board
from quantwatch.record.archive import Archive
from support.boards import board, measured, target_board
from support.hostile import live
from support.years import Past, clone, decide, decided, opened, write

pytestmark = pytest.mark.benchmark

RUNS, TARGETS = 100_000, 1_000
BUSY = "int8-0000"
"""The target with the longest past: 10,000 runs on one task set."""

NAMES = tuple(f"int8-{number:04d}" for number in range(TARGETS))
SETS = ("math", "code")
ALWAYS = {
    "fleet": "/",
    "fleet, found": "/?q=int8-00",
    "fleet, asked again": "/?part=fleet",
    "node": f"/nodes/{BUSY}",
    "sets": "/sets",
    "set": "/sets/math",
}
"""Pages that are there before any run."""

ROUNDS = 15
AT_ONCE = 20
LARGEST = 400_000
"""Bytes of a page without its scripts and pictures."""

WARM = 3
ROWS = 60
MOMENT = 0.005
NOISE = 4
"""Times the lateness of the idle loop, which a busy machine causes by itself."""

FAIR = 20 * sys.getswitchinterval()
"""Seconds: the loop waits for its turn among threads that write pages, of which each holds on for one interval."""

CROWD = """
import http.client, json, sys, threading, time
address, paths, callers = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
seconds, failed = [], []
def call():
    connection = http.client.HTTPConnection(address, timeout=120)
    for path in paths:
        began = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            failed.append((path, answer.status))
        seconds.append(time.perf_counter() - began)
threads = [threading.Thread(target=call) for _ in range(callers)]
for one in threads:
    one.start()
for one in threads:
    one.join()
assert not failed, failed
print(json.dumps(seconds))
"""


@dataclass(frozen=True, slots=True)
class Side:
    """One store with a page before it. run, decision: ids of the target with the longest past, none without any."""

    app: Starlette
    run: str = ""
    decision: str = ""

    def paths(self) -> dict[str, str]:
        """Every page there is, by what it is."""
        own = {"run": f"/runs/{self.run}", "decision": f"/decisions/{self.decision}"} if self.run else {}
        return ALWAYS | own


def told(text: str) -> None:
    print(f"\n{text}")  # noqa: T201, the point of a benchmark


def fleet() -> Board:
    """Every target on every task set; every tenth is degraded."""
    targets = [target_board(name, *(measured(name, task_set) for task_set in SETS)) for name in NAMES]
    return board(*targets)


def filled(folder: Path, *, long: int, each: int, names: tuple[str, ...]) -> Path:
    """A store: `long` runs of the busiest target, `each` of every other on each task set, and decisions."""
    file, now = folder / "quantwatch.db", datetime.now(UTC)
    with opened(file) as store:
        pasts = [Past(BUSY, "math", "chat", long, now, every=timedelta(minutes=5))]
        model = "model"
        pasts += [Past(model, one, "chat", each, now - timedelta(minutes=2 + n)) for n, one in enumerate(SETS) if each]
        write(store, pasts)
        clone(store, model, names[1:])
        decide(store, list(decided(names[:1], pool="chat", each=max(40, long // 25), end=now)))
        decide(store, list(decided(names[1:], pool="chat", each=4, end=now)))
    return file


def side(file: Path) -> Side:
    """A page before a store."""
    with Archive.open(file) as archive:
        run, decision = archive.history(target=BUSY, limit=1)[0].id, archive.decisions(target=BUSY, limit=1)[0].id
    return Side(live(file, fleet()), run, decision)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Side:
    """Months of 1,000 targets."""
    each = (RUNS - RUNS // 10) // (len(SETS) * (TARGETS - 1))
    file = filled(tmp_path_factory.mktemp("large"), long=RUNS // 10, each=each + 1, names=NAMES)
    with Archive.open(file) as archive, archive.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM runs").scalar_one() >= RUNS
    return side(file)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Side:
    """As much as fills one page of each list of one target, and nothing of any other: rows cost what they cost."""
    return side(filled(tmp_path_factory.mktemp("small"), long=ROWS, each=0, names=(BUSY,)))


async def seconds_of(client: httpx.AsyncClient, path: str) -> tuple[float, int]:
    """How long a page took, and its bytes."""
    began = time.perf_counter()
    answer = await client.get(path)
    assert answer.status_code == 200, (path, answer.status_code, answer.text[-400:])
    return time.perf_counter() - began, len(answer.content)


def asking(app: Starlette) -> httpx.AsyncClient:
    """A client without a socket."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://page", timeout=60)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Side:
    """The same targets before their first run."""
    file = tmp_path_factory.mktemp("empty") / "quantwatch.db"
    with opened(file):
        pass
    return Side(live(file, fleet()))


async def against(large: Side, other: Side, page: str) -> None:
    """Hold a page before the large store against the same before another."""
    async with asking(large.app) as at_large, asking(other.app) as at_other:
        times: list[tuple[float, float]] = []
        for number in range(WARM + ROUNDS):
            took, size = await seconds_of(at_large, large.paths()[page])
            without, _ = await seconds_of(at_other, other.paths()[page])
            if number >= WARM:
                times.append((took, without))
    long, short = (statistics.median(part) for part in zip(*times, strict=True))
    told(f"{page}: {long * 1e3:.1f} ms / {short * 1e3:.1f} ms = {long / short:.2f}; {size / 1e3:.0f} kB")

    assert long / short <= 3
    assert size < LARGEST


@pytest.mark.parametrize("page", list(ALWAYS))
async def test_a_page_takes_at_most_three_times_as_long_as_before_an_empty_store(
    large: Side, empty: Side, page: str
) -> None:
    await against(large, empty, page)


@pytest.mark.parametrize("page", ["run", "decision", "node"])
async def test_a_page_of_one_past_takes_no_longer_for_all_the_others(large: Side, small: Side, page: str) -> None:
    await against(large, small, page)


@asynccontextmanager
async def listening(app: Starlette) -> AsyncIterator[str]:
    """The pages on a socket, on the loop of the test; their address."""
    listener = Listener("127.0.0.1:0", key="server.admin_listen")
    await listener.start(app)
    yield f"127.0.0.1:{listener.port}"
    await listener.stop()


async def lags(during: Callable[[], Awaitable[object]]) -> list[float]:
    """By how many seconds the loop was late, each time it was asked to come back in a moment."""
    late: list[float] = []
    over = asyncio.Event()

    async def watch() -> None:
        while not over.is_set():
            began = time.perf_counter()
            await asyncio.sleep(MOMENT)
            late.append(time.perf_counter() - began - MOMENT)

    watching = asyncio.create_task(watch())
    await during()
    over.set()
    await watching
    return late


async def crowd(address: str, paths: list[str]) -> list[float]:
    """AT_ONCE callers, each from first to last path; seconds of every answer, seen from another process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CROWD, address, json.dumps(paths), str(AT_ONCE), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return [float(one) for one in json.loads(out)]


async def test_the_loop_goes_on_while_twenty_callers_wait_for_pages(large: Side) -> None:
    """What scrapes, verdicts and runs notice of it; 19 of 20 moments, as one may be the machine's."""
    paths = [path for path in large.paths().values() if "part" not in path]
    idle = await lags(lambda: asyncio.sleep(3))
    async with listening(large.app) as address:
        answers: list[float] = []

        async def asked() -> None:
            answers.extend(await crowd(address, paths))

        busy = await lags(asked)
    alone, crowded = (statistics.quantiles(part, n=20)[-1] for part in (idle, busy))
    told(
        f"loop late, 19 of 20 moments: {crowded * 1e3:.1f} ms with {AT_ONCE} callers, {alone * 1e3:.1f} ms idle; "
        f"worst {max(busy) * 1e3:.0f} ms, {max(idle) * 1e3:.0f} ms; median answer {statistics.median(answers):.2f} s"
    )

    assert len(answers) == AT_ONCE * len(paths)
    assert crowded < NOISE * alone + FAIR
