"""What the picture tells beside states: since when, whether an isolation was seen, what is asked."""

from datetime import timedelta
from pathlib import Path

from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import Quality
from quantwatch.flow.word import Word
from quantwatch.flows.release import confirm_healthy
from support.gateway import Fault, Gateway
from support.watching import Bench, restarted, settings, watching

BAD = 1.0
MOMENT = timedelta(seconds=1)
"""The clock of these tests goes on a little whenever somebody looks."""


async def gone_bad(bench: Bench, name: str = "a") -> None:
    """Two clean rounds, then one that breaches."""
    await bench.rounds(2)
    restarted(bench.nodes[name], damage=BAD)
    await bench.rounds(1)


async def test_a_verdict_tells_since_when_it_stands_over_restarts(tmp_path: Path) -> None:
    async with watching(tmp_path, raw=settings(pool={"mode": "observe"})) as bench:
        assert bench.target().sets[0].since is None
        await bench.rounds(1)
        clean = bench.target().sets[0].since
        await gone_bad(bench)
        since, state = bench.target().sets[0].since, bench.target().sets[0].state
        assert (clean is not None, state.quality) == (True, Quality.DEGRADED)
        assert since is not None
        assert state.at is not None
        assert abs(since - state.at) < MOMENT
        await bench.rounds(2)
        assert bench.target().sets[0].since == since != bench.target().sets[0].state.at
        clock, gateway = bench.clock, bench.gateway
    async with watching(tmp_path, raw=settings(pool={"mode": "observe"}), clock=clock, gateway=gateway) as bench:
        assert bench.target().sets[0].since == since
        bench.memory.shift(-3600)
        assert bench.target().sets[0].since == since - timedelta(hours=1)


async def test_who_vouches_begins_a_verdict_anew(tmp_path: Path) -> None:
    async with watching(tmp_path, raw=settings(pool={"mode": "observe"})) as bench:
        await gone_bad(bench)
        others = bench.target("b").sets[0].since
        await bench.advance(60)
        await confirm_healthy(bench.watch, Word("a", "ada", "fine"))
        since = bench.target().sets[0].since
        assert since is not None
        assert bench.clock.now() - since < MOMENT
        assert bench.target("b").sets[0].since == others


async def test_an_isolation_that_was_read_back_is_verified(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        assert bench.target().verified is None
        await gone_bad(bench)
        one = bench.target()
        assert (one.state.routing, one.verified) == (Routing.OUT, True)
        assert bench.target("b").verified is None


async def test_an_isolation_that_cannot_be_read_back_is_not_verified(tmp_path: Path) -> None:
    raw = settings()
    del raw["gateway"]["state_url"]
    async with watching(tmp_path, raw=raw, gateway=Gateway(always=Fault.YES_AND_NOTHING)) as bench:
        await gone_bad(bench)
        assert (bench.routing(), bench.target().verified) == (Routing.OUT, False)
        assert await bench.series("isolation_verified", target="a") == 0


async def test_a_task_set_is_told_once_however_many_targets_there_are(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        (one,) = bench.board().task_sets
        asked = bench.watch.watchlist.targets["a"].sets["letters"]
        assert (one.name, one.digest, one.prompts) == ("letters", asked.prompts.digest, len(asked.prompts.prompts))
        assert (one.draw, one.k, one.mode) == (10, 5, ProbeMode.PROMPT_SCORING)
