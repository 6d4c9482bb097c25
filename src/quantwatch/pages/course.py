"""Mean KL over time as a drawing: where everything stands, in the units of the drawing. Templates turn it into SVG."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from quantwatch.flow.verdict import BREACHES, GOOD, Quality
from quantwatch.pages.incident import Event
from quantwatch.pages.shown import number
from quantwatch.record.cases import Point

WIDTH, HEIGHT = 760.0, 240.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 14.0, 26.0, 26.0
LEAST = 1e-6
"""KL in nats that stands for everything smaller, so that a logarithmic axis has an end."""

ROOM = 1.6
"""Factor of room above the largest and under the least value."""

TIMES = 5
"""Labels of the time axis, at most."""

SHORT = timedelta(minutes=10)
"""Under this the labels of the time axis tell seconds."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A run. shape: `breach`, `good` or `other`, so that colour is not all that tells them apart. low, high: y."""

    x: float
    y: float
    low: float
    high: float
    shape: str
    run: str
    said: str
    quality: Quality
    subject: bool


@dataclass(frozen=True, slots=True)
class Line:
    """A limit, across the whole drawing. level: `warn` or `critical`."""

    y: float
    level: str
    label: str


@dataclass(frozen=True, slots=True)
class Mark:
    """An action, as a vertical line. number: under which the list below the drawing tells it."""

    x: float
    number: int
    event: Event


@dataclass(frozen=True, slots=True)
class Tick:
    """A label of an axis. at: x or y."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """The whole drawing. path: through the dots, in the syntax of SVG. silent: runs without a number."""

    dots: tuple[Dot, ...]
    path: str
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    silent: int
    first: Point
    last: Point
    lowest: float
    highest: float
    breaches: int
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    right: float = WIDTH - RIGHT
    top: float = TOP
    bottom: float = HEIGHT - BOTTOM


def chart_of(course: Sequence[Point], subject: Point | None, actions: Sequence[Event]) -> Chart | None:
    """The drawing of a pair's runs; None where none of them has a number.

    subject: the run that is marked, and whose limits are drawn. actions: what is marked by vertical lines.
    """
    told = [one for one in course if one.kl is not None]
    if not told:
        return None
    limits = _limits(subject or told[-1])
    up = _Up.of(told, [value for _, value in limits])
    across = _Across.of([*(one.started for one in told), *(one.at for one in actions)])
    dots = tuple(_dot(one, across, up, subject=subject) for one in told)
    values = [one.kl for one in told if one.kl is not None]
    return Chart(
        dots=dots,
        path="M" + " L".join(f"{one.x:.1f} {one.y:.1f}" for one in dots),
        lines=tuple(Line(up(value), level, number(value)) for level, value in limits),
        marks=tuple(Mark(across(one.at), i, one) for i, one in enumerate(actions, 1)),
        across=tuple(across.ticks()),
        up=tuple(up.ticks()),
        silent=len(course) - len(told),
        first=told[0],
        last=told[-1],
        lowest=min(values),
        highest=max(values),
        breaches=sum(one.quality in BREACHES for one in told),
    )


def _limits(one: Point) -> list[tuple[str, float]]:
    found = (("warn", one.warn), ("critical", one.critical))
    return [(level, value) for level, value in found if value is not None and value > 0]


@dataclass(frozen=True, slots=True)
class _Up:
    """The logarithmic axis: low and high are logarithms of what stands at its ends."""

    low: float
    high: float

    @classmethod
    def of(cls, told: Sequence[Point], limits: Sequence[float]) -> "_Up":
        ends = [value for one in told for value in (one.kl, one.low, one.high) if value is not None]
        values = [max(value, LEAST) for value in (*ends, *limits)]
        return cls(math.log10(min(values) / ROOM), math.log10(max(values) * ROOM))

    def __call__(self, value: float) -> float:
        share = (math.log10(max(value, LEAST)) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - BOTTOM - TOP)

    def ticks(self) -> Iterator[Tick]:
        """Every power of ten; between them 2 and 5 where the axis is short."""
        steps = (1.0,) if self.high - self.low > 2 else (1.0, 2.0, 5.0)
        for decade in range(math.floor(self.low), math.ceil(self.high) + 1):
            for step in steps:
                value = step * 10.0**decade
                if self.low <= math.log10(value) <= self.high:
                    yield Tick(self(value), number(value, 1))


@dataclass(frozen=True, slots=True)
class _Across:
    """The axis of time."""

    first: datetime
    last: datetime

    @classmethod
    def of(cls, moments: Sequence[datetime]) -> "_Across":
        first, last = min(moments), max(moments)
        return cls(first, last) if last > first else cls(first - timedelta(minutes=30), last + timedelta(minutes=30))

    def __call__(self, at: datetime) -> float:
        return LEFT + (at - self.first) / (self.last - self.first) * (WIDTH - RIGHT - LEFT)

    def ticks(self) -> Iterator[Tick]:
        whole = self.last - self.first
        form = "%m-%d" if whole > timedelta(days=5) else "%m-%d %H:%M" if whole > timedelta(days=1) else "%H:%M"
        form += ":%S" if whole < SHORT else ""
        for i in range(TIMES):
            at = self.first + whole * i / (TIMES - 1)
            yield Tick(self(at), f"{at.astimezone(UTC):{form}}")


def _dot(one: Point, across: _Across, up: _Up, *, subject: Point | None) -> Dot:
    kl = one.kl or 0.0
    shape = "breach" if one.quality in BREACHES else "good" if one.quality in GOOD else "other"
    said = f"{one.started.astimezone(UTC):%Y-%m-%d %H:%M} UTC: {number(kl)}"
    low, high = (kl if value is None else value for value in (one.low, one.high))
    ours = subject is not None and one.id == subject.id
    return Dot(across(one.started), up(kl), up(low), up(high), shape, one.id, said, one.quality, subject=ours)
