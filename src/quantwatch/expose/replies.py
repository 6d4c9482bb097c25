"""Answers that both listeners give: never cached, never guessed at, errors as JSON."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from quantwatch.expose.page import POLICY

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}

Handler = Callable[[Request], Awaitable[Response]]


def json_reply(content: dict[str, Any], status: int = 200, *, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer. ASCII only: names from outside can hold what UTF-8 cannot."""
    body = json.dumps(content, allow_nan=False).encode("ascii") + b"\n"
    return Response(body, status, {**HEADERS, **(headers or {})}, media_type="application/json")


def html_reply(content: str) -> Response:
    """A page under a policy that loads and runs nothing."""
    body = content.encode("utf-8", "replace")
    return Response(body, 200, {**HEADERS, "Content-Security-Policy": POLICY}, media_type="text/html; charset=utf-8")


def error_reply(message: str, status: int, **fields: str) -> Response:
    """What was wrong with a request, in words. fields: what else is told, such as the field of the body."""
    return json_reply({"error": message, **fields}, status)


def see_other(path: str) -> Response:
    """Send a browser to another page of ours, by GET."""
    return Response(b"", 303, {**HEADERS, "Location": path})


async def refused(_: Request, exc: Exception) -> Response:
    """The answer to a request that no route takes."""
    status = exc.status_code if isinstance(exc, HTTPException) else 500
    words = {404: "there is nothing here", 405: "this method is not allowed here"}
    allowed = exc.headers if isinstance(exc, HTTPException) else None
    reply = error_reply(words.get(status, "the request cannot be answered"), status)
    reply.headers.update(allowed or {})
    return reply
