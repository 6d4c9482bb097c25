"""The whole daemon beside a node that counts its own broken rows: it looks between the runs, and a run follows."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from quantwatch.clock import SystemClock
from quantwatch.daemon.chores import COUNT_SECONDS
from quantwatch.flow.verdict import Quality
from support.daemons import inside, site, until
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode


@dataclass(slots=True)
class CountsWhenTold(SystemClock):
    """The daemon's look at the counts, due every half minute, comes when the test says so."""

    told: asyncio.Event = field(default_factory=asyncio.Event)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        if seconds != COUNT_SECONDS:
            await SystemClock.sleep(self, seconds)
            return
        await self.told.wait()
        self.told.clear()


def counted(rows: int) -> str:
    return f'quantwatch_vllm_broken_logit_rows_total{{engine="0"}} {rows}\n'


async def test_a_count_that_rises_between_two_runs_of_an_hour_finds_a_broken_node(tmp_path: Path) -> None:
    clock, bad = CountsWhenTold(), node()
    bad.more_metrics = counted(0)
    with served(TinyNode()) as baseline, served(bad) as url:
        async with inside(site(tmp_path, baseline, {"a": url}).write(), clock=clock) as daemon:
            await until(lambda: "a" in daemon.memory.counts)  # the first run has read them
            watch = daemon.desk.watch
            assert watch is not None
            await watch.idle()
            bad.nan_on = lambda _ids: True
            bad.more_metrics = counted(12)
            clock.told.set()
            await until(lambda: daemon.memory.set_state("a", "letters").quality is Quality.CORRUPTED)
            assert daemon.memory.counts["a"].broken_rows == 12
            (target,) = daemon.board().targets
            assert target.counts is not None
