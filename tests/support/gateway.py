"""A gateway for tests, an order for it, and a ledger in memory.

The gateway routes or isolates nodes, logs every call, and never drops a repeat. It does what it is told, also wrongly:
Fault names the ways. It is served on a real socket (GatewayServer), or asked without one (Gateway.transport).
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import httpx
import uvicorn
from standardwebhooks import Webhook, WebhookVerificationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quantwatch.errors import StoreError
from quantwatch.flow.decision import Action, Order, Outcome
from quantwatch.flow.verdict import Finding, Interval, Limit, Metric, Quality


class Fault(StrEnum):
    """How a gateway can misbehave; the last word says what became of the order."""

    YES_AND_NOTHING = "200, does nothing"
    QUEUED = "202, does it `delay` seconds later"
    ERROR_UNDONE = "500, not done"
    ERROR_DONE = "500, done all the same"
    BUSY = "429, not done"
    REFUSED = "403, not done"
    HANGS_UNDONE = "no answer, not done"
    HANGS_DONE = "no answer, done all the same"
    CUT_DONE = "the connection breaks within the answer, done all the same"
    REDIRECTS = "307, not done"


DOES_IT = {Fault.ERROR_DONE, Fault.HANGS_DONE, Fault.CUT_DONE}


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it arrived."""

    id: str
    body: dict[str, Any]
    raw: bytes
    headers: dict[str, str]
    path: str


@dataclass(slots=True)
class Gateway:
    """Routing state per node, and what is wrong with the gateway.

    faults: for the next calls, one each, None for a good answer; always: for every call after those. state_reply:
    answers GET /state in its place. retry_after: header of BUSY. secret: calls without a good signature get 401.
    api_key: asked of every request. delay, seconds: when a QUEUED order is done, on which clock. changes: real changes
    of state only, in order.
    """

    faults: list[Fault | None] = field(default_factory=list)
    always: Fault | None = None
    state_reply: Callable[[], Response] | None = None
    retry_after: str | None = "7"
    secret: str | bytes | None = None
    api_key: str | None = None
    delay: float = 0.0
    seconds: Callable[[], float] = time.monotonic
    down: bool = False
    isolated: dict[str, bool] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    changes: list[tuple[str, bool]] = field(default_factory=list)
    looks: int = 0
    _queue: list[tuple[float, str, bool]] = field(default_factory=list)

    @property
    def ids(self) -> set[str]:
        """Every webhook-id so far."""
        return {call.id for call in self.calls}

    def stands(self, node: str) -> bool:
        """Whether a node is isolated now."""
        due = [one for one in self._queue if one[0] <= self.seconds()]
        self._queue = [one for one in self._queue if one not in due]
        for _, name, isolated in due:
            self._set(name, isolated=isolated)
        return self.isolated.get(node, False)

    def app(self) -> Starlette:
        """POST /act, POST /return and GET /state?node_endpoint=NODE."""
        return Starlette(
            routes=[
                Route("/act", self._act, methods=["POST"]),
                Route("/return", self._act, methods=["POST"]),
                Route("/state", self._state),
            ]
        )

    def transport(self) -> "GatewayTransport":
        """The gateway without a socket."""
        return GatewayTransport(self)

    async def _act(self, request: Request) -> Response:
        raw = await request.body()
        headers = dict(request.headers)
        refusal = self._unknown_caller(headers, raw)
        if refusal is not None:
            return refusal
        body = json.loads(raw)
        self.calls.append(Call(headers.get("webhook-id", ""), body, raw, headers, request.url.path))
        fault = self.faults.pop(0) if self.faults else self.always
        node, isolated = body["node_endpoint"], body["action"] == "isolate"
        if fault is None or fault in DOES_IT:
            self._set(node, isolated=isolated)
        elif fault is Fault.QUEUED:
            self._queue.append((self.seconds() + self.delay, node, isolated))
        if fault in (Fault.HANGS_DONE, Fault.HANGS_UNDONE):
            await _until_the_caller_leaves(request)
        return self._answer(fault)

    async def _state(self, request: Request) -> Response:
        self.looks += 1
        if self.state_reply is not None:
            return self.state_reply()
        if self.api_key is not None and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return Response(status_code=401)
        return JSONResponse({"isolated": self.stands(request.query_params["node_endpoint"])})

    def _unknown_caller(self, headers: dict[str, str], raw: bytes) -> Response | None:
        if self.api_key is not None and headers.get("authorization") != f"Bearer {self.api_key}":
            return Response(f"bad key {headers.get('authorization')}", 401)
        if self.secret is not None:
            try:
                Webhook(self.secret).verify(raw, headers)
            except WebhookVerificationError as exc:
                return Response(str(exc), 401)
        return None

    def _answer(self, fault: Fault | None) -> Response:
        match fault:
            case Fault.QUEUED:
                return JSONResponse({"queued": True}, 202)
            case Fault.BUSY:
                return Response(status_code=429, headers={"Retry-After": self.retry_after} if self.retry_after else {})
            case Fault.REDIRECTS:
                return Response(status_code=307, headers={"Location": f"/elsewhere?key={self.api_key}"})
            case Fault.CUT_DONE:
                return Response("{", headers={"Content-Length": "100"})
        status = {Fault.ERROR_UNDONE: 500, Fault.ERROR_DONE: 500, Fault.REFUSED: 403}
        return JSONResponse({"done": True}, 200 if fault is None else status.get(fault, 200))

    def _set(self, node: str, *, isolated: bool) -> None:
        if self.isolated.get(node, False) is not isolated:
            self.isolated[node] = isolated
            self.changes.append((node, isolated))


async def _until_the_caller_leaves(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class GatewayTransport(httpx.AsyncBaseTransport):
    """A gateway without a socket; a broken connection and a silence come as the errors that sockets give."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._app = httpx.ASGITransport(app=gateway.app())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass the request on."""
        if self._gateway.down:
            raise httpx.ConnectError("Connection refused", request=request)
        gateway = self._gateway
        ahead = gateway.faults[0] if gateway.faults else gateway.always
        fault = ahead if request.method == "POST" else None
        if fault in (Fault.HANGS_DONE, Fault.HANGS_UNDONE):
            gateway.faults[:1] = [Fault.ERROR_DONE if fault is Fault.HANGS_DONE else Fault.ERROR_UNDONE]
            await self._app.handle_async_request(request)
            raise httpx.ReadTimeout("", request=request)
        response = await self._app.handle_async_request(request)
        if fault is Fault.CUT_DONE:
            raise httpx.ReadError("Connection reset by peer", request=request)
        return response


@dataclass(slots=True)
class GatewayServer:
    """A gateway on a real loopback socket that can go down and come back under the same address."""

    gateway: Gateway
    port: int = 0
    _server: uvicorn.Server | None = None
    _thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Its root."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Serve, on the port of the last time."""
        config = uvicorn.Config(
            self.gateway.app(),
            host="127.0.0.1",
            port=self.port,
            log_level=100,  # a cut connection is an error to uvicorn, and here it is wanted
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Close the port; connections are refused from now on."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(10)
            self._server = None


@contextmanager
def served_gateway(gateway: Gateway) -> Iterator[GatewayServer]:
    """Serve a gateway on a free port."""
    server = GatewayServer(gateway)
    server.start()
    try:
        yield server
    finally:
        server.stop()


FINDING = Finding(
    Metric.KL_MEAN, Quality.DEGRADED, 0.21, Interval(0.18, 0.24), Limit(0.06, 0.13), "mean KL 0.21 is over 0.13"
)


def order(action: Action = Action.ISOLATE, **changes: Any) -> Order:
    """An order as a decision gives it."""
    given: dict[str, Any] = {
        "decision": "d-20260101-000000-1f3a9c",
        "action": action,
        "target": "int4-a",
        "pool": "chat",
        "node": "http://node-a:8000",
        "driver": "webhook",
        "reason": "mean KL 0.21 is over the critical limit 0.13",
        "verdict": "degraded",
        "fallback": "http://fp16:8000",
        "task_set": "greetings",
        "run": "r-20260101-000000-2b2b2b",
        "evidence": (FINDING,),
    }
    return Order(**(given | changes))


@dataclass(slots=True)
class MemoryLedger:
    """The store's part, in memory. begin_fails, settle_fails: how many of the next ones raise StoreError."""

    attempts: int = 0
    begin_fails: int = 0
    settle_fails: int = 0
    settled: list[tuple[str, Outcome]] = field(default_factory=list)

    async def begin_attempt(self, decision: str) -> int:
        """Count a call."""
        assert not self.settled, f"{decision} is settled"
        if self.begin_fails:
            self.begin_fails -= 1
            raise StoreError("the disk is full")
        self.attempts += 1
        return self.attempts

    async def settle(self, order: Order, outcome: Outcome) -> None:
        """Keep the outcome."""
        if self.settle_fails:
            self.settle_fails -= 1
            raise StoreError("the disk is full")
        self.settled.append((order.decision, outcome))
