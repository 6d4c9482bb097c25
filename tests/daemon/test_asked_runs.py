"""Who asked for a run now, and why, is kept among the changes of the target."""

from pathlib import Path

from quantwatch.daemon.desk import Desk
from quantwatch.expose.calls import Reloaded
from quantwatch.flow.run import Trigger
from quantwatch.flow.state import Axis
from quantwatch.flow.word import Word
from quantwatch.flows.words import hold
from support.watching import watching


async def nothing() -> Reloaded:
    return Reloaded(ok=True, message="")


async def test_a_run_that_is_asked_for_is_kept_with_who_and_why(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        desk = Desk(nothing, bench.watch, bench.people)
        await hold(bench.watch, Word("a", "bob", "looking at it"))
        assert await desk.run_now("a", None, author="ada", reason="after the upgrade") == 1
        kept = bench.timeline()[-1]
        assert (kept.target, kept.axis, kept.author) == ("a", Axis.HUMAN, "ada")
        assert (kept.old, kept.new) == ("held", "held")
        (task_set,) = bench.watch.watchlist.targets["a"].sets
        assert (kept.reason, kept.task_set) == (f"run {task_set}: after the upgrade", task_set)
        await bench.watch.idle()
        assert [one.document["trigger"] for one in bench.runs()] == [Trigger.MANUAL]


async def test_nothing_is_kept_of_what_was_not_queued(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        desk = Desk(nothing, bench.watch, bench.people)
        assert await desk.run_now("nobody", None, author="ada", reason="x") == 0
        assert bench.timeline() == []
