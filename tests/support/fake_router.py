"""A stand-in for both routers without a socket, for what no real one can be made to do: odd replies, silence."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from support.gateway import Call, Gateway

OTHER = "http://node-b:8000"


def entry(url: str, **fields: Any) -> dict[str, Any]:
    """A worker as both routers list it."""
    plain = {"url": url, "model_id": "unknown", "priority": 50, "cost": 1.0, "worker_type": "regular"}
    return {**plain, "is_healthy": True, "id": f"id of {url}", **fields}


@dataclass(slots=True)
class FakeRouter:
    """Keeps a node's state in a Gateway, beside one more worker. reply: answers GET /workers in its place.

    answer: answers every call that changes something in its place, when the change is done.
    """

    node: str
    gateway: Gateway = field(default_factory=Gateway)
    reply: Callable[[], httpx.Response] | None = None
    answer: Callable[[], httpx.Response] | None = None
    fields: dict[str, Any] = field(default_factory=dict)

    def transport(self) -> httpx.MockTransport:
        """The router without a socket."""
        return httpx.MockTransport(self._handle)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        if self.gateway.down:
            raise httpx.ConnectError("Connection refused", request=request)
        if request.method == "GET":
            return self.reply() if self.reply is not None else httpx.Response(200, json={"workers": self._workers()})
        adds = request.url.path == "/add_worker" or (request.method, request.url.path) == ("POST", "/workers")
        body = json.loads(request.content) if request.content else dict(request.url.params)
        self.gateway.calls.append(Call("", body, request.content, dict(request.headers), request.url.path))
        self.gateway.isolated[self.node] = not adds
        return (
            self.answer() if self.answer is not None else httpx.Response(202 if "workers" in str(request.url) else 200)
        )

    def _workers(self) -> list[dict[str, Any]]:
        others = [entry(OTHER, **self.fields)]
        return others if self.gateway.stands(self.node) else [entry(self.node, **self.fields), *others]
