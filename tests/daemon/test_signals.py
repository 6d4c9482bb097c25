"""Signals on the test's own loop and process; ending at once, which ends the process, is in test_process.py."""

import asyncio
import contextlib
import os
import signal

import pytest

from quantwatch.daemon.signals import Signals
from support.daemons import until


class Reloads:
    """Counts reloads; a reload ends when it may."""

    def __init__(self) -> None:
        self.begun = 0
        self.done = 0
        self.may = asyncio.Event()

    async def reload(self) -> None:
        self.begun += 1
        await self.may.wait()
        self.done += 1


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_term_and_ctrl_c_ask_for_an_end(number: signal.Signals) -> None:
    signals = Signals(reload=Reloads().reload)
    async with contextlib.AsyncExitStack() as stack:
        signals.install(stack)
        assert not signals.stop.is_set()

        send(number)

        async with asyncio.timeout(5):
            await signals.stop.wait()


async def test_hang_up_reloads_each_time_and_ends_nothing() -> None:
    reloads = Reloads()
    signals = Signals(reload=reloads.reload)
    async with contextlib.AsyncExitStack() as stack:
        signals.install(stack)
        send(signal.SIGHUP)
        await until(lambda: reloads.begun == 1)
        send(signal.SIGHUP)
        await until(lambda: reloads.begun == 2)
        reloads.may.set()
        await until(lambda: reloads.done == 2)

        assert not signals.stop.is_set()


async def test_usr1_writes_the_stacks_of_threads_and_tasks(capfd: pytest.CaptureFixture[str]) -> None:
    async def waiting_for_godot() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(waiting_for_godot())
    seen = []
    async with contextlib.AsyncExitStack() as stack:
        Signals(reload=Reloads().reload).install(stack)
        await asyncio.sleep(0)
        send(signal.SIGUSR1)

        def told() -> bool:
            seen.append(capfd.readouterr().err)
            return "waiting_for_godot" in "".join(seen)

        await until(told)
    task.cancel()

    assert "Current thread 0x" in "".join(seen) or "Thread 0x" in "".join(seen)


async def test_at_the_end_the_signals_are_given_back() -> None:
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in numbers}

    async with contextlib.AsyncExitStack() as stack:
        Signals(reload=Reloads().reload).install(stack)
        during = {number: signal.getsignal(number) for number in numbers}

    assert all(during[number] != before[number] for number in numbers)
    assert {number: signal.getsignal(number) for number in numbers} == before
