"""When runs are due: the real APScheduler, asked for its times or run on the real loop."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobEvent
from prometheus_client import generate_latest

from quantwatch.config.schema import ScheduleSettings
from quantwatch.daemon.timetable import Entry, Timetable, trigger_of
from quantwatch.expose.meters import Meters
from support.daemons import until

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def every(duration: str) -> ScheduleSettings:
    return ScheduleSettings.model_validate({"every": duration})


def cron(expression: str) -> ScheduleSettings:
    return ScheduleSettings.model_validate({"cron": expression})


def entry(target: str = "a", schedule: ScheduleSettings | None = None, *, overdue: bool = False) -> Entry:
    return Entry(target, "math", schedule or every("10m"), overdue)


def fires(one: Entry, *, after: datetime = NOW) -> datetime:
    """The first time that a process which starts then would run it."""
    at = trigger_of(one).get_next_fire_time(None, after)
    assert isinstance(at, datetime)
    return at


class Heard:
    """A timetable, what it called, and why it did not."""

    def __init__(self) -> None:
        self.due: list[tuple[str, str]] = []
        self.missed: list[str] = []
        self.checks = 0
        self.timetable = Timetable(lambda *pair: self.due.append(pair), missed=self.missed.append, check=self.check)

    async def check(self) -> None:
        """What looks after the references."""
        self.checks += 1

    def jobs(self) -> dict[str, datetime]:
        """Every job with the time that it waits for."""
        return {job.id: job.next_run_time for job in self.timetable._scheduler.get_jobs()}

    def missed_by(self, id_: str) -> float:
        """Seconds until a job is due."""
        return (self.jobs()[id_] - datetime.now(UTC)).total_seconds()


@pytest.fixture
async def heard() -> AsyncIterator[Heard]:
    """A timetable that runs."""
    one = Heard()
    one.timetable.start()
    yield one
    one.timetable.stop()
    await asyncio.sleep(0)  # the library ends itself on the loop


def test_a_restart_does_not_move_the_times_of_an_interval() -> None:
    first = fires(entry())

    restarts = [fires(entry(), after=NOW + timedelta(seconds=seconds)) for seconds in (0, 1.5, 61, 599, 86_400)]

    assert all((one - first).total_seconds() % 600 == pytest.approx(0, abs=1e-3) for one in restarts)


def test_the_targets_of_one_task_set_are_spread_over_its_period() -> None:
    waits = [(fires(entry(f"node-{i}")) - NOW).total_seconds() for i in range(40)]

    assert all(0 <= wait <= 600 for wait in waits)
    quarters = {int(wait // 150) for wait in waits}
    assert quarters >= {0, 1, 2, 3}


def test_the_task_sets_of_one_target_do_not_come_at_the_same_time() -> None:
    both = {fires(Entry("a", name, every("10m"))) for name in ("math", "code")}

    assert len(both) == 2


def test_a_crontab_time_is_shifted_by_less_than_a_minute_and_never_before_its_minute() -> None:
    named = datetime(2026, 3, 5, 3, 30, tzinfo=UTC)
    shifts = [(fires(entry(f"node-{i}", cron("30 3 * * *"))) - named).total_seconds() for i in range(40)]

    assert all(0 <= shift < 60 for shift in shifts)
    assert max(shifts) - min(shifts) > 30


def test_a_shifted_crontab_time_comes_once_for_each_time_of_the_expression() -> None:
    trigger, now = trigger_of(entry(schedule=cron("*/15 * * * *"))), NOW
    times: list[datetime] = []
    for _ in range(200):
        times.append(trigger.get_next_fire_time(times[-1] if times else None, now))
        now = times[-1] + timedelta(milliseconds=3)  # the clock is never exact

    assert {round((after - one).total_seconds(), 3) for one, after in itertools.pairwise(times)} == {900.0}
    assert (times[0] - datetime(2026, 3, 4, tzinfo=UTC)).total_seconds() % 900 < 60


async def test_what_is_overdue_runs_within_a_minute_and_what_is_fresh_waits_for_its_time(heard: Heard) -> None:
    heard.timetable.set([entry("late", every("24h"), overdue=True), entry("fresh", every("24h"))])

    assert 0 <= heard.missed_by("late/math (first)") <= 60
    assert "fresh/math (first)" not in heard.jobs()


async def test_what_is_overdue_with_a_short_period_runs_within_half_of_it(heard: Heard) -> None:
    heard.timetable.set([entry(f"node-{i}", every("10s"), overdue=True) for i in range(20)])

    assert all(heard.missed_by(f"node-{i}/math (first)") <= 5 for i in range(20))


async def test_what_is_overdue_by_a_crontab_runs_within_a_minute(heard: Heard) -> None:
    heard.timetable.set([entry("late", cron("0 3 1 1 *"), overdue=True)])

    assert 0 <= heard.missed_by("late/math (first)") <= 60


async def test_a_first_run_is_called_once_and_then_forgotten(heard: Heard) -> None:
    soon = min((entry(f"n{i}", every("10s"), overdue=True) for i in range(3000)), key=lambda one: one.share)
    heard.timetable.set([soon])

    await until(lambda: heard.due)

    assert heard.due[0] == (soon.target, "math")
    assert list(heard.jobs()) == [soon.id]


async def test_a_new_list_replaces_the_old_one_whole(heard: Heard) -> None:
    heard.timetable.set([entry("a", overdue=True), entry("b")])

    heard.timetable.set([entry("b"), entry("c")])

    assert set(heard.jobs()) == {"b/math", "c/math"}


@pytest.mark.parametrize("event", ["a reload", "a jump"])
async def test_a_first_run_that_is_still_waited_for_outlives(heard: Heard, event: str) -> None:
    heard.timetable.set([entry("late", cron("0 3 * * *"), overdue=True)])

    if event == "a reload":
        heard.timetable.set([entry("late", cron("0 4 * * *")), entry("fresh")])
    else:
        heard.timetable.rebuild()

    assert 0 <= heard.missed_by("late/math (first)") <= 60
    assert "fresh/math (first)" not in heard.jobs()


async def test_after_a_jump_every_entry_is_kept(heard: Heard) -> None:
    heard.timetable.set([entry("a"), entry("b", cron("*/5 * * * *")), entry("c", overdue=True)])
    before = heard.jobs()

    heard.timetable.rebuild()

    assert set(heard.jobs()) >= {"a/math", "b/math", "c/math"}
    assert heard.jobs()["a/math"] == before["a/math"]


async def test_after_a_clock_that_went_back_a_year_the_next_time_is_near_again(heard: Heard) -> None:
    heard.timetable.set([entry("a"), entry("b", cron("*/5 * * * *"))])
    for id_ in ("a/math", "b/math"):  # reckoned by a clock that was a year ahead
        heard.timetable._scheduler.modify_job(id_, next_run_time=datetime.now(UTC) + timedelta(days=365))

    heard.timetable.rebuild()

    assert 0 <= heard.missed_by("a/math") <= 600
    assert 0 <= heard.missed_by("b/math") <= 360


async def test_after_a_jump_the_calls_go_on_and_the_old_times_are_dead(heard: Heard) -> None:
    heard.timetable.set([entry("a")])
    old = heard.timetable._scheduler
    heard.timetable.rebuild()
    await asyncio.sleep(0)
    heard.timetable._scheduler.modify_job("a/math", next_run_time=datetime.now(UTC))

    await until(lambda: heard.due)

    assert heard.due == [("a", "math")]
    assert not old.running


def test_a_timetable_that_was_never_started_can_be_rebuilt_and_stopped() -> None:
    one = Heard()
    one.timetable.set([entry("a")])

    one.timetable.rebuild()
    one.timetable.stop()

    assert [job.id for job in one.timetable._scheduler.get_jobs()] == ["a/math"]


async def test_a_fault_in_what_is_called_is_counted_and_the_next_time_still_comes() -> None:
    meters = Meters()

    def broken(target: str, task_set: str) -> None:
        raise ValueError(f"{target} {task_set}")

    timetable = Timetable(broken, missed=meters.job_missed)
    timetable.start()
    timetable.set([entry("a")])
    timetable._scheduler.modify_job("a/math", next_run_time=datetime.now(UTC))

    await until(lambda: 'reason="error"' in generate_latest(meters.registry).decode())

    assert 'quantwatch_jobs_missed_total{reason="error"} 1.0' in generate_latest(meters.registry).decode()
    (job,) = timetable._scheduler.get_jobs()
    assert job.next_run_time > datetime.now(UTC)
    timetable.stop()
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("code", "reason"),
    [(EVENT_JOB_MISSED, "missed"), (EVENT_JOB_MAX_INSTANCES, "max_instances"), (EVENT_JOB_ERROR, "error")],
)
async def test_each_way_of_not_running_has_its_own_name_in_the_metrics(heard: Heard, code: int, reason: str) -> None:
    heard.timetable._scheduler._dispatch_event(JobEvent(code, "a/math", "default"))
    heard.timetable._scheduler._dispatch_event(JobEvent(EVENT_JOB_EXECUTED, "a/math", "default"))

    assert heard.missed == [reason]


async def test_a_time_that_passed_while_the_machine_slept_is_called_once_and_not_skipped(heard: Heard) -> None:
    heard.timetable.set([entry("a")])
    heard.timetable._scheduler.modify_job("a/math", next_run_time=datetime.now(UTC) - timedelta(hours=7))

    await until(lambda: heard.due)
    await asyncio.sleep(0.05)

    assert heard.due == [("a", "math")]
    assert heard.missed == []


async def test_the_self_check_comes_at_once_and_then_every_so_often(heard: Heard) -> None:
    heard.timetable.set([entry("a", every("24h"))], check_seconds=0.2)
    await until(lambda: heard.checks >= 3)
    heard.timetable.set([entry("a", every("24h"))], check_seconds=3600)
    before = heard.checks
    await until(lambda: heard.checks > before)

    assert 3500 < heard.missed_by("self-check") <= 3600
    assert heard.due == []


async def test_the_self_check_outlives_a_jump_of_the_clock(heard: Heard) -> None:
    heard.timetable.set([entry("a", every("24h"))], check_seconds=3600)
    await until(lambda: heard.checks == 1)
    heard.timetable.rebuild()
    await until(lambda: heard.checks == 2)

    assert set(heard.jobs()) == {"self-check", "a/math"}


async def test_without_references_to_look_after_there_is_no_self_check(heard: Heard) -> None:
    heard.timetable.set([entry("a", every("24h"))])
    assert set(heard.jobs()) == {"a/math"}
