"""What a person is shown before they confirm is what happens when they do, and showing it changes nothing."""

from pathlib import Path
from typing import Any

import pytest

from quantwatch.errors import InputError
from quantwatch.flow.decision import Action
from quantwatch.flow.foresight import Foreseen
from quantwatch.flow.state import Routing
from quantwatch.flow.word import Word
from quantwatch.flows.approve import approve
from quantwatch.flows.foresee import foresee
from quantwatch.flows.release import confirm_healthy, release
from quantwatch.flows.words import hold, isolate
from support.watching import Bench, restarted, settings, watching

BAD = 1.0
OUT = Word("a", "ada", "burns the lab down")


async def untouched(bench: Bench, call: str, about: str, *, force: bool = False) -> Foreseen:
    """What is foreseen; nothing may be different afterwards."""
    before = (bench.board().targets, bench.decisions(), bench.timeline(), list(bench.gateway.calls))
    found = await foresee(bench.watch, call, about, force=force)
    assert before == (bench.board().targets, bench.decisions(), bench.timeline(), list(bench.gateway.calls))
    return found


async def test_an_isolation_is_foreseen_with_who_takes_over_and_then_done(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(pool={"mode": "observe", "fallback": "baseline"})) as bench:
        await bench.rounds(1)
        found = await untouched(bench, "isolate", "a")
        assert (found.action, found.refused, found.forcible) == (Action.ISOLATE, None, False)
        assert found.fallback is not None
        assert (found.fallback.name, found.fallback.healthy) == ("baseline", True)
        heard = await isolate(bench.watch, OUT)
        assert heard.told == found.objections

        await bench.settle()
        assert (await untouched(bench, "isolate", "a")).told == (await isolate(bench.watch, OUT)).told
        back = await untouched(bench, "release", "a")
        assert (back.action, back.refused) == (Action.RELEASE, None)
        assert (await untouched(bench, "confirm_healthy", "a")).action is Action.RELEASE
        heard = await release(bench.watch, OUT)
        assert heard.decision is not None
        assert heard.told == back.told


async def test_a_refusal_is_foreseen_word_for_word_and_insisting_helps_as_it_says(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(pool={"mode": "observe", "max_isolated": "0%"})) as bench:
        found = await untouched(bench, "isolate", "a")  # nothing is measured yet, so nothing is known to be sound
        assert found.forcible
        assert found.objections != ()
        with pytest.raises(InputError) as caught:
            await isolate(bench.watch, OUT)
        assert str(caught.value) == found.refused
        forced = await untouched(bench, "isolate", "a", force=True)
        assert (forced.refused, forced.objections) == (None, found.objections)
        assert forced.brakes == found.brakes
        assert len(forced.brakes) == len(set(forced.objections)) > 0


@pytest.mark.parametrize("call", ["isolate", "hold", "release", "confirm_healthy", "approve", "reject"])
async def test_what_is_not_there_is_refused_in_the_words_of_the_call(tmp_path: Path, call: str) -> None:
    async with watching(tmp_path) as bench:
        found = await untouched(bench, call, "stranger")
        assert found.refused is not None
        assert "stranger" in found.refused


async def test_a_driver_that_changes_nothing_is_told_before_anything_is_asked(tmp_path: Path) -> None:
    raw = settings()
    raw["gateway"] = {"driver": "dry_run"}
    async with watching(tmp_path, raw) as bench:
        found = await untouched(bench, "isolate", "a")
        assert found.refused is not None
        assert "changes nothing" in found.refused
        assert not found.forcible


async def test_there_is_nothing_to_release_and_nothing_to_order_about_a_node_in_traffic(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        assert (await untouched(bench, "release", "a")).refused == "a is not isolated by quantwatch"
        assert await untouched(bench, "confirm_healthy", "a") == Foreseen()
        assert await untouched(bench, "hold", "a") == Foreseen()
        assert await untouched(bench, "run", "a") == Foreseen()
        await confirm_healthy(bench.watch, OUT)
        await hold(bench.watch, OUT)
        assert await untouched(bench, "release", "a") == Foreseen()
        assert (await release(bench.watch, OUT)).decision is None


def asking(*targets: str, **pool: Any) -> dict[str, Any]:
    return settings(*targets, pool={"mode": "approve", "minimum_hold": "1s", "fallback": "baseline", **pool})


async def test_an_approval_is_foreseen_with_what_objects_now_and_then_done(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        (proposal,) = bench.board().proposals
        assert (await untouched(bench, "reject", proposal.decision)).told == (proposal.reason,)
        pause = await bench.people.pause("all", reason="a look", author="bob", seconds=60)
        found = await untouched(bench, "approve", proposal.decision)
        assert (found.action, found.refused) == (Action.ISOLATE, "bob paused all: a look")
        with pytest.raises(InputError) as caught:
            await approve(bench.watch, proposal.decision, author="ada")
        assert "bob paused all: a look" in str(caught.value)

        await bench.people.resume(pause.id, author="bob")
        found = await untouched(bench, "approve", proposal.decision)
        assert (found.action, found.refused, found.objections) == (Action.ISOLATE, None, ())
        assert found.fallback is not None
        await approve(bench.watch, proposal.decision, author="ada")
        await bench.settle()
        assert bench.routing() is Routing.OUT


async def test_an_approval_that_has_lost_its_reason_is_foreseen_as_such(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        (proposal,) = bench.board().proposals
        bench.clock.time += 5 * 3600
        found = await untouched(bench, "approve", proposal.decision)
        assert (found.action, found.refused) == (Action.ISOLATE, "it has expired")


async def test_the_approval_of_a_whole_pool_tells_who_would_leave(tmp_path: Path) -> None:
    given = {"fallback": "baseline", "max_isolated": "34%", "minimum_hold": "1s", "mode": "approve"}
    task_set = {"confirm_cycles": 3, "draw": 5, "draw_at_most": 10}
    async with watching(tmp_path, settings("a", "b", "c", pool=given, task_set=task_set)) as bench:
        await bench.rounds(1)
        for name in ("a", "b", "c"):
            restarted(bench.nodes[name], damage=2.0)
        await bench.rounds(3)
        (proposal,) = [one for one in bench.board().proposals if one.of_pool]
        await hold(bench.watch, Word("c", "bob", "mine"))
        found = await untouched(bench, "approve", proposal.decision)
        assert (found.action, found.refused) == (Action.ISOLATE, None)
        heard = await approve(bench.watch, proposal.decision, author="ada")
        leaving = [one.partition(" leaves")[0] for one in found.told]
        assert [one.partition(" leaves")[0] for one in heard.told if " leaves by " in one] == leaving
        assert leaving != []
