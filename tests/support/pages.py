"""The live page for tests: on a board, over a real store, asked without a socket."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette

from quantwatch.daemon.desk import Desk
from quantwatch.expose.admin import admin_app
from quantwatch.expose.calls import Reloaded
from quantwatch.flow.board import Board
from quantwatch.flow.prompt import Prompt
from quantwatch.pages.app import LivePage
from quantwatch.pages.reading import Reading
from quantwatch.pages.site import Shown, Site
from support.asking import ask

NOW = datetime(2026, 1, 3, tzinfo=UTC)
VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"})


async def _no_reload() -> Reloaded:
    return Reloaded(ok=False, message="nothing to load here")


def site(
    board: Board | Callable[[], Board],
    store: Path,
    *,
    prompts: Shown = "ids",
    golden: Sequence[Prompt] | None = None,
    now: datetime = NOW,
) -> Site:
    """A site that shows a board, with the record in a file."""
    shown = (lambda: board) if isinstance(board, Board) else board
    return Site(shown, Reading(store), lambda: now, prompts=lambda: prompts, golden=lambda _: golden)


def app(made: Site, pages: LivePage | None = None) -> Starlette:
    """The admin listener with the live page in it, or with another."""
    return admin_app(made.board, Desk(_no_reload), pages=pages or LivePage(made))


def plain_app(made: Site) -> Starlette:
    """The admin listener without a live page."""
    return admin_app(made.board, Desk(_no_reload))


async def see(made: Site, path: str, **options: Any) -> httpx.Response:
    """One request, after which nothing stays open."""
    try:
        return await ask(app(made), path, **options)
    finally:
        await made.reading.close()


@dataclass
class Tag:
    """An element as it was opened."""

    name: str
    attributes: dict[str, str | None]


@dataclass
class Read(HTMLParser):
    """A page as a browser's parser takes it: tags in order, text without them, and what was closed wrongly."""

    tags: list[Tag] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    @classmethod
    def of(cls, text: str) -> "Read":
        """The page, read to its end."""
        made = cls()
        made.feed(text)
        made.close()
        made.wrong += made.open
        return made

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember an element."""
        self.tags.append(Tag(tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """See that what is closed was open."""
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.wrong.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        """Remember text."""
        self.words.append(data)

    @property
    def text(self) -> str:
        """All text with single spaces."""
        return " ".join(" ".join(self.words).split())

    def named(self, name: str) -> list[Tag]:
        """All elements of a name."""
        return [one for one in self.tags if one.name == name]

    def links(self) -> list[str]:
        """Where the page leads to, in its order."""
        return [one.attributes["href"] or "" for one in self.named("a")]
