"""Spans of a run for whoever collects traces; where nobody does, nothing is made and nothing is kept.

A run begins a span, and whatever happens inside it asks for the current one, as far down as the network. The current
span travels with the task (contextvars), so two runs at once never mix, and threads that work for a run are part of it.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Protocol

Value = str | bool | int | float
Attributes = Mapping[str, Value | None]
"""Names in dots; what is None is left out."""


class Span(Protocol):
    """Something that begins and ends. No method raises for trouble of the collector, nor waits for it."""

    def note(self, attributes: Attributes) -> None:
        """Add what is known of it meanwhile."""
        ...

    def fail(self, reason: str) -> None:
        """Mark it as failed."""
        ...

    def child(self, name: str, attributes: Attributes, *, outward: bool) -> "Span":
        """Begin a part of it. outward: it waits for another server."""
        ...

    def headers(self) -> Mapping[str, str]:
        """What a request carries so that the server's own spans join it (W3C Trace Context)."""
        ...

    def end(self) -> None:
        """Let it be over."""
        ...


class Tracer(Protocol):
    """Begins traces."""

    def begin(self, name: str, attributes: Attributes) -> Span:
        """Begin a trace with its first span."""
        ...

    async def close(self) -> None:
        """Send what waits, within a few seconds, and end."""
        ...


class _Nothing:
    """A span that is none."""

    def note(self, attributes: Attributes) -> None:
        """Nobody wants to know."""

    def fail(self, reason: str) -> None:
        """Nobody wants to know."""

    def child(self, name: str, attributes: Attributes, *, outward: bool) -> Span:  # noqa: ARG002, as the protocol has it
        """Nothing has no parts."""
        return self

    def headers(self) -> Mapping[str, str]:
        """Requests carry nothing."""
        return {}

    def end(self) -> None:
        """It never began."""


NOTHING: Span = _Nothing()


class NoTracer:
    """Begins nothing."""

    def begin(self, name: str, attributes: Attributes) -> Span:  # noqa: ARG002, as the protocol has it
        """No span."""
        return NOTHING

    async def close(self) -> None:
        """There is nothing to send."""


_CURRENT: ContextVar[Span] = ContextVar("quantwatch_span", default=NOTHING)


def current() -> Span:
    """The span that is under way in this task; one that is none outside of a trace."""
    return _CURRENT.get()


class Step:
    """A span from `with` to its end, the current one meanwhile. An exception marks it by its kind, and goes on."""

    def __init__(self, start: Callable[[], Span]) -> None:
        self._start = start
        self._span = NOTHING
        self._token: Token[Span] | None = None

    def __enter__(self) -> Span:
        """Begin."""
        self._span = self._start()
        self._token = _CURRENT.set(self._span)
        return self._span

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        """End."""
        if self._token is not None:
            _CURRENT.reset(self._token)
        if kind is not None:
            self._span.fail(kind.__name__)
        self._span.end()


def step(name: str, attributes: Attributes | None = None, *, outward: bool = False) -> Step:
    """A part of what is under way; nothing outside of a trace. outward: it waits for another server."""
    above = _CURRENT.get()
    return Step(lambda: above.child(name, attributes or {}, outward=outward))


def root(tracer: Tracer, name: str, attributes: Attributes) -> Step:
    """A trace of its own."""
    return Step(lambda: tracer.begin(name, attributes))
