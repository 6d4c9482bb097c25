"""How the demo looks at the daemon, measures a node for limits, and breaks off when something does not start."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quantwatch.daemon.listeners import Listener
from quantwatch.demo.children import DemoFailed
from quantwatch.demo.measuring import limits_of, measured
from quantwatch.demo.plan import Addresses, Size, write_task_sets
from quantwatch.demo.stage import Stage
from quantwatch.demo.story import Options, Story
from quantwatch.demo.watching import Target, Watching
from quantwatch.flow.verdict import Quality
from support.served import served
from support.tiny_node import TinyModel, TinyNode

SMALL = Size(("math",), 12, 6)


@dataclass(slots=True)
class Desk:
    """An admin side that shows one picture after another, the last one for ever."""

    pictures: list[Target]
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def status(self, _: Request) -> Response:
        picture = self.pictures.pop(0) if len(self.pictures) > 1 else self.pictures[0]
        return JSONResponse({"targets": [{"target": "other"}, {"target": "int8", **picture}]})

    async def run(self, request: Request) -> Response:
        self.asked.append(await request.json())
        return JSONResponse({"queued": 1}, 202)

    def app(self) -> Starlette:
        return Starlette(
            routes=[Route("/api/v1/status", self.status), Route("/api/v1/runs", self.run, methods=["POST"])]
        )


def picture(routing: str = "in", *, running: str | None = None, queued: int = 0) -> Target:
    return {"routing": routing, "running": running, "queued": queued, "quality": "ok", "reason": "all is well"}


@asynccontextmanager
async def watched(desk: Desk, check: Callable[[], None] = lambda: None) -> AsyncIterator[tuple[Watching, list[Target]]]:
    listener = Listener("127.0.0.1:0", key="test")
    await listener.start(desk.app())
    seen: list[Target] = []
    try:
        yield Watching(f"http://127.0.0.1:{listener.port}", target="int8", check=check, seen=seen.append), seen
    finally:
        await listener.stop()


async def test_it_waits_until_the_target_is_so_and_shows_every_picture() -> None:
    desk = Desk([picture(running="math"), picture("out", running="math")])
    async with watched(desk) as (watching, seen):
        got = await watching.until(lambda one: one["routing"] == "out", seconds=30, what="The isolation")

    assert got["routing"] == "out"
    assert [one["routing"] for one in seen] == ["in", "out"]
    assert desk.asked == []  # it was running all the time


@pytest.mark.parametrize(("idle", "asks"), [(picture(), 1), (picture(queued=1), 0), (picture(running="math"), 0)])
async def test_a_daemon_that_has_nothing_to_do_is_asked_for_a_run(idle: Target, asks: int) -> None:
    desk = Desk([idle, picture("out", running="math")])
    async with watched(desk) as (watching, _):
        await watching.until(lambda one: one["routing"] == "out", seconds=30, what="The isolation")

    assert desk.asked == [{"target": "int8"}] * asks


async def test_what_does_not_happen_is_told_with_the_daemons_reason() -> None:
    async with watched(Desk([picture(running="math")])) as (watching, _):
        with pytest.raises(DemoFailed) as caught:
            await watching.until(lambda _: False, seconds=1.5, what="The isolation")

    told = "The isolation did not happen within 1.5 s; the daemon says: ok, routing in: all is well"
    assert str(caught.value) == told


async def test_a_daemon_that_never_answers_is_told() -> None:
    watching = Watching("http://127.0.0.1:9", target="int8", check=lambda: None, seen=lambda _: None)

    with pytest.raises(DemoFailed, match="the daemon did not answer"):
        await watching.until(lambda _: True, seconds=1.2, what="A clean run")


async def test_a_process_that_ended_ends_the_wait() -> None:
    def gone() -> None:
        raise DemoFailed("daemon ended with code 4")

    async with watched(Desk([picture()]), gone) as (watching, _):
        with pytest.raises(DemoFailed, match="ended with code 4"):
            await watching.until(lambda _: True, seconds=30, what="Anything")


def addresses(baseline: str, node: str) -> Addresses:
    return Addresses(baseline, node, "http://g", "http://m", "http://a")


async def test_a_healthy_node_is_measured_on_every_task_set(tmp_path: Path) -> None:
    pools, steps = write_task_sets(SMALL, tmp_path), []
    with served(TinyNode()) as baseline, served(TinyNode(model=TinyModel(damage=0.005), started=1.0)) as node:
        at = addresses(baseline, node)
        got = await measured(pools, SMALL, at, seed=3, cache=tmp_path, tell=lambda one: steps.append(one.doing))

    assert list(got) == ["math"]
    assert got["math"].verdict.quality is Quality.OK
    assert got["math"].seed == 3
    assert got["math"].observation.drawn == SMALL.draw
    assert limits_of(got)["math"]["kl_mean"]["critical"] > 0
    assert steps[-1] == "done"


async def test_a_node_that_cannot_be_measured_breaks_the_demo_off(tmp_path: Path) -> None:
    pools = write_task_sets(SMALL, tmp_path)
    with served(TinyNode()) as baseline:
        at = addresses(baseline, "http://127.0.0.1:9")
        with pytest.raises(DemoFailed, match="could not be measured on math"):
            await measured(pools, SMALL, at, seed=0, cache=tmp_path, tell=lambda _: None)


async def test_a_story_whose_model_cannot_be_loaded_breaks_off_and_leaves_nothing_behind(tmp_path: Path) -> None:
    stage = Stage()
    options = Options(tmp_path / "none", tmp_path, tmp_path / "cache", SMALL)

    with pytest.raises(DemoFailed, match="ended with code 3"):
        async with Story(options, stage) as story:
            await story.play()

    assert [child.ended for child in story._children] == [True, True]
    assert story._places["int8"].socket.fileno() == -1
    assert stage.task_sets == ("math",)
    assert story.facts.rows() == {}
