"""A collector of OpenTelemetry on a real socket: takes OTLP over HTTP and keeps the spans that arrive."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route


@dataclass(frozen=True, slots=True)
class Seen:
    """A span as it arrived. trace, id, parent: in hex; parent is empty for the first of a trace."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    failed: bool
    attributes: dict[str, Any]


@dataclass(slots=True)
class Collector:
    """spans: everything that has arrived. heads: headers of each request. status: what it answers with."""

    spans: list[Seen] = field(default_factory=list)
    heads: list[dict[str, str]] = field(default_factory=list)
    resource: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    hang: threading.Event = field(default_factory=threading.Event)
    slow: bool = False
    url: str = ""

    def app(self) -> Starlette:
        """The receiver."""
        return Starlette(routes=[Route("/v1/traces", self._take, methods=["POST"])])

    async def _take(self, request: Request) -> Response:
        self.heads.append(dict(request.headers))
        body = await request.body()
        if self.slow:
            await asyncio.to_thread(self.hang.wait)
        if self.status == 302:
            return RedirectResponse("/elsewhere", 302)
        if self.status == 200:
            self._keep(ExportTraceServiceRequest.FromString(body))
        content = ExportTraceServiceResponse().SerializeToString()
        return Response(content, self.status, media_type="application/x-protobuf")

    def _keep(self, told: ExportTraceServiceRequest) -> None:
        for block in told.resource_spans:
            self.resource = {one.key: _value(one.value) for one in block.resource.attributes}
            for scope in block.scope_spans:
                for one in scope.spans:
                    self.spans.append(
                        Seen(
                            one.name,
                            one.trace_id.hex(),
                            one.span_id.hex(),
                            one.parent_span_id.hex(),
                            one.kind,
                            one.status.code == 2,
                            {each.key: _value(each.value) for each in one.attributes},
                        )
                    )

    def named(self, name: str) -> list[Seen]:
        """The spans of a name."""
        return [one for one in self.spans if one.name == name]


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens until the end."""
    one = Collector()
    config = uvicorn.Config(one.app(), host="127.0.0.1", port=0, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    one.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield one
    finally:
        one.hang.set()
        server.should_exit = True
        thread.join(10)
