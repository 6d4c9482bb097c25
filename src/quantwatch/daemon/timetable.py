"""When runs are due. APScheduler is only the clock: it calls, and everything else is ours."""

import hashlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobEvent
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

from quantwatch.config.schema import ScheduleSettings

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""Intervals are counted from here, so that a restart does not move them."""

LONGEST_SHIFT = 60.0
"""Seconds over which first runs and crontab times are spread."""

FIRST = " (first)"
"""Ends the id of a job that runs what is overdue, once."""

CHECK = "self-check"
"""The id of the job that looks after references; those of runs hold a slash."""

MISSED = {EVENT_JOB_ERROR: "error", EVENT_JOB_MISSED: "missed", EVENT_JOB_MAX_INSTANCES: "max_instances"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One task set of one target. overdue: its first run does not wait for the schedule."""

    target: str
    task_set: str
    schedule: ScheduleSettings
    overdue: bool = False

    @property
    def id(self) -> str:
        """Names the job."""
        return f"{self.target}/{self.task_set}"

    @property
    def share(self) -> float:
        """Where in a period this entry has its place: 0 to 1, by its name, so that targets do not come all at once."""
        return int.from_bytes(hashlib.sha256(self.id.encode()).digest()[:8], "big") / 2**64


class Shifted(BaseTrigger):  # type: ignore[misc]
    """Another trigger, some seconds later."""

    def __init__(self, trigger: BaseTrigger, seconds: float) -> None:
        self._trigger = trigger
        self._shift = timedelta(seconds=seconds)

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime | None:
        """The other trigger's next time, shifted."""
        earlier = None if previous is None else previous - self._shift
        fires = self._trigger.get_next_fire_time(earlier, now - self._shift)
        return None if fires is None else fires + self._shift


def trigger_of(entry: Entry) -> BaseTrigger:
    """Intervals keep their place in the period over restarts; crontab times are shifted by up to a minute."""
    if entry.schedule.cron is not None:
        cron = CronTrigger.from_crontab(entry.schedule.cron, timezone=UTC)
        return Shifted(cron, entry.share * LONGEST_SHIFT)
    every = float(entry.schedule.every or 0.0)
    return IntervalTrigger(seconds=every, start_date=EPOCH + timedelta(seconds=entry.share * every), timezone=UTC)


class Timetable:
    """Calls `due(target, task_set)` at the right times. missed: hears why a time passed without a call.

    check: looks after the baseline's references, every so often from the start on.
    """

    def __init__(
        self,
        due: Callable[[str, str], object],
        *,
        missed: Callable[[str], None],
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._due = due
        self._missed = missed
        self._check = check
        self._check_seconds: float | None = None
        self._entries: list[Entry] = []
        self._scheduler = self._fresh()

    def start(self) -> None:
        """Begin to call."""
        self._scheduler.start()

    def stop(self) -> None:
        """Call no more."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def set(self, entries: Iterable[Entry], *, check_seconds: float | None = None) -> None:
        """Follow these entries from now on, and no others; a first run that is still waited for is not forgotten.

        check_seconds: time between two calls of `check`, the first of which comes at once.
        """
        self._check_seconds = check_seconds
        self._follow(list(entries), self._waiting())

    def _follow(self, entries: Sequence[Entry], waiting: Collection[str]) -> None:
        self._entries = list(entries)
        self._scheduler.remove_all_jobs()
        now = datetime.now(UTC)
        if self._check is not None and self._check_seconds is not None:
            again = IntervalTrigger(seconds=self._check_seconds, timezone=UTC)
            self._scheduler.add_job(self._check, again, id=CHECK, next_run_time=now)
        for entry in self._entries:
            self._scheduler.add_job(self._call, trigger_of(entry), args=[entry], id=entry.id)
            if entry.overdue or entry.id in waiting:
                first = min(LONGEST_SHIFT, (entry.schedule.every or LONGEST_SHIFT) / 2) * entry.share
                at = DateTrigger(now + timedelta(seconds=first))
                self._scheduler.add_job(self._call, at, args=[entry], id=f"{entry.id}{FIRST}")

    def _waiting(self) -> frozenset[str]:
        """Entries whose first run has not come yet."""
        jobs = self._scheduler.get_jobs()
        return frozenset(job.id.removesuffix(FIRST) for job in jobs if job.id.endswith(FIRST))

    def rebuild(self) -> None:
        """Reckon all times anew: the wall clock has jumped, and what was reckoned before it may be years away."""
        running, waiting = self._scheduler.running, self._waiting()
        self.stop()
        self._scheduler = self._fresh()
        if running:
            self._scheduler.start()
        self._follow([Entry(one.target, one.task_set, one.schedule) for one in self._entries], waiting)

    def _fresh(self) -> AsyncIOScheduler:
        defaults = {"coalesce": True, "misfire_grace_time": None, "max_instances": 1}
        scheduler = AsyncIOScheduler(timezone=UTC, job_defaults=defaults)
        scheduler.add_listener(self._heard, EVENT_JOB_ERROR | EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES)
        return scheduler

    async def _call(self, entry: Entry) -> None:
        self._due(entry.target, entry.task_set)

    def _heard(self, event: JobEvent) -> None:
        self._missed(MISSED.get(event.code, "error"))
