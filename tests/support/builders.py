"""Small builders that tests share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from quantwatch.flow.prompt import GoldenSequence
from quantwatch.net import Endpoint, Limits, Link
from quantwatch.probe.budget import Budget, Gate
from quantwatch.probe.vllm import VllmProber

SEQUENCE = GoldenSequence("greeting", (256, 72, 101, 108, 108, 111, 44, 32, 119, 111), 4)
QUICK = Limits(connect_seconds=1, total_seconds=2, response_bytes=100_000, attempts=2, retry_wait_seconds=0.0)


@dataclass(slots=True)
class FakeClock:
    """Time that moves only when somebody waits; remembers every wait."""

    time: float = 0.0
    waits: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        """A wall clock that started at the beginning of 2026."""
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.time)

    def monotonic(self) -> float:
        """Seconds waited so far."""
        return self.time

    async def sleep(self, seconds: float) -> None:
        """Move time on."""
        self.waits.append(seconds)
        self.time += seconds


def link(transport: httpx.AsyncBaseTransport, *, host: str = "node", limits: Limits = QUICK, **endpoint: Any) -> Link:
    """A link to a host over an injected transport."""
    return Link(Endpoint(host, f"http://{host}", **endpoint), limits, transport=transport)


def prober(
    transport: httpx.AsyncBaseTransport,
    *,
    host: str = "node",
    budget: Budget | None = None,
    clock: FakeClock | None = None,
    model: str | None = "tiny",
    limits: Limits = QUICK,
    ranks: int = 1,
    gate: Gate | None = None,
) -> VllmProber:
    """A prober over an injected transport."""
    connected = link(transport, host=host, limits=limits)
    chosen = budget or Budget()
    given = gate or Gate(connected, chosen, clock or FakeClock())
    return VllmProber(connected, budget=chosen, gate=given, model=model, ranks=ranks)


def answering(status: int = 200, body: bytes = b"", **headers: str) -> httpx.MockTransport:
    """A server that gives every request the same answer."""
    return httpx.MockTransport(lambda request: httpx.Response(status, content=body, headers=headers, request=request))


def doing(action: Callable[[httpx.Request], httpx.Response]) -> httpx.MockTransport:
    """A server that does what it is told."""
    return httpx.MockTransport(action)
