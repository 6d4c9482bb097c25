"""The live page with a thousand targets and a hundred thousand runs, beside the same page with an empty store."""

import statistics
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from quantwatch.flow.run import RunRecord
from support.boards import board, measured, target_board
from support.pages import app, site
from support.stored import add_many, at, opened, run, set_report

pytestmark = pytest.mark.benchmark

MOST = 3.0
"""How many times the empty store's time a page may take: a line of the product's acceptance."""

TARGETS, RUNS, OF_ONE = 1000, 100_000, 10_000
ROUNDS = 15
BUSY = "node-0000"
"""The target that has a tenth of all runs, so that one node's own page is long as well."""

PAGES = {
    "fleet": "/",
    "part": "/?part=fleet",
    "node": f"/nodes/{BUSY}",
    "sets": "/sets",
    "set": "/sets/math",
}


def records() -> Iterator[RunRecord]:
    """All runs, a minute apart; numbers that differ, so that extremes are to be found."""
    reports = [set_report(0.001 + 0.0001 * i) for i in range(50)]
    for number in range(RUNS):
        target = BUSY if number % (RUNS // OF_ONE) == 0 else f"node-{number % TARGETS:04d}"
        yield run(number, target=target, report=reports[number % len(reports)])


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all runs in it."""
    folder = tmp_path_factory.mktemp("full")
    with opened(folder) as store:
        path = store.path
    batch: list[RunRecord] = []
    for record in records():
        batch.append(record)
        if len(batch) == 5000:
            add_many(path, batch)
            batch.clear()
    return path


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without a run."""
    with opened(tmp_path_factory.mktemp("empty")) as store:
        return store.path


async def clients(store: Path, targets: int) -> AsyncIterator[httpx.AsyncClient]:
    """Asks a page over a store, with so many targets on the board."""
    names = [f"node-{number:04d}" for number in range(targets)]
    shown = board(*(target_board(name, measured(name)) for name in names))
    made = site(shown, store, now=at(RUNS))
    transport = httpx.ASGITransport(app(made))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client
    await made.reading.close()


async def seconds(client: httpx.AsyncClient, path: str) -> float:
    """Median time of an answer, after a first one that opens the store."""
    times = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        assert (await client.get(path)).status_code == 200
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_is_as_quick_as_with_an_empty_store(name: str, full: Path, empty: Path) -> None:
    """Against as many targets as one page shows, and no run: what grows with the fleet stays small."""
    times = {}
    for store, targets in ((empty, 50), (full, TARGETS)):
        async for client in clients(store, targets):
            times[store] = await seconds(client, PAGES[name])
    print(f"\n{name}: {times[empty] * 1e3:.1f} ms empty, {times[full] * 1e3:.1f} ms full")  # noqa: T201, what it is for
    assert times[full] <= MOST * times[empty]


@pytest.mark.parametrize("stretch", ["24h", "90d"])
async def test_charts_stay_small(stretch: str, full: Path) -> None:
    """Numbers of ninety days of one node: thinned out, and told with the time they take."""
    async for client in clients(full, 50):
        path = f"/nodes/{BUSY}/series.json?set=math&range={stretch}"
        told = (await client.get(path)).json()["charts"]
        print(f"\ncharts of {stretch}: {await seconds(client, path) * 1e3:.0f} ms")  # noqa: T201, what it is for
        assert all(0 < len(one["at"]) <= 500 for one in told.values())
