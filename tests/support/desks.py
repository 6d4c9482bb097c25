"""A daemon that answers people and does nothing, and a browser to ask it with."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from quantwatch.expose.access import Access, PageRules
from quantwatch.expose.admin import admin_app
from quantwatch.expose.calls import Calls, Reloaded
from quantwatch.expose.sessions import Key, key
from quantwatch.flow.access import ADMIN_TOKEN, Caller, Role
from quantwatch.flow.board import Board
from quantwatch.flow.foresight import Foreseen
from quantwatch.flow.state import Pause
from quantwatch.flow.word import Heard, Word
from quantwatch.pages.acting import Acting
from quantwatch.pages.app import LivePage
from quantwatch.pages.asset import Assets
from quantwatch.pages.reading import Reading
from quantwatch.pages.site import Site
from quantwatch.pages.templating import environment
from support.boards import AT, rich_board
from support.builders import FakeClock

LOADED = Reloaded(ok=True, message="the configuration was loaded", changes=("draw: 24 -> 32",))


@dataclass
class Desk:
    """Stands in for the daemon: remembers what it was asked to do."""

    reloaded: Reloaded = LOADED
    trouble: Exception | None = None
    foreseen: Foreseen = field(default_factory=Foreseen)
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    async def reload(self) -> Reloaded:
        self._noted("reload")
        return self.reloaded

    async def pause(self, scope: str, reason: str, *, author: str, seconds: float | None) -> Pause:
        self._noted("pause", scope, reason, author, seconds)
        until = None if seconds is None else AT + timedelta(seconds=seconds)
        return Pause("p-1", scope, reason, author, AT, until)

    async def resume(self, pause_id: str, *, author: str, reason: str) -> bool:
        self._noted("resume", pause_id, author, reason)
        return pause_id == "p-1"

    async def isolate(self, word: Word) -> Heard:
        self._noted("isolate", word)
        return Heard("d-2", ("the cap is overridden",))

    async def hold(self, word: Word) -> Heard:
        self._noted("hold", word)
        return Heard()

    async def release(self, word: Word) -> Heard:
        self._noted("release", word)
        return Heard("d-1")

    async def confirm_healthy(self, word: Word) -> Heard:
        self._noted("confirm_healthy", word)
        return Heard()

    async def approve(self, proposal: str, *, author: str, reason: str) -> Heard:
        self._noted("approve", proposal, author, reason)
        return Heard(proposal)

    async def reject(self, proposal: str, *, author: str, reason: str) -> Heard:
        self._noted("reject", proposal, author, reason)
        return Heard(proposal)

    async def accept_baseline(self, *, author: str, reason: str) -> str:
        self._noted("accept", author, reason)
        return "b-1"

    async def run_now(self, target: str, task_set: str | None, *, author: str, reason: str) -> int:
        self._noted("run", target, task_set, author, reason)
        return 2 if task_set is None else 1

    async def foresee(self, call: str, about: str, *, force: bool = False) -> Foreseen:
        self._noted("foresee", call, about, force)
        return self.foreseen

    def _noted(self, *call: Any) -> None:
        self.asked.append(call)
        if self.trouble is not None:
            raise self.trouble


HERE = "http://127.0.0.1:9470"
TOKENS = {"vera": Role.VIEWER, "otto": Role.OPERATOR, "root": Role.ADMIN}
"""Callers with tokens of their own."""


def token(name: str) -> str:
    """What a caller bears."""
    return f"token-of-{name}-0123456789"


def keys(*names: str, shared: bool = True) -> list[Key]:
    """Keys of callers by name, all of them if none is given. shared: and the admin token."""
    named = [key(Caller(one, TOKENS[one], named=True), token(one)) for one in names or TOKENS]
    return [*named, key(Caller(ADMIN_TOKEN, Role.ADMIN), token(ADMIN_TOKEN))] if shared else named


def bearer(name: str) -> dict[str, str]:
    """The header of a script."""
    return {"Authorization": f"Bearer {token(name)}"}


_assets = cache(Assets)
_templates = cache(environment)
"""Read and compiled once for all tests."""


@dataclass(slots=True)
class Place:
    """An admin listener with its pages, without a socket. refused, counted: what would be on /metrics. acting: of each
    browser.
    """

    folder: Path
    board: Board = field(default_factory=rich_board)
    desk: Desk = field(default_factory=Desk)
    clock: FakeClock = field(default_factory=FakeClock)
    rules: PageRules = field(default_factory=PageRules)
    keys: Sequence[Key] = field(default_factory=keys)
    refused: list[str] = field(default_factory=list)
    counted: list[tuple[str, str]] = field(default_factory=list)
    acting: list[Acting] = field(default_factory=list)
    access: Access = field(init=False)

    def __post_init__(self) -> None:
        self.access = Access(self.keys, rules=self.rules, clock=self.clock, refused=self.refused.append)

    def _count(self, call: str, role: str) -> None:
        self.counted.append((call, role))

    @asynccontextmanager
    async def browser(self, *, base: str = HERE, client: str = "127.0.0.1") -> AsyncIterator["Browser"]:
        """A browser, or a script, with its own cookies."""
        acting = Acting(Calls(lambda: self.board, self.desk, self._count), self.access)
        self.acting.append(acting)
        reading = Reading(self.folder / "none.db")
        shared: dict[str, Any] = {"assets": _assets(), "templates": _templates()}
        pages = LivePage(Site(lambda: self.board, reading, self.clock.now, who=acting.who, **shared), acting)
        app = admin_app(lambda: self.board, self.desk, access=self.access, pages=pages, counted=self._count)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=(client, 4711))
        try:
            async with httpx.AsyncClient(transport=transport, base_url=base) as asked:
                yield Browser(asked, base)
        finally:
            await reading.close()


@dataclass(slots=True)
class Browser:
    """Sends forms as a browser does: with the Origin of its page, its cookies, and what it accepts."""

    asked: httpx.AsyncClient
    origin: str

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """Open a page."""
        return await self.asked.get(path, headers={"Accept": "text/html", **headers})

    async def post(self, path: str, fields: dict[str, str], **headers: str) -> httpx.Response:
        """Send a form."""
        sent = {"Accept": "text/html", "Origin": self.origin, **headers}
        return await self.asked.post(path, data=fields, headers={name: one for name, one in sent.items() if one})

    async def log_in(self, name: str) -> httpx.Response:
        """Show a token at the door."""
        return await self.post("/login", {"token": token(name)})
