"""Asking an application over HTTP without a socket."""

from typing import Any

import httpx
from starlette.applications import Starlette


async def ask(app: Starlette, path: str, *, method: str = "GET", **options: Any) -> httpx.Response:
    """One request; a fault of the application is answered as a server would."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9470") as client:
        return await client.request(method, path, **options)
