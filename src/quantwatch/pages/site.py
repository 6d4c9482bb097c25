"""What all pages share: templates, words, the frame, and the headers that keep a browser from doing anything else."""

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from quantwatch import __version__
from quantwatch.expose.as_json import not_ready
from quantwatch.flow.board import Board
from quantwatch.flow.prompt import Prompt
from quantwatch.pages import shown
from quantwatch.pages.asset import Assets
from quantwatch.pages.manner import LANGUAGES, THEMES, Manner
from quantwatch.pages.reading import Reading
from quantwatch.pages.templating import environment
from quantwatch.pages.words import said, term

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: nothing from elsewhere, no script or style inside a page, no frame around it."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Referrer-Policy": "same-origin",
    "Vary": "Accept-Language, Cookie",
    "X-Content-Type-Options": "nosniff",
}

Shown = str
"""How much of prompts a page shows: their `ids`, their words as well (`full`), or nothing (`off`)."""

_AGO = re.compile(rb'<span class="ago"[^>]*>[^<]*</span>')


@dataclass(frozen=True, slots=True)
class Site:
    """What a page is made from.

    board: the picture at this moment. reading: the record. now: the wall clock. prompts: how much of prompts is shown.
    golden: the prompts of a task set, None while they are not known. who: the person who asks, None without a login;
    templates find it as `who`. links: what the frame links to, as (key of its words, path).
    """

    board: Callable[[], Board]
    reading: Reading
    now: Callable[[], datetime]
    prompts: Callable[[], Shown] = lambda: "ids"
    golden: Callable[[str], Sequence[Prompt] | None] = lambda _: None
    who: Callable[[Request], Any] = lambda _: None
    links: list[tuple[str, str]] = field(default_factory=lambda: [("frame.fleet", "/"), ("frame.sets", "/sets")])
    assets: Assets = field(default_factory=Assets)
    templates: Environment = field(default_factory=environment)
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1), repr=False)

    async def page(self, request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
        """A whole page. values: what the template names. Written beside the loop, since it can be long."""
        manner = Manner.of(request)
        body = await self._beside(template, self._frame(request, manner, values.get("board")) | values)
        reply = Response(body, status, HEADERS, media_type="text/html; charset=utf-8")
        manner.keep(reply, secure=request.url.scheme == "https")
        return reply

    async def part(self, request: Request, template: str, **values: Any) -> Response:
        """A part of a page that is asked for again and again.

        Answers 204 when nothing but the clock has moved since the version that the request's X-Seen names, so that
        focus, selection and scroll stay where they are.
        """
        frame = self._frame(request, Manner.of(request), values.get("board")) | values
        body = await self._beside(template, frame)
        version = hashlib.sha256(_AGO.sub(b"", body)).hexdigest()[:16]
        headers = HEADERS | {"X-Version": version}
        if version == request.headers.get("x-seen"):
            return Response(None, 204, headers)
        return Response(body, 200, headers, media_type="text/html; charset=utf-8")

    async def trouble(self, request: Request, status: int, detail: str = "") -> Response:
        """The page that says what is wrong. detail: a sentence of ours, which holds no secret."""
        known = status if status in (400, 404, 503) else 500
        return await self.page(request, "trouble.html", status=status, title_key=known, detail=detail)

    async def _beside(self, template: str, values: dict[str, Any]) -> bytes:
        """The text, written in a thread, one page after the other: many threads at once would starve the loop."""
        async with self._turn:
            return await run_in_threadpool(self._written, template, values)

    def _written(self, template: str, values: dict[str, Any]) -> bytes:
        return self.templates.get_template(template).render(values).encode("utf-8", "backslashreplace")

    def _frame(self, request: Request, manner: Manner, seen: Board | None) -> dict[str, Any]:
        """What every template finds: words, numbers, addresses, who asks, and how the daemon itself is.

        seen: the board that the page was made from already; of many targets it costs time to paint another.
        """
        board, now, language = seen or self.board(), self.now(), manner.language
        asked, path = _asked(request), _as_asked(request)

        def ago(at: datetime) -> str:
            elapsed = (now - at).total_seconds()
            key = "frame.ago" if elapsed >= 0 else "frame.ahead"
            return said(key, language, span=shown.span(elapsed, language))

        return {
            "t": partial(_translated, language),
            "term": lambda begin, code: term(begin, code, language),
            "ago": ago,
            "lang": language,
            "languages": LANGUAGES,
            "theme": manner.theme,
            "themes": THEMES,
            "here": path,
            "with_query": lambda **more: f"{path}?{urlencode({**asked, **more})}",
            "asset": self.assets.address,
            "who": self.who(request),
            "links": self.links,
            "version": __version__,
            "board": board,
            "own": board.own,
            "not_ready": not_ready(board),
            "prompts_shown": self.prompts(),
            "script_words": _script_words(manner),
        }


def _as_asked(request: Request) -> str:
    """The path as the browser wrote it: a name that holds `/../` stays one segment, which a browser leaves alone.

    It begins with one slash: a link to `//host/` leads to another host.
    """
    raw: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    return "/" + raw.decode("ascii", "replace").lstrip("/\\")


def _asked(request: Request) -> dict[str, str]:
    """The query of a page as it is carried on: without what is remembered or concerns one answer alone."""
    once = ("lang", "theme", "part")
    return {name: value for name, value in request.query_params.items() if name not in once}


def _translated(language: Any, key: str, **values: object) -> str:
    return said(key, language, **values)


def _script_words(manner: Manner) -> str:
    """The words that scripts need, as JSON: they hold none of their own."""
    keys = ("frame.ago", "frame.ahead", "frame.cut")
    words = {key: said(key, manner.language, span="{span}") for key in keys}
    return json.dumps(words | {"language": manner.language})
