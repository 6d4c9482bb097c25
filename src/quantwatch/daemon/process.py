"""The daemon itself: start, reload, drain, end."""

import asyncio
import contextlib
from collections.abc import Collection, Coroutine
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING, Any

from quantwatch.clock import Clock, SystemClock
from quantwatch.config.advice import advice
from quantwatch.config.changes import changes, needing_restart
from quantwatch.config.load import load_settings, store_file
from quantwatch.config.schema import Settings
from quantwatch.daemon.agent import AgentListener
from quantwatch.daemon.chores import Chores
from quantwatch.daemon.desk import Desk
from quantwatch.daemon.entrance import Entrance
from quantwatch.daemon.heartbeat import Heartbeat
from quantwatch.daemon.listeners import Listener
from quantwatch.daemon.signals import Signals
from quantwatch.daemon.storing import opened
from quantwatch.daemon.systemd import Notifier
from quantwatch.daemon.timetable import Entry, Timetable
from quantwatch.daemon.tracing import tracer_of
from quantwatch.errors import InputError, QuantwatchError
from quantwatch.expose.app import public_app
from quantwatch.expose.calls import Reloaded
from quantwatch.expose.meters import Meters
from quantwatch.flow.board import BaselineBoard, Board, SelfBoard
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory
from quantwatch.log import logger
from quantwatch.prompts.load import shipped_sets

if TYPE_CHECKING:
    from quantwatch.daemon.build import Builder
    from quantwatch.flows.watch import Watch

log = logger()


@dataclass(slots=True)
class Standing:
    """What the daemon knows of itself besides the watch."""

    started: datetime
    reloaded: datetime
    digest: str = ""
    reload_ok: bool = True
    restored: bool = False


class Daemon:
    """One process that watches by one configuration file. Run once."""

    def __init__(
        self,
        file: Path,
        settings: Settings,
        *,
        cache: Path | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self.file = file
        self.settings = settings
        self.clock = clock or SystemClock()
        self.meters = Meters()
        self.meters.token_kl.shown = settings.expose.token_histogram
        self.memory = Memory()
        self.ready = asyncio.Event()
        self.listeners: dict[str, Listener] = {}
        self.agent: AgentListener | None = None
        self.desk = Desk(self.reload)
        self._cache = cache
        self._random = random or Random()  # noqa: S311, draws and ids, nothing secret
        self._notifier = notifier or Notifier()
        self._standing = Standing(self.clock.now(), self.clock.now())
        self._timetable = Timetable(self._due, missed=self.meters.job_missed, check=self._self_check)
        self._heartbeat = Heartbeat(self.clock, self.meters, self._notifier, jumped=self._jumped)
        self._signals = Signals(reload=self.reload)
        self._builder: Builder | None = None
        self._entrance: Entrance | None = None
        self._one_reload = asyncio.Lock()

    async def run(self) -> None:
        """Start, watch until told to stop, end in order. Raises InputError or StoreError when it cannot start."""
        async with contextlib.AsyncExitStack() as stack:
            self._signals.install(stack)
            await self._listen(stack)
            path = store_file(self.settings, folder=self.file.parent)
            keeper = await opened(path, self.memory, clock=self.clock, meters=self.meters, stack=stack)
            watch = await self._watch(keeper, stack)
            await self._begin(watch)
            chores = Chores(self.memory, keeper, self.desk, self.clock, settings=lambda: self.settings)
            try:
                await self._until_stopped(self._heartbeat.beat(), *chores.all())
            finally:
                await self._end(watch, keeper)
        log.info("stopped")

    async def _end(self, watch: "Watch", keeper: Keeper) -> None:
        """Take nothing new, let runs end, write what waits."""
        drain = self.settings.server.drain
        self._notifier.tell("STOPPING=1", "STATUS=finishing what is under way")
        log.info("stopping", drain_seconds=drain)
        self._timetable.stop()
        await watch.stop(drain)
        if not await keeper.flush():
            log.error("runs are lost: the store cannot be written", runs=keeper.unwritten, reason=keeper.trouble)
        await keeper.tokens.flush()
        keeper.tokens.give_up("quantwatch ends before the store takes them")

    def board(self) -> Board:
        """The picture that is shown now; while starting there is little to see."""
        watch = self.desk.watch
        return watch.board() if watch is not None else Board(self._own(), BaselineBoard())

    async def reload(self) -> Reloaded:
        """Read the configuration again and let it take over whole, or keep the old one and say why."""
        async with self._one_reload:
            if self.desk.watch is None:
                log.warning("not reloaded: quantwatch is still starting")
                return Reloaded(ok=False, message="quantwatch is still starting; try again in a moment", changes=())
            self._notifier.tell("RELOADING=1", f"MONOTONIC_USEC={int(self.clock.monotonic() * 1e6)}")
            taken = False
            try:
                told = await self._take_over(load_settings(self.file, shipped=shipped_sets()))
                taken = True
            except QuantwatchError as exc:
                log.error("the configuration was not taken over; the old one stays", reason=str(exc))
                return Reloaded(ok=False, message=str(exc), changes=())
            finally:
                self._standing.reload_ok = taken  # False also where a fault of ours broke it off
                self._notifier.tell("READY=1")
            return Reloaded(ok=True, message="the configuration has been taken over", changes=tuple(told))

    async def _take_over(self, settings: Settings) -> list[str]:
        watch = self.desk.watch
        if watch is None or self._builder is None or self._entrance is None:
            raise InputError("quantwatch is still starting; try again in a moment")
        keys = self._entrance.read(settings.server)
        generation = await self._builder.generation(settings)
        told = changes(self.settings, settings)
        known = {(name, one) for name, target in watch.watchlist.targets.items() for one in target.sets}
        self.settings = settings
        self.meters.token_kl.shown = settings.expose.token_histogram
        self._entrance.renew(keys, settings.server)
        await watch.succeed(generation)
        self._timetable.set(self._entries(but=known), check_seconds=self.settings.references.self_check)
        self._standing.reloaded = self.clock.now()
        self._standing.digest = generation.watchlist.digest
        log.info("the configuration was taken over", changes=len(told), config=self._standing.digest)
        for line in told:
            log.info("configuration changed", change=line)
        for line in needing_restart(told):
            log.warning("this change waits for a restart", change=line)
        for state in self.memory.left_behind(watch.watchlist.targets):
            log.warning(
                "a target left the configuration while it is isolated; its isolation stays", target=state.target
            )
        return told

    def _own(self) -> SelfBoard:
        standing, watch = self._standing, self.desk.watch
        return SelfBoard(
            started=standing.started,
            config_digest=standing.digest,
            reload_ok=standing.reload_ok,
            reloaded=standing.reloaded,
            restored=standing.restored,
            store_trouble=watch.keeper.trouble if watch is not None else "the store is not open yet",
            unwritten=watch.keeper.unwritten if watch is not None else 0,
            open_intents=watch.outbox.open if watch is not None else 0,
            lag=self._heartbeat.lag,
            notices_waiting=watch.notices.waiting if watch is not None else {},
            gateway_trouble=watch.outbox.trouble if watch is not None else None,
        )

    async def _listen(self, stack: contextlib.AsyncExitStack) -> None:
        server = self.settings.server
        entrance = self._entrance = Entrance(server, clock=self.clock, meters=self.meters)
        apps = {"listen": public_app(self.board, self.meters)}
        store = store_file(self.settings, folder=self.file.parent)
        apps["admin_listen"] = entrance.app(self.board, self.desk, lambda: self.settings, store=store, stack=stack)
        for key, app in apps.items():
            listener = self.listeners[key] = Listener(getattr(server, key), key=f"server.{key}")
            stack.push_async_callback(listener.stop)
            await listener.start(app)
        if server.agent_listen is not None:
            agent = self.agent = AgentListener(server.agent_listen, self.board, self.meters, key="server.agent_listen")
            stack.push_async_callback(agent.stop)
            await agent.start()
        at: dict[str, Listener | AgentListener] = {**self.listeners}
        if self.agent is not None:
            at["agent_listen"] = self.agent
        log.info("listening", **{key: f"{one.host}:{one.port}" for key, one in at.items()})

    async def _watch(self, keeper: Keeper, stack: contextlib.AsyncExitStack) -> "Watch":
        """Build everything that needs torch, which is imported beside the loop."""
        build = await asyncio.to_thread(_import_build)
        tracer = await asyncio.to_thread(tracer_of, self.settings.tracing)
        stack.push_async_callback(tracer.close)
        base = build.Base(
            keeper,
            self.memory,
            self.meters,
            self.clock,
            self._random,
            own=self._own,
            folder=self.file.parent,
            cache=self._cache,
            tracer=tracer,
        )
        built = await build.build(self.settings, base)
        stack.push_async_callback(built.watch.close)
        self._builder = built.builder
        self._standing.digest = built.watch.watchlist.digest
        self.desk.people, self.desk.watch = built.people, built.watch
        watch: Watch = built.watch
        return watch

    async def _begin(self, watch: "Watch") -> None:
        """Take up what an earlier life left open, then let the clock run."""
        await (await asyncio.to_thread(_import_resume)).resume(watch)
        await watch.adopt()
        self._standing.restored = True
        self._timetable.start()
        self._timetable.set(self._entries(but=()), check_seconds=self.settings.references.self_check)
        self.ready.set()
        self._notifier.tell("READY=1", f"STATUS=watching {len(watch.watchlist.targets)} targets")
        for line in advice(self.settings):
            log.warning("the configuration is valid, but", advice=line)
        log.info("watching", targets=len(watch.watchlist.targets), config=self._standing.digest)

    def _jumped(self, seconds: float) -> None:
        """All times are reckoned anew; what lies in the future after a step back moves back with the clock."""
        if seconds < 0:
            self.memory.shift(seconds)
        self._timetable.rebuild()

    def _due(self, target: str, task_set: str) -> None:
        if self.desk.watch is not None:
            self.desk.watch.due(target, task_set)

    async def _self_check(self) -> None:
        if self.desk.watch is not None:
            await self.desk.watch.self_check()

    def _entries(self, *, but: Collection[tuple[str, str]]) -> list[Entry]:
        """What is due when. What has no fresh result, and did not run before a reload, begins at once."""
        watch, now = self.desk.watch, self.clock.now()
        assert watch is not None  # noqa: S101, built before; this is for the type checker
        entries = []
        for name, target in watch.watchlist.targets.items():
            for one in target.sets.values():
                state = self.memory.set_state(name, one.name)
                late = state.at is None or not 0 <= (now - state.at).total_seconds() < one.period_seconds
                late = late or state.breaches > 0  # to be confirmed, by a baseline that is checked in this life
                schedule = self.settings.task_sets[one.name].schedule
                entries.append(Entry(name, one.name, schedule, overdue=late and (name, one.name) not in but))
        return entries

    async def _until_stopped(self, *tasks: Coroutine[Any, Any, None]) -> None:
        """Run these until a signal comes; one that ends by itself is a fault, and the daemon ends with it."""
        running = [asyncio.create_task(one) for one in tasks]
        stop = asyncio.create_task(self._signals.stop.wait())
        done, _ = await asyncio.wait([stop, *running], return_when=asyncio.FIRST_COMPLETED)
        for one in (stop, *running):
            one.cancel()
        await asyncio.gather(stop, *running, return_exceptions=True)
        for one in done - {stop}:
            one.result()


def _import_resume() -> ModuleType:
    from quantwatch.flows import resume

    return resume


def _import_build() -> ModuleType:
    from quantwatch.daemon import build

    return build
