"""Windows: times, known beforehand, in which nothing acts. All of them in UTC, which knows no summer time."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema, model_validator

from quantwatch.config.schedule import check_cron, longest_gap, next_fire
from quantwatch.config.strict import Name, Strict
from quantwatch.config.units import PositiveDuration

LONGEST = timedelta(days=31)
"""A window that is open for longer is a pause; people make those."""


def _moment(value: Any) -> datetime:
    """A moment with its zone. Raises ValueError for one without, which could be any."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError("a time with its zone, such as 2026-12-24T22:00:00Z, is wanted")
    return value.astimezone(UTC)


Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-12-24T22:00:00Z"]}),
]
Scope = Annotated[str, StringConstraints(pattern=r"^(all|(pool|target):[A-Za-z0-9][A-Za-z0-9._-]*)$")]


class WindowSettings(Strict):
    """One window: either a crontab expression with a duration, or two moments."""

    name: Name = Field(description="What brakes, pages and logs call it; unique")
    cron: str | None = Field(None, description="When it opens: five fields (minute hour day month weekday), in UTC")
    duration: PositiveDuration | None = Field(None, description="How long it stays open; goes with cron, 31d at most")
    from_: Moment | None = Field(None, alias="from", description="When it opens, once: 2026-12-24T22:00:00Z")
    until: Moment | None = Field(None, description="When it closes; goes with from")
    scope: Scope = Field("all", description="Where nothing acts: all, pool:NAME or target:NAME")
    kind: Literal["maintenance", "rollout"] = Field(
        "maintenance", description="rollout: what the scope names is being exchanged, so changes in it are no alarm"
    )
    reason: str = Field(min_length=1, max_length=500, description="Why; everybody who wonders will read it")

    @model_validator(mode="after")
    def _two_forms(self) -> "WindowSettings":
        given = {name for name in ("cron", "duration", "from_", "until") if getattr(self, name) is not None}
        if given not in ({"cron", "duration"}, {"from_", "until"}):
            raise ValueError("give cron and duration, or from and until")
        if self.cron is not None and self.duration is not None:
            _check_repeated(self.cron, self.duration)
        if self.from_ is not None and self.until is not None and self.until <= self.from_:
            raise ValueError("until is not after from, so the window never occurs")
        return self

    def open_at(self, now: datetime) -> tuple[datetime, datetime] | None:
        """Since when and until when it is open now; None while it is closed."""
        opened = self._opening(now - self._length)
        return (opened, opened + self._length) if opened is not None and opened <= now else None

    def opens_next(self, now: datetime) -> datetime | None:
        """When it opens for the next time after now; None where it never does again."""
        return self._opening(now)

    @property
    def _length(self) -> timedelta:
        if self.from_ is not None and self.until is not None:
            return self.until - self.from_
        return timedelta(seconds=self.duration or 0.0)

    def _opening(self, after: datetime) -> datetime | None:
        """The first opening later than that."""
        if self.cron is not None:
            return next_fire(self.cron, after)
        return self.from_ if self.from_ is not None and self.from_ > after else None


def _check_repeated(cron: str, duration: float) -> None:
    check_cron(cron)
    if next_fire(cron, datetime(2024, 1, 1, tzinfo=UTC)) is None:
        raise ValueError(f"cron {cron!r} names no day that exists, so the window never occurs")
    if duration > LONGEST.total_seconds():
        raise ValueError("duration is over 31d; pause by hand where nobody knows the end")
    if duration >= longest_gap(cron):
        raise ValueError("duration is as long as the time from one opening to the next, so the window never closes")
