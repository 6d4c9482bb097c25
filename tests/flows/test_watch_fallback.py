"""A fallback that does not answer: it is given up after a while, and nobody else waits for it."""

import asyncio
from pathlib import Path
from typing import Any

import httpx

from quantwatch.flow.decision import Brake
from quantwatch.flow.state import Routing
from quantwatch.flows.scene import FALLBACK_SECONDS
from support.watching import Bench, restarted, settings, watching

BAD = 1.0


class Hasty(asyncio.SelectorEventLoop):
    """A loop on which time can be skipped. ahead: seconds that were skipped so far."""

    ahead = 0.0

    def time(self) -> float:
        """Its own time."""
        return super().time() + self.ahead


class Silent(httpx.AsyncBaseTransport):
    """A server that takes a request and never answers."""

    def __init__(self) -> None:
        self.asked = 0
        self.left = 0

    async def handle_async_request(self, _: httpx.Request) -> httpx.Response:
        """Wait for ever."""
        self.asked += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.left += 1
        raise AssertionError("never reached")


def two_pools() -> dict[str, Any]:
    """Target a, for whom `spare` takes over, and target b, for whom the baseline does."""
    raw = settings("a", "b", "spare")
    for target, pool in zip(raw["targets"], ("x", "y", "z"), strict=True):
        target["pool"] = pool
    acting = {"mode": "enforce"}
    raw["pools"] = {"x": {**acting, "fallback": "spare"}, "y": {**acting, "fallback": "baseline"}, "z": {}}
    raw["probe"] = {"patience": "0s", "timeout": "300s"}
    return raw


async def both_go_bad(bench: Bench) -> Silent:
    """Prove everything, let the spare fall silent, and a and b go bad."""
    await bench.rounds(1)
    silent = Silent()
    bench.wire._hosts["spare"] = silent
    for name in ("a", "b"):
        restarted(bench.nodes[name], damage=BAD)
    bench.watch.due("a", "letters")
    await bench.until(lambda: silent.asked)
    return silent


async def test_other_pools_do_not_wait_for_a_fallback_that_hangs(tmp_path: Path) -> None:
    async with watching(tmp_path, two_pools()) as bench:
        silent = await both_go_bad(bench)
        bench.watch.due("b", "letters")
        await bench.until(lambda: bench.routing("b") is Routing.OUT)

        assert silent.left == 0  # the spare is still being asked about a
        assert bench.decisions("a") == []
        assert bench.watch.workers["a"].running == "letters"


def test_a_fallback_that_hangs_is_given_up_and_takes_no_traffic(tmp_path: Path) -> None:
    async def hangs() -> None:
        async with watching(tmp_path, two_pools()) as bench:
            silent = await both_go_bad(bench)
            loop = asyncio.get_running_loop()
            assert isinstance(loop, Hasty)
            before = loop.ahead
            while silent.left < silent.asked and loop.ahead - before < 10 * FALLBACK_SECONDS:
                loop.ahead += FALLBACK_SECONDS / 100
                await asyncio.sleep(0)
            await bench.until(lambda: bench.decisions("a"))

            assert loop.ahead - before >= FALLBACK_SECONDS / 2  # it was given some time
            (made,) = bench.decisions("a")
            assert Brake.FALLBACK in [one["brake"] for one in made.objections]
            assert f"did not answer within {FALLBACK_SECONDS:g} s" in repr(made.objections)
            assert bench.gateway.calls == []

    with asyncio.Runner(loop_factory=Hasty) as runner:
        runner.run(hangs())
