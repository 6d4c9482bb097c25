"""One worker a target, and configurations that end once nobody uses them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from quantwatch.act.dry_run import DryRun
from quantwatch.flow.run import Trigger
from quantwatch.flows.cycle import Turn
from quantwatch.flows.generation import Generation
from quantwatch.flows.shelf import LookingShelf
from quantwatch.flows.watched import Watchlist
from quantwatch.flows.worker import Worker
from quantwatch.flows.yardstick import Yardstick
from support.builders import FakeClock, answering, prober


@dataclass
class Job:
    """Turns that last until they are let go, one by one."""

    log: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    async def turn(self, task_set: str, trigger: Trigger) -> None:
        self.log.append(f"{task_set} {trigger}")
        await self.may_end.wait()

    def skip(self, task_set: str, reason: str) -> None:
        self.skipped.append((task_set, reason))


@contextlib.asynccontextmanager
async def working(job: Job) -> AsyncIterator[Worker]:
    worker = Worker("a", job.turn, FakeClock(), skipped=job.skip)
    task = asyncio.create_task(worker.work())
    try:
        yield worker
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def some_steps() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_confirming_run_goes_first_though_the_schedule_has_the_same_set_waiting() -> None:
    job = Job()
    async with working(job) as worker:
        worker.due("one")
        await some_steps()
        worker.due("two")
        worker.due("one")
        assert worker.due("one", Trigger.CONFIRM)
        assert not worker.due("one", Trigger.CONFIRM)
        assert not worker.due("one")
        assert worker.queued == 2
        job.may_end.set()
        await worker.idle()

    assert job.log == ["one schedule", "one confirm", "two schedule"]
    assert job.skipped == [("one", "overlap")] * 2


async def test_what_is_due_runs_one_after_another_in_its_order() -> None:
    job = Job()
    async with working(job) as worker:
        assert worker.due("one")
        assert worker.due("two")
        await some_steps()
        assert (job.log, worker.running, worker.queued) == (["one schedule"], "one", 1)

        job.may_end.set()
        await worker.idle()
        assert job.log == ["one schedule", "two schedule"]
        assert (worker.running, worker.queued) == (None, 0)


async def test_a_confirmation_goes_before_everything_that_waits() -> None:
    job = Job()
    async with working(job) as worker:
        worker.due("one")
        await some_steps()
        worker.due("two")
        worker.due("one", Trigger.CONFIRM)
        job.may_end.set()
        await worker.idle()

        assert job.log == ["one schedule", "one confirm", "two schedule"]


async def test_what_waits_already_is_skipped_and_what_runs_may_be_queued_again() -> None:
    job = Job()
    async with working(job) as worker:
        worker.due("one")
        await some_steps()
        assert worker.due("one")
        assert not worker.due("one")
        assert not worker.due("one", Trigger.MANUAL)

        assert job.skipped == [("one", "overlap")] * 2


async def test_a_worker_that_is_closed_takes_nothing_and_forgets_what_waits() -> None:
    job = Job()
    async with working(job) as worker:
        worker.due("one")
        await some_steps()
        worker.due("two")
        worker.close()
        assert not worker.due("three")
        assert job.skipped == [("two", "draining"), ("three", "draining")]

        idle = asyncio.create_task(worker.idle())
        await some_steps()
        assert not idle.done()  # one run is under way still
        job.may_end.set()
        await idle
        assert job.log == ["one schedule"]


async def test_a_worker_that_is_closed_with_nothing_to_do_is_idle_at_once() -> None:
    job = Job()
    worker = Worker("a", job.turn, FakeClock(), skipped=job.skip)  # and never began to work
    worker.due("one")
    worker.close()
    await worker.idle()


async def test_a_worker_waits_for_more_when_everything_is_done() -> None:
    job = Job()
    job.may_end.set()
    async with working(job) as worker:
        for _ in range(3):
            worker.due("one")
            await worker.idle()

        assert len(job.log) == 3


async def test_how_long_a_run_waited_for_its_start_is_told() -> None:
    job, clock, waits = Job(), FakeClock(), list[float]()
    worker = Worker("a", job.turn, clock, skipped=job.skip, waited=waits.append)
    worker.due("one")
    clock.time = 2.0
    worker.due("two")
    clock.time = 5.0
    task = asyncio.create_task(worker.work())
    await some_steps()
    clock.time = 9.0
    job.may_end.set()
    await worker.idle()
    task.cancel()

    assert waits == [5.0, 7.0]


async def test_a_worker_that_is_cut_off_runs_nothing_any_more() -> None:
    job = Job()
    async with working(job) as worker:
        worker.due("one")
        await some_steps()

    assert worker.running is None


@dataclass
class Ended:
    """Counts how often connections were ended."""

    times: int = 0

    async def close(self) -> None:
        self.times += 1


def generation(folder: Path, ended: Ended) -> Generation:
    asked = prober(answering())
    turn = Turn(asked, Yardstick(LookingShelf(folder / "none"), FakeClock()), folder, FakeClock(), Random(1), 1.0)
    return Generation(Watchlist(asked, {}, {}), DryRun(), 60.0, turn, close=ended.close)


async def test_a_configuration_nobody_uses_is_closed_when_another_follows(tmp_path: Path) -> None:
    ended = Ended()
    await generation(tmp_path, ended).retire()
    assert ended.times == 1


@pytest.mark.parametrize("users", [1, 3])
async def test_a_configuration_in_use_is_closed_once_by_its_last_user(tmp_path: Path, users: int) -> None:
    ended = Ended()
    old = generation(tmp_path, ended)
    old.users = users
    await old.retire()
    for left in range(users, 0, -1):
        assert ended.times == 0, f"{left} still use it"
        await old.leave()

    assert ended.times == 1


async def test_a_configuration_in_force_stays_open_when_its_runs_end(tmp_path: Path) -> None:
    ended = Ended()
    current = generation(tmp_path, ended)
    current.users = 1
    await current.leave()
    assert ended.times == 0
