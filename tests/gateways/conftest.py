"""Real routers, one of each kind for a whole file of tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from quantwatch.act.contract import MemoryNotes
from support.routers import Bench, bench, program


def mended(one: Bench) -> Bench:
    """As a test wants to find it: every worker listed and healthy, no stranger beside them, nothing remembered."""
    for server in one.workers:
        server.healthy = True
        server.asked.clear()
        server.begun.clear()
    one.notes = MemoryNotes()
    if one.router.listed() != set(one.urls):
        one.router.stop()
        one.router.start()
    return one


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Bench]]:
    """A running router of a kind, started when it is first asked for; skips where it is not installed."""
    with ExitStack() as stack:
        running: dict[str, Bench] = {}

        def of(kind: str) -> Bench:
            if program(kind) is None:
                pytest.skip(f"{kind} is not installed; `pip install '.[test]'` brings it on Linux x86-64")
            if kind not in running:
                running[kind] = stack.enter_context(bench(kind, tmp_path_factory.mktemp(kind)))
            return mended(running[kind])

        yield of
