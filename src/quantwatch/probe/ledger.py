"""What a handshake writes down as it goes, so that it can be read wherever it breaks off."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from quantwatch.errors import Misconfigured, OverCap, ProbeError, ReplyInvalid
from quantwatch.flow.handshake import Handshake, Point, Seen
from quantwatch.flow.identity import Identity


@dataclass(slots=True)
class Ledger:
    """What a handshake has found so far; can be read at any moment. tokens: prompt and answer, of all probes."""

    identity: Identity | None = None
    seen: list[Seen] = field(default_factory=list)
    tokens: int = 0
    complete: bool = False
    _told: ProbeError | None = field(default=None, init=False)

    def note(self, point: Point, detail: str, *, ok: bool | None = True, advice: str = "") -> None:
        """Write down what was seen."""
        self.seen.append(Seen(point, ok, detail, advice))

    @contextlib.contextmanager
    def at(self, point: Point) -> Iterator[None]:
        """Look at a point; an error that ends the handshake is written down at the innermost one."""
        try:
            yield
        except ProbeError as exc:
            if exc is not self._told:
                mismatch = isinstance(exc, ReplyInvalid | Misconfigured | OverCap)
                self.note(point, exc.reason, ok=False if mismatch else None, advice=exc.advice)
            self._told = exc
            raise

    def result(self, server: str, *more: Seen) -> Handshake:
        """All of it, one entry a point, with what was seen against the other end."""
        points: dict[Point, Seen] = {}
        for one in (*self.seen, *more):
            points[one.point] = points[one.point].joined(one) if one.point in points else one
        return Handshake(server, tuple(points.values()), self.complete, self.tokens)
