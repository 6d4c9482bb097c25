"""What happens, scene by scene: every part is the real one, started as a user would start it."""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from quantwatch.clock import SystemClock
from quantwatch.daemon.listeners import Listener
from quantwatch.demo.children import Child, DemoFailed, Place, peak_mib, start
from quantwatch.demo.client import Client
from quantwatch.demo.facts import Facts, Stay
from quantwatch.demo.gateway import Gateway
from quantwatch.demo.measuring import limits_of, measured
from quantwatch.demo.plan import (
    BASELINE,
    MODEL,
    NODE,
    Addresses,
    Size,
    configuration,
    write_configuration,
    write_task_sets,
)
from quantwatch.demo.stage import Stage
from quantwatch.demo.watching import Target, Watching, status_of
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import BREACHES, Quality
from quantwatch.flows.plan import Progress
from quantwatch.toolkit.recipe import Recipe, Scheme

Result = TypeVar("Result")

OUTLIERS = 100.0
SMOOTH = 0.5
RECIPES = {
    "healthy": Recipe(Scheme.W8A8),
    "outlier": Recipe(Scheme.W8A8, outliers=OUTLIERS),
    "smoothed": Recipe(Scheme.W8A8, outliers=OUTLIERS, smooth=SMOOTH),
}
"""What runs behind the node's address, one after another."""

SEEN = 3
"""Answers of the client's requests that show where the traffic goes now."""

PATIENCE = 240.0
"""Seconds for any one thing to happen; on a quiet machine of two cores each takes less than one minute."""


@dataclass(frozen=True, slots=True)
class Options:
    """model: a folder that transformers can load. folder: where all is written. cache: the baseline's answers."""

    model: Path
    folder: Path
    cache: Path
    size: Size
    seed: int = 0
    patience: float = PATIENCE


class Story:
    """The demo's world. Use as an async context manager: whatever was started is ended with it."""

    def __init__(self, options: Options, stage: Stage) -> None:
        self.options = options
        self.stage = stage
        self._places = {BASELINE: Place.open(), NODE: Place.open()}
        self._listener = Listener("127.0.0.1:0", key="the demo's gateway")
        self.facts = Facts(options.size, self._addresses(), options.folder, options.cache)
        nodes = {BASELINE: self.facts.at.baseline, NODE: self.facts.at.node}
        self.gateway = stage.gateway = Gateway(nodes, serving=NODE)
        self.client = stage.client = Client(self.facts.at.gateway, MODEL)
        stage.task_sets = options.size.task_sets
        self._children: list[Child] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._node: Child | None = None
        self._watching: Watching | None = None
        self._clock = SystemClock()

    async def __aenter__(self) -> "Story":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.note_memory()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(child.stop() for child in reversed(self._children)))
        await self._listener.stop()
        await self.gateway.close()
        for place in self._places.values():
            place.close()

    async def play(self) -> None:
        """All scenes in a row. Raises DemoFailed where one does not come to its end."""
        await self._start()
        await self._limits()
        await self._watch()
        await self._rollout()
        await self._isolated()
        await self._cure()
        await self._released()
        self.note_memory()

    async def stay(self) -> None:
        """Let everything run until cancelled. Raises DemoFailed when a process ends."""
        while True:
            self._check()
            await asyncio.sleep(1.0)

    def note_memory(self) -> None:
        """Read the most that each process has held."""
        for child in self._children:
            if not child.ended:
                self.facts.peaks[child.name] = peak_mib(child.process.pid)
        self.facts.peaks["demo"] = peak_mib(os.getpid())

    async def _start(self) -> None:
        self.stage.begin("start")
        baseline = await self._serve(BASELINE, Recipe(), BASELINE)
        self._node = await self._serve("healthy", RECIPES["healthy"], NODE)
        await baseline.until(_listening)
        await self._node.until(_listening)
        self._now("healthy")
        self.stage.done("start", f"baseline {self.facts.at.baseline}, node {self.facts.at.node}")

    async def _limits(self) -> None:
        self.stage.begin("limits")
        facts, options = self.facts, self.options
        measuring = measured(
            write_task_sets(options.size, options.folder),
            options.size,
            facts.at,
            seed=options.seed,
            cache=options.cache,
            tell=self._progress("limits"),
        )
        facts.healthy = await self._beside(measuring)
        facts.limits = limits_of(facts.healthy)
        for name, one in facts.healthy.items():
            assert one.divergence is not None  # noqa: S101, measured() has made sure
            critical = facts.limits[name]["kl_mean"]["critical"]
            told = f"mean KL {one.divergence.kl_mean.value:.4f}, so critical is {critical:g}"
            self.stage.say(f"  {name}: {told}; by the shipped INT8 limits it would be {one.verdict.quality}")
        write_configuration(facts.config, configuration(options.size, facts.at, facts.limits))
        self.stage.done("limits", f"written to {facts.config}")

    async def _watch(self) -> None:
        self.stage.begin("watch")
        await self._listener.start(self.gateway.app())
        self._tasks.append(asyncio.create_task(self.client.run(), name="client"))
        arguments = ["run", "--config", str(self.facts.config), "--cache", str(self.options.cache)]
        daemon = await start("daemon", arguments, folder=self.options.folder)
        self._note(daemon)
        self._watching = Watching(self.facts.at.admin, target=NODE, check=self._check, seen=self._seen)
        target = await self._until(_clean, what="A clean run of every task set")
        self.stage.done("watch", f"{NODE} is {target['quality']} on {', '.join(self.options.size.task_sets)}")

    async def _rollout(self) -> None:
        self.stage.begin("rollout")
        await self._take_over("outlier")
        health = await status_of(f"{self.facts.at.node}/health")
        told = f"/health says {health}, {len(self.client.failed)} of {len(self.client.replies)} requests failed so far"
        self.stage.done("rollout", f"{RECIPES['outlier'].describe()}: {told}")

    async def _isolated(self) -> None:
        self.stage.begin("isolated")
        root = RECIPES["outlier"].describe()
        await self._until(lambda one: _measured_as(one, root) and _breach(one), what="A breach")
        self.stage.say("  breach seen; a second run with fresh draws has to confirm it")
        target = await self._until(lambda one: one["routing"] == Routing.OUT, what="The isolation")
        await self._answered(BASELINE)
        self.stage.done("isolated", target["reason"])

    async def _cure(self) -> None:
        self.stage.begin("cure")
        # Every task set is to be measured on the bad node too, so that both can be laid side by side.
        sets = len(self.options.size.task_sets)
        await self._until(lambda _: len(self.facts.rows()["outlier"]) == sets, what="A whole round")
        await self._take_over("smoothed")
        self.stage.done("cure", f"{RECIPES['smoothed'].describe()}: same name, same address")

    async def _released(self) -> None:
        self.stage.begin("released")
        await self._until(lambda one: one["routing"] == Routing.IN, what="The release")
        await self._answered(NODE)
        self.stage.done("released", f"{NODE} answers again")

    async def _take_over(self, role: str) -> None:
        """Start another node at the address, and end the one before once the new one answers."""
        last, stay = list(self.facts.stays.items())[-1]
        before, self._node = self._node, await self._serve(role, RECIPES[role], NODE)
        self.facts.stays[last] = replace(stay, until=self._clock.now())  # from here on two may answer
        await self._node.until(_listening)
        if before is not None:
            self.note_memory()
            await before.stop()
            self._children.remove(before)
        self._now(role)

    async def _serve(self, name: str, recipe: Recipe, where: str) -> Child:
        place = self._places[where]
        arguments = ["serve", "--model", str(self.options.model), "--served-model-name", MODEL, "--fd", str(place.fd)]
        # One thread each: several nodes whose threads wait for one another on few cores stand still.
        arguments += ["--scheme", recipe.scheme.value, "--threads", "1"]
        arguments += [] if recipe.outliers is None else ["--outliers", f"{recipe.outliers:g}"]
        arguments += [] if recipe.smooth is None else ["--smooth", f"{recipe.smooth:g}"]
        child = await start(name, arguments, folder=self.options.folder, place=place)
        self._note(child)
        return child

    def _now(self, role: str) -> None:
        self.stage.behind = RECIPES[role].describe()
        self.stage.changed = self._clock.now()
        self.facts.stays[role] = Stay(self.stage.changed)

    async def _until(self, met: Callable[[Target], bool], *, what: str) -> Target:
        assert self._watching is not None  # noqa: S101, the daemon was started before
        return await self._watching.until(met, seconds=self.options.patience, what=what)

    async def _answered(self, by: str) -> None:
        """Wait until some requests that were sent from now on have been answered by that node."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.options.patience):
                while sum(one.by == by for one in self.client.after(began)) < SEEN:
                    self._check()
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise DemoFailed(f"no request was answered by {by}") from None

    async def _beside(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await something while every process is looked after. Raises DemoFailed when one ends meanwhile."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=0.5))[0]:
                self._check()
            return await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _note(self, child: Child) -> None:
        self._children.append(child)
        self.stage.children.append(child)

    def _check(self) -> None:
        """Raise DemoFailed where anything has ended that should run."""
        for child in self._children:
            child.check()

    def _seen(self, target: Target) -> None:
        self.stage.board = target

    def _progress(self, scene: str) -> Callable[[Progress], None]:
        def tell(at: Progress) -> None:
            self.stage.scenes[scene].said = f"{at.done} of {at.total}: {at.doing}"

        return tell

    def _addresses(self) -> Addresses:
        return Addresses(
            baseline=self._places[BASELINE].url,
            node=self._places[NODE].url,
            gateway=f"http://{self._listener.host}:{self._listener.port}",
            metrics=_free(),
            admin=_free(),
        )


def _free() -> str:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return f"http://127.0.0.1:{one.getsockname()[1]}"


def _listening(said: str) -> bool:
    return "listening" in said


def _clean(target: Target) -> bool:
    return all(one["quality"] == Quality.OK and one["fresh"] for one in target["task_sets"])


def _measured_as(target: Target, root: str) -> bool:
    return (target["identity"] or {}).get("root") == root


def _breach(target: Target) -> bool:
    return any(one["last"] in BREACHES for one in target["task_sets"])
