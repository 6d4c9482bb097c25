"""The gateway's own list decides who is really there: a configuration that names more nodes makes nothing act."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.errors import NeedsForce
from quantwatch.flow.decision import Brake
from quantwatch.flow.state import Routing
from quantwatch.flow.word import Word
from quantwatch.flows.resume import look
from quantwatch.flows.roll import ROLL_SECONDS
from quantwatch.flows.scene import ROLL_AGE, roll_of
from quantwatch.flows.words import isolate
from support.fake_router import entry
from support.watching import Bench, restarted, settings, watching


class Router(httpx.AsyncBaseTransport):
    """A router with a list of its own. ill: workers that it calls unhealthy. broken: answers in place of the list."""

    def __init__(self, *names: str) -> None:
        self.listed = [f"http://{name}" for name in names]
        self.ill: set[str] = set()
        self.broken: httpx.Response | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url.params.get("url")
        if request.method == "GET":
            workers = [entry(one, is_healthy=one not in self.ill) for one in self.listed]
            return self.broken or httpx.Response(200, content=json.dumps({"workers": workers}).encode())
        if request.url.path == "/remove_worker":
            self.listed.remove(url)
        else:
            self.listed.append(url)
        return httpx.Response(200)


def at_a_router(*targets: str, **pool: Any) -> dict[str, Any]:
    raw = settings(*targets, pool={"max_isolated": "50%", "storm_share": 1.0, "minimum_hold": "0s", **pool})
    return raw | {"gateway": {"driver": "vllm_router", "url": "http://router"}}


async def goes_bad(bench: Bench, router: Router) -> None:
    bench.wire.put("router", router)
    await bench.rounds(1)
    restarted(bench.nodes["a"], damage=1.0)
    await bench.rounds(1)
    await bench.advance(60)


def objected(bench: Bench) -> list[list[str]]:
    return [[one["brake"] for one in made.objections] for made in bench.decisions("a")]


async def test_with_everybody_on_the_list_a_bad_node_goes_out_and_comes_back(tmp_path: Path) -> None:
    async with watching(tmp_path, at_a_router("a", "b")) as bench:
        router = Router("a", "b", "stranger")
        await goes_bad(bench, router)
        assert bench.routing() is Routing.OUT
        assert router.listed == ["http://b", "http://stranger"]
        await look(bench.watch)
        assert bench.board().pools[0].missing == ()
        assert await bench.series("pool_missing_targets") == 0

        restarted(bench.nodes["a"])
        await bench.rounds(3)
        assert bench.routing() is Routing.IN
        assert "http://a" in router.listed


async def test_a_member_that_the_gateway_does_not_list_is_no_backend_and_a_stranger_is_none_either(
    tmp_path: Path,
) -> None:
    """By our configuration b is sound and in traffic. The router knows nothing of it, and of a stranger instead."""
    async with watching(tmp_path, at_a_router("a", "b")) as bench:
        router = Router("a", "stranger")
        await goes_bad(bench, router)
        assert bench.target("b").quality == "ok"
        assert objected(bench) == [[Brake.CAP, Brake.LAST_BACKEND]]
        assert "2 of 2 members of chat would be away (b by the gateway's own list)" in repr(bench.decisions("a"))
        assert router.listed == ["http://a", "http://stranger"]
        assert bench.board().pools[0].missing == ("b",)
        assert await bench.series("pool_missing_targets", pool="chat") == 1
        assert await bench.series("actions_suppressed_total", reason="cap") > 0

        router.listed.append("http://b")
        await bench.rounds(1)
        await bench.advance(60)
        assert bench.routing() is Routing.OUT


async def test_a_worker_that_the_gateway_calls_unhealthy_is_no_backend(tmp_path: Path) -> None:
    async with watching(tmp_path, at_a_router("a", "b", "c", "d")) as bench:
        router = Router("a", "b", "c", "d")
        router.ill = {"http://b", "http://c", "http://d"}
        await goes_bad(bench, router)
        assert objected(bench) == [[Brake.CAP, Brake.LAST_BACKEND]]

        router.ill = {"http://b"}
        await bench.rounds(1)
        await bench.advance(60)
        assert bench.routing() is Routing.OUT


@pytest.mark.parametrize("answer", [httpx.Response(500), httpx.Response(200, content=b"<html>busy</html>")])
async def test_a_list_that_cannot_be_read_lets_nothing_act(tmp_path: Path, answer: httpx.Response) -> None:
    async with watching(tmp_path, at_a_router("a", "b", fallback="baseline")) as bench:
        router = Router("a", "b")
        router.broken = answer
        await goes_bad(bench, router)
        assert objected(bench) == [[Brake.CAP]]
        assert "how many members of chat the gateway has is not known" in repr(bench.decisions("a"))
        assert bench.board().pools[0].missing is None

        router.broken = None
        await bench.rounds(1)
        await bench.advance(60)
        assert bench.routing() is Routing.OUT


async def test_a_person_is_told_and_can_force_it(tmp_path: Path) -> None:
    async with watching(tmp_path, at_a_router("a", "b")) as bench:
        router = Router("a", "stranger")
        bench.wire.put("router", router)
        await bench.rounds(1)
        with pytest.raises(NeedsForce, match=r"own list"):
            await isolate(bench.watch, Word("a", "ada", "a bad fan"))
        await isolate(bench.watch, Word("a", "ada", "a bad fan", force=True))
        await bench.settle()
        assert router.listed == ["http://stranger"]


async def test_what_the_list_said_long_ago_does_not_count(tmp_path: Path) -> None:
    async with watching(tmp_path, at_a_router("a", "b")) as bench:
        bench.wire.put("router", Router("a", "b"))
        await look(bench.watch)
        now = bench.clock.now()
        fresh = roll_of("chat", bench.memory, now)
        assert fresh is not None
        assert (fresh.present, fresh.trouble) == (frozenset({"a", "b"}), None)
        late = roll_of("chat", bench.memory, now + 2 * ROLL_AGE)
        assert late is not None
        assert (late.present, late.trouble) == (frozenset(), "its list was read too long ago")

        # A gateway that tells nobody leaves nothing of what another one said.
        await bench.reload(settings("a", "b"))
        await look(bench.watch)
        assert roll_of("chat", bench.memory, now) is None
        assert bench.board().pools[0].missing is None


async def test_a_pool_that_is_only_watched_asks_the_gateway_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path, at_a_router("a", "b", mode="observe")) as bench:
        bench.wire.put("router", Router("a", "b"))
        await look(bench.watch)
        assert "router" not in bench.wire.calls
        assert ROLL_SECONDS > 0
