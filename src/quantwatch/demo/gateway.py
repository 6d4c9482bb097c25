"""A small gateway that really forwards: requests go to the quantized node, or to the baseline while it is isolated.

It takes the call of docs/daemon.md (`node_endpoint`, `action`, `fallback_target`), answers for the state of a node, and
drops no repeat, so that what quantwatch sends can be counted.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

ANSWERED_BY = "x-answered-by"
"""Header of every forwarded reply: the name of the node that gave it."""

ATTEMPTS = 3
"""How often a request is sent when the connection breaks before anything came back; gateways call it failover."""

PAUSE_SECONDS = 0.2

FORWARDED = ("content-type", "authorization", "accept")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the isolation API, as it arrived. seconds: monotonic time."""

    seconds: float
    action: str
    node: str
    fallback: str | None
    decision: str | None
    reason: str | None

    def as_json(self) -> dict[str, Any]:
        """All but the time."""
        return {
            "action": self.action,
            "node_endpoint": self.node,
            "fallback_target": self.fallback,
            "decision_id": self.decision,
            "reason": self.reason,
        }


@dataclass(slots=True)
class Gateway:
    """nodes: name to URL of everything that can answer. serving: who answers while nothing is isolated.

    away: who stands in for each isolated node. retried: requests that were sent again because a connection broke.
    transport: the network, None for the real one.
    """

    nodes: Mapping[str, str]
    serving: str
    transport: httpx.AsyncBaseTransport | None = None
    away: dict[str, str] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    retried: int = 0
    _client: httpx.AsyncClient | None = None

    def app(self) -> Starlette:
        """POST /isolate, POST /release, GET /state, and everything under /v1/ forwarded."""
        return Starlette(
            routes=[
                Route("/isolate", self._act, methods=["POST"]),
                Route("/release", self._act, methods=["POST"]),
                Route("/state", self._state),
                Route("/v1/{path:path}", self._forward, methods=["GET", "POST"]),
            ]
        )

    def told(self, action: str) -> float | None:
        """When it was first told so, in monotonic seconds; None where it never was."""
        return next((one.seconds for one in self.calls if one.action == action), None)

    @property
    def answering(self) -> str:
        """Who gets the requests now."""
        return self.away.get(self.serving, self.serving)

    async def close(self) -> None:
        """Leave the network."""
        if self._client is not None:
            await self._client.aclose()

    async def _act(self, request: Request) -> Response:
        body = await request.json()
        node, action, fallback = body["node_endpoint"], body["action"], body.get("fallback_target")
        known = node in self.nodes and (action == "release" or fallback in self.nodes)
        if known and action == "isolate":
            self.away[node] = fallback
        elif known:
            self.away.pop(node, None)
        # Stamped after the change: whatever is sent later goes the new way.
        call = Call(time.monotonic(), action, node, fallback, body.get("decision_id"), body.get("reason"))
        self.calls.append(call)
        if not known:
            return JSONResponse({"error": f"known are {', '.join(self.nodes)}"}, 404)
        return JSONResponse({"node_endpoint": node, "isolated": node in self.away})

    async def _state(self, request: Request) -> Response:
        node = request.query_params.get("node_endpoint", "")
        if node not in self.nodes:
            return JSONResponse({"error": f"known are {', '.join(self.nodes)}"}, 404)
        return JSONResponse({"isolated": node in self.away})

    async def _forward(self, request: Request) -> Response:
        body = await request.body()
        headers = {name: value for name, value in request.headers.items() if name in FORWARDED}
        for attempt in range(1, ATTEMPTS + 1):
            name = self.answering
            url = f"{self.nodes[name]}/v1/{request.path_params['path']}"
            try:
                reply = await self._open().request(request.method, url, content=body, headers=headers)
            except httpx.TransportError as exc:
                if attempt == ATTEMPTS or isinstance(exc, httpx.ReadTimeout):
                    return JSONResponse({"error": f"{name} did not answer: {exc!r}"}, 502, headers={ANSWERED_BY: name})
                self.retried += 1
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                kind = reply.headers.get("content-type")
                return Response(reply.content, reply.status_code, {ANSWERED_BY: name}, kind)
        raise AssertionError("the last attempt answers")

    def _open(self) -> httpx.AsyncClient:
        """A client without idle connections: one would break when the node behind an address changes."""
        if self._client is None:
            fresh = httpx.Limits(max_keepalive_connections=0)
            self._client = httpx.AsyncClient(timeout=120.0, limits=fresh, trust_env=False, transport=self.transport)
        return self._client
