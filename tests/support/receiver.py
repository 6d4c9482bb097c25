"""Whoever is told: a receiver of webhooks that remembers everything, and answers as it is told, also wrongly."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

HANGS = 0
"""In place of a status: no answer before the caller has left."""


@dataclass(frozen=True, slots=True)
class Post:
    """One call as it arrived."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        """Its JSON."""
        return json.loads(self.raw)


@dataclass(slots=True)
class Receiver:
    """Takes every POST. statuses: of the next answers, one each; always: of those after them. said: their text."""

    statuses: list[int] = field(default_factory=list)
    always: int = 200
    retry_after: str | None = None
    said: str = "ok"
    posts: list[Post] = field(default_factory=list)
    taken: list[Post] = field(default_factory=list)

    def app(self) -> Starlette:
        """Under every path."""
        return Starlette(routes=[Route("/{path:path}", self._post, methods=["POST"])])

    def transport(self) -> httpx.AsyncBaseTransport:
        """The receiver without a socket."""
        return httpx.ASGITransport(app=self.app())

    @property
    def bodies(self) -> list[Any]:
        """The JSON of every call that was taken."""
        return [one.body for one in self.taken]

    async def _post(self, request: Request) -> Response:
        post = Post(request.url.path, dict(request.headers), await request.body())
        self.posts.append(post)
        status = self.statuses.pop(0) if self.statuses else self.always
        if status == HANGS:
            while (await request.receive())["type"] != "http.disconnect":
                pass
        elif status < 300:
            self.taken.append(post)
        headers = {} if self.retry_after is None else {"Retry-After": self.retry_after}
        if 300 <= status < 400:
            headers["Location"] = f"http://elsewhere{request.url.path}"
        return PlainTextResponse(self.said, status or 500, headers=headers)


@contextmanager
def received(receiver: Receiver) -> Iterator[str]:
    """Serve a receiver on a free port; gives its URL."""
    config = uvicorn.Config(
        receiver.app(), host="127.0.0.1", port=0, log_level="critical", lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
