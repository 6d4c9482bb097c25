"""A fault in what runs beside the runs: the daemon ends with it, and ends in order."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from quantwatch.clock import SystemClock
from quantwatch.daemon.chores import PRUNE_SECONDS, STORE_RETRY_SECONDS
from quantwatch.daemon.heartbeat import BEAT_SECONDS
from quantwatch.daemon.process import Daemon
from quantwatch.daemon.systemd import Notifier
from quantwatch.record.archive import Archive
from support.daemons import site, until
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode


class Breaking(SystemClock):
    """A clock on which one kind of wait never ends but in a fault."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.broken = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Wait, or break."""
        if seconds != self.seconds:
            await super().sleep(seconds)
            return
        await self.broken.wait()
        raise RuntimeError("boom")


@pytest.mark.parametrize("wait", [BEAT_SECONDS, STORE_RETRY_SECONDS, PRUNE_SECONDS], ids=["beat", "upkeep", "prune"])
async def test_the_daemon_lets_the_run_under_way_end_and_writes_it_down(
    tmp_path: Path, wait: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="quantwatch")
    slow = node()
    with served(TinyNode()) as baseline, served(slow) as url:
        where = site(tmp_path, baseline, {"a": url})
        clock = Breaking(wait)
        daemon = Daemon(where.file, where.settings(), cache=where.cache, clock=clock, notifier=Notifier({}))
        running = asyncio.create_task(daemon.run())
        try:
            await until(lambda: daemon.ready.is_set() or running.done())
            slow.delay = 0.1
            await daemon.desk.run_now("a", None)
            await until(slow.completions)
            clock.broken.set()
            with pytest.raises(RuntimeError, match="boom"):
                await running
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError, RuntimeError):
                await running

    assert "stopping" in [one.msg["event"] for one in caplog.records if isinstance(one.msg, dict)]
    with Archive.open(where.store) as archive:
        (run,) = archive.history(limit=None)
    assert run.quality == "ok"
