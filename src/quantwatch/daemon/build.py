"""Builds what needs torch; imported beside the loop, so that a scrape is answered while it loads."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import httpx

from quantwatch import wiring
from quantwatch.act.contract import MemoryNotes, Notes
from quantwatch.clock import Clock
from quantwatch.config.load import references_folder
from quantwatch.config.schema import Settings
from quantwatch.expose.meters import Meters
from quantwatch.flow.board import SelfBoard
from quantwatch.flow.state import Routing
from quantwatch.flows.generation import Generation
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.library import Library
from quantwatch.flows.memory import Memory
from quantwatch.flows.notes import StoreNotes
from quantwatch.flows.people import People
from quantwatch.flows.resting import StoreRest
from quantwatch.flows.shelf import StoreShelf
from quantwatch.flows.watch import Watch
from quantwatch.flows.yardstick import Yardstick
from quantwatch.probe.account import Accounts
from quantwatch.prompts.load import shipped_sets
from quantwatch.record.reference_folder import ReferenceFolder
from quantwatch.trace import NoTracer, Tracer
from quantwatch.wiring.tools import Tools


@dataclass(frozen=True, slots=True)
class Builder:
    """Makes a generation out of settings. folder: where the configuration file is. cache: the baseline's answers.

    notes: what the gateway's driver remembers.
    """

    memory: Memory
    yardstick: Yardstick
    clock: Clock
    random: Random
    folder: Path
    cache: Path
    transport: httpx.AsyncBaseTransport | None = None
    meters: Meters | None = None
    accounts: Accounts = field(default_factory=Accounts)
    notes: Notes = field(default_factory=MemoryNotes)
    tracer: Tracer = field(default_factory=NoTracer)

    async def generation(self, settings: Settings) -> Generation:
        """Everything that a configuration needs. Raises InputError; nothing stays open then."""
        prompts = await asyncio.to_thread(wiring.prompt_sets, settings, folder=self.folder, shipped=shipped_sets())
        return await wiring.generation(
            settings,
            prompts,
            tools=self._tools(),
            yardstick=self.yardstick,
            cache=self.cache,
            isolated=self.isolated,
            library=self._library(settings),
            folder=self.folder,
        )

    def _library(self, settings: Settings) -> Library:
        folder = references_folder(settings, folder=self.folder)
        return Library(ReferenceFolder(folder), settings.references.mode, self.memory)

    def _tools(self) -> Tools:
        """The accounts are the same for every configuration, so that a reload fills no budget up again."""
        tools = Tools(
            self.clock,
            self.random,
            self.transport,
            self._heard,
            accounts=self.accounts,
            notes=self.notes,
            tracer=self.tracer,
        )
        if self.meters is None:
            return tools
        return replace(tools, spent=self.meters.probe_sent, restarted=self.meters.probe_restarted)

    def _heard(self, role: str, name: str, seconds: float, failure: str | None) -> None:
        if self.meters is not None:
            self.meters.upstream_called(role, name, seconds=seconds, failure=failure)

    def isolated(self, target: str) -> bool:
        """Whether a target is out of traffic by our own record, as /verdict answers it."""
        state = self.memory.targets.get(target)
        return state is not None and state.owner is not None and state.routing in (Routing.OUT, Routing.LEAVING)


@dataclass(frozen=True, slots=True)
class Base:
    """What exists before torch is there. own: what the daemon knows of itself. cache: the user's where None."""

    keeper: Keeper
    memory: Memory
    meters: Meters
    clock: Clock
    random: Random
    own: Callable[[], SelfBoard]
    folder: Path
    cache: Path | None = None
    transport: httpx.AsyncBaseTransport | None = None
    tracer: Tracer = field(default_factory=NoTracer)


@dataclass(frozen=True, slots=True)
class Built:
    """The running parts of a daemon."""

    builder: Builder
    watch: Watch
    people: People


async def build(settings: Settings, base: Base) -> Built:
    """Build everything for a first configuration. Raises InputError."""
    yardstick = Yardstick(StoreShelf(base.keeper), base.clock)
    cache = base.cache or wiring.cache_folder()
    builder = Builder(
        base.memory,
        yardstick,
        base.clock,
        base.random,
        base.folder,
        cache,
        base.transport,
        base.meters,
        notes=StoreNotes(base.keeper),
        tracer=base.tracer,
    )
    generation = await builder.generation(settings)
    watch = Watch(generation, base.memory, base.keeper, base.meters, base.clock, base.random, own=base.own)
    base.keeper.failed = StoreRest(base.memory, base.meters, base.clock).note
    return Built(builder, watch, People(base.memory, base.keeper, yardstick, base.clock, base.random))
