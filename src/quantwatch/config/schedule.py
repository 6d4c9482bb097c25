"""Crontab expressions, read by the library that will run them."""

from datetime import UTC, datetime, timedelta

from apscheduler.triggers.cron import CronTrigger


def check_cron(expression: str) -> None:
    """Raise ValueError, saying why, when a five-field crontab expression cannot be used."""
    try:
        CronTrigger.from_crontab(expression, timezone=UTC)
    except ValueError as exc:
        raise ValueError(f"not a crontab expression (minute hour day month weekday): {exc}") from exc


def next_fire(expression: str, after: datetime) -> datetime | None:
    """When a crontab expression fires for the first time later than that; None where it names no day that exists."""
    trigger = CronTrigger.from_crontab(expression, timezone=UTC)
    fires: datetime | None = trigger.get_next_fire_time(None, after + timedelta(microseconds=1))
    return fires


def runs_a_day(expression: str) -> float:
    """How often a crontab expression fires a day, averaged over the four weeks from a fixed Monday on."""
    trigger = CronTrigger.from_crontab(expression, timezone=UTC)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    count, last = 0, start - timedelta(seconds=1)
    while True:
        fires = trigger.get_next_fire_time(last, last + timedelta(seconds=1))
        if fires is None or fires >= start + timedelta(days=28):
            return count / 28
        count, last = count + 1, fires


def longest_gap(expression: str) -> float:
    """The longest time between two fires of a crontab expression in seconds, over four weeks from a Monday on.

    Rarer ones get as far as their second fire.
    """
    trigger = CronTrigger.from_crontab(expression, timezone=UTC)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    longest = 0.0
    last: datetime | None = None
    while True:
        after = start if last is None else last + timedelta(seconds=1)
        fires: datetime | None = trigger.get_next_fire_time(last, after)
        if fires is None:
            return longest or 28 * 86400.0
        if last is not None:
            longest = max(longest, (fires - last).total_seconds())
            if fires >= start + timedelta(days=28):
                return longest
        last = fires
