"""A person has the last word: isolate, hold, release and confirm-healthy, against verdicts, orders and restarts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quantwatch.errors import InputError, NeedsForce, StoreError
from quantwatch.flow.decision import Action, Brake, Origin, Result
from quantwatch.flow.state import Human, Routing
from quantwatch.flow.verdict import Quality
from quantwatch.flow.word import Word
from quantwatch.flows.release import confirm_healthy, release
from quantwatch.flows.resume import look
from quantwatch.flows.words import hold, isolate
from quantwatch.record.decisions import StoredDecision
from quantwatch.record.engine import Pragmas
from quantwatch.record.store import Options
from support.gateway import Fault, Gateway
from support.watching import Bench, restarted, settings, watching

BAD = 1.0
IMPATIENT = Options(pragmas=Pragmas(busy_seconds=0.01))
OUT_OF_WAY = Word("a", "ada", "burns the lab down")


def human(bench: Bench, name: str = "a") -> Human:
    return bench.target(name).state.human


async def measured(bench: Bench) -> None:
    """One clean run of everything."""
    await bench.rounds(1)


async def gone_bad(bench: Bench, name: str = "a") -> None:
    """A node that quantwatch has taken out by its verdicts."""
    await measured(bench)
    restarted(bench.nodes[name], damage=BAD)
    await bench.rounds(1)
    assert bench.routing(name) is Routing.OUT


def result(made: StoredDecision) -> Result:
    assert made.intent is not None
    assert made.intent.outcome is not None
    return made.intent.outcome.result


# Isolate


@pytest.mark.parametrize("mode", ["observe", "dry_run", "approve", "enforce"])
async def test_a_person_takes_a_healthy_node_out_in_every_mode_and_it_stays_out(tmp_path: Path, mode: str) -> None:
    async with watching(tmp_path, settings(pool={"mode": mode, "minimum_hold": "1s"})) as bench:
        await measured(bench)
        heard = await isolate(bench.watch, OUT_OF_WAY)
        await bench.settle()

        assert bench.gateway.changes == [("http://a", True)]
        (made,) = bench.decisions("a")
        assert (made.id, made.author, made.origin, made.reason) == (
            heard.decision,
            "ada",
            Origin.PERSON,
            "ada: burns the lab down",
        )
        assert bench.gateway.calls[0].id == heard.decision
        assert bench.path_of("human") == ["none", "forced_out"]
        assert [one.author for one in bench.timeline() if one.axis == "human"] == ["ada"]
        assert await bench.series("target_human", target="a", human="forced_out") == 1

        await bench.rounds(5)  # clean runs, and more of them than would bring it back
        assert bench.routing() is Routing.OUT
        assert len(bench.decisions("a")) == 1


async def test_a_forced_out_node_outlives_the_daemon(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await measured(bench)
        await isolate(bench.watch, OUT_OF_WAY)
        await bench.settle()
        gateway, clock = bench.gateway, bench.clock
    async with watching(tmp_path, gateway=gateway, clock=clock) as bench:
        await bench.rounds(4)
        state = bench.target().state
        assert (state.routing, state.human, state.human_author) == (Routing.OUT, Human.FORCED_OUT, "ada")
        assert state.human_reason == "burns the lab down"


async def test_a_word_ends_when_its_time_is_over_also_after_a_restart(tmp_path: Path) -> None:
    raw = settings(pool={"minimum_hold": "1s"})
    async with watching(tmp_path, raw) as bench:
        await measured(bench)
        await isolate(bench.watch, Word("a", "ada", "for an hour", seconds=3600))
        await bench.settle()
        await bench.rounds(3)
        assert bench.routing() is Routing.OUT
        assert await bench.series("target_human_until_timestamp_seconds", target="a") > 0
        gateway, clock = bench.gateway, bench.clock
    clock.time += 3600
    async with watching(tmp_path, raw, gateway=gateway, clock=clock) as bench:
        assert bench.path_of("human") == ["none", "forced_out", "none"]
        assert "has run out" in bench.timeline()[-1].reason
        assert bench.timeline()[-1].author == "quantwatch"
        assert bench.routing() is Routing.OUT  # from now on the verdicts decide
        await bench.rounds(2)
        assert bench.routing() is Routing.IN


async def test_a_word_ends_while_the_daemon_runs(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await measured(bench)
        await hold(bench.watch, Word("a", "ada", "looking at it", seconds=60))
        await bench.advance(59)
        await bench.mend()
        assert human(bench) is Human.HELD
        await bench.advance(2)
        await bench.mend()
        assert human(bench) is Human.NONE


async def test_the_last_backend_is_isolated_only_by_force_and_the_override_is_written_down(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", pool={"mode": "observe"})) as bench:
        await measured(bench)
        with pytest.raises(NeedsForce, match=r"no sound backend left"):
            await isolate(bench.watch, OUT_OF_WAY)
        assert (bench.decisions(), bench.gateway.calls, human(bench)) == ([], [], Human.NONE)

        bench.keeper.trouble = "the disk is full"
        with pytest.raises(InputError, match="the disk is full") as both:
            await isolate(bench.watch, OUT_OF_WAY)
        assert not isinstance(both.value, NeedsForce)  # insisting would not help
        bench.keeper.trouble = None

        heard = await isolate(bench.watch, Word("a", "ada", "really", force=True))
        await bench.settle()
        assert bench.routing() is Routing.OUT
        (made,) = bench.decisions()
        assert [one["brake"] for one in made.objections] == [Brake.LAST_BACKEND]
        assert "no sound backend left" in heard.told[0]


async def test_the_cap_asks_for_force_too_and_a_pause_is_only_told(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", "b", "c", pool={"max_isolated": "34%"})) as bench:
        await measured(bench)
        await bench.people.pause("all", reason="upgrade", author="bob", seconds=None)
        heard = await isolate(bench.watch, OUT_OF_WAY)
        assert heard.told == ("bob paused all: upgrade",)
        await bench.settle()
        assert bench.routing() is Routing.OUT
        with pytest.raises(InputError, match="2 of 3 members of chat would be away"):
            await isolate(bench.watch, Word("b", "ada", "x"))


async def test_a_pause_does_not_withdraw_what_a_person_ordered(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await measured(bench)
        bench.gateway.down = True
        await isolate(bench.watch, OUT_OF_WAY)
        await bench.settle()
        await bench.people.pause("all", reason="upgrade", author="bob", seconds=None)
        await bench.advance(30)
        bench.gateway.down = False
        await bench.advance(120)
        assert bench.routing() is Routing.OUT


async def test_a_driver_that_changes_nothing_isolates_nothing(tmp_path: Path) -> None:
    raw = settings()
    raw["gateway"] = {"driver": "dry_run"}
    async with watching(tmp_path, raw) as bench:
        await measured(bench)
        with pytest.raises(InputError, match=r"gateway.driver dry_run changes nothing"):
            await isolate(bench.watch, OUT_OF_WAY)


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_through_the_verdict_a_person_is_heard_in_every_mode(tmp_path: Path, mode: str) -> None:
    raw = settings(pool={"mode": mode})
    raw["gateway"] = {"driver": "verdict"}
    async with watching(tmp_path, raw) as bench:
        await measured(bench)
        await isolate(bench.watch, OUT_OF_WAY)
        await bench.settle()
        assert await bench.verdict() == 503
        await hold(bench.watch, Word("a", "ada", "as it is"))
        assert await bench.verdict() == 503
        await release(bench.watch, Word("a", "ada", "done"))
        await bench.settle()
        assert await bench.verdict() == 200


async def test_what_the_gateway_forgets_is_isolated_again_for_as_long_as_the_word_holds(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(pool={"mode": "observe"})) as bench:
        await measured(bench)
        await isolate(bench.watch, OUT_OF_WAY)
        await bench.settle()
        bench.gateway.isolated.clear()  # as at a reload
        await look(bench.watch)
        await bench.settle()
        assert bench.path_of("routing") == ["in", "leaving", "out", "contradicted", "leaving", "out"]
        assert bench.gateway.stands("http://a")
        assert len({one.id for one in bench.gateway.calls}) == 2
        assert bench.decisions()[-1].author == "ada"


async def test_nobody_looks_on_when_it_is_isolated_again_so_every_brake_objects(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(pool={"mode": "observe"})) as bench:
        await measured(bench)
        await isolate(bench.watch, OUT_OF_WAY)
        await bench.settle()
        bench.wire.down.add("b")  # the only other backend
        await bench.rounds(4, "b")
        bench.gateway.isolated.clear()
        await look(bench.watch)
        await bench.rounds(1, "a")
        assert bench.routing() is Routing.CONTRADICTED
        assert [one["brake"] for one in bench.decisions("a")[-1].objections] == [Brake.LAST_BACKEND]
        assert len(bench.gateway.calls) == 1


async def test_three_failures_in_a_row_end_the_insistence_for_some_hours(tmp_path: Path) -> None:
    async with watching(tmp_path, gateway=Gateway(always=Fault.REFUSED)) as bench:
        await measured(bench)
        await isolate(bench.watch, OUT_OF_WAY)
        await bench.settle()
        await bench.rounds(6)
        assert len(bench.gateway.calls) == 3
        assert [one.author for one in bench.board().pauses] == ["quantwatch"]
        assert bench.routing() is Routing.IN
        assert human(bench) is Human.FORCED_OUT


async def test_what_is_out_already_only_changes_hands(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(pool={"minimum_hold": "1s"})) as bench:
        await gone_bad(bench)
        heard = await isolate(bench.watch, OUT_OF_WAY)
        assert heard.decision is None
        assert bench.decisions("a")[0].id in heard.told[0]
        restarted(bench.nodes["a"])
        await bench.rounds(4)
        assert bench.routing() is Routing.OUT
        assert len(bench.gateway.calls) == 1


async def test_an_isolation_by_hand_turns_a_release_under_way_back(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await gone_bad(bench)
        bench.gateway.down = True
        await release(bench.watch, Word("a", "bob", "repaired"))
        await bench.settle()
        assert bench.routing() is Routing.RETURNING
        await isolate(bench.watch, OUT_OF_WAY)
        await bench.advance(30)
        assert bench.routing() is Routing.OUT
        assert result(bench.decisions("a")[-1]) is Result.WITHDRAWN
        assert bench.target().state.owner == bench.decisions("a")[0].id


# Hold


async def test_a_held_node_in_traffic_stays_in_whatever_it_answers(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await measured(bench)
        await hold(bench.watch, Word("a", "ada", "it is the only one with that model"))
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(4)
        assert bench.target().quality is Quality.DEGRADED
        assert bench.routing() is Routing.IN
        assert bench.decisions() == []

        await release(bench.watch, Word("a", "ada", "no more"))
        assert bench.path_of("human") == ["none", "held", "none"]
        assert bench.decisions() == []
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT


async def test_a_held_node_that_is_out_stays_out_and_is_brought_back_by_release(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(pool={"minimum_hold": "1s"})) as bench:
        await gone_bad(bench)
        await hold(bench.watch, Word("a", "ada", "under the microscope"))
        restarted(bench.nodes["a"])
        await bench.rounds(4)
        assert bench.routing() is Routing.OUT
        await release(bench.watch, Word("a", "ada", "seen enough"))
        await bench.settle()
        assert bench.routing() is Routing.IN
        assert human(bench) is Human.NONE


async def test_a_hold_withdraws_an_isolation_under_way(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await measured(bench)
        bench.gateway.down = True
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert bench.routing() is Routing.LEAVING
        with pytest.raises(InputError, match=r"under way already; `quantwatch hold` withdraws it"):
            await release(bench.watch, Word("a", "ada", "x"))
        heard = await hold(bench.watch, Word("a", "ada", "hands off"))
        assert heard.told == ("the order that is under way is withdrawn",)
        await bench.advance(60)
        assert result(bench.decisions("a")[0]) is Result.WITHDRAWN
        bench.gateway.down = False
        await bench.rounds(3)
        assert bench.routing() is Routing.IN
        assert bench.gateway.calls == []


async def test_a_release_takes_a_persons_own_isolation_back_before_it_is_done(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await measured(bench)
        bench.gateway.down = True
        await isolate(bench.watch, OUT_OF_WAY)
        await bench.settle()
        await release(bench.watch, Word("a", "ada", "wrong node"))
        await bench.advance(60)
        assert result(bench.decisions("a")[0]) is Result.WITHDRAWN
        assert (bench.routing(), human(bench)) == (Routing.IN, Human.NONE)


async def test_where_a_call_may_have_taken_effect_a_hold_leaves_it_open_what_is_so(tmp_path: Path) -> None:
    async with watching(tmp_path, gateway=Gateway(always=Fault.ERROR_DONE)) as bench:
        await measured(bench)
        bench.gateway.state_reply = None
        restarted(bench.nodes["a"], damage=BAD)
        await bench.round("a")
        await hold(bench.watch, Word("a", "ada", "hands off"))
        await bench.advance(60)
        assert bench.routing() in (Routing.OUT, Routing.CONTRADICTED)
        await look(bench.watch)
        assert bench.routing() is Routing.OUT
        assert bench.target().state.owner is not None
        bench.gateway.always = None
        await release(bench.watch, Word("a", "ada", "back"))
        await bench.settle()
        assert bench.routing() is Routing.IN


@pytest.mark.parametrize("said", [hold, isolate, confirm_healthy])
async def test_nothing_is_said_about_a_target_that_nobody_knows(tmp_path: Path, said: Any) -> None:
    async with watching(tmp_path) as bench:
        with pytest.raises(InputError, match=r"there is no target x|x is not in the configuration"):
            await said(bench.watch, Word("x", "ada", "y"))


@pytest.mark.parametrize("said", [hold, isolate, confirm_healthy])
async def test_what_cannot_be_written_down_was_not_said(tmp_path: Path, said: Any) -> None:
    async with watching(tmp_path, options=IMPATIENT) as bench:
        await measured(bench)
        before = bench.target()
        lock = bench.lock()
        with pytest.raises((StoreError, InputError)):
            await said(bench.watch, OUT_OF_WAY)
        lock.close()
        assert bench.target() == before
        assert bench.gateway.calls == []


# Confirm healthy


async def test_who_is_vouched_for_comes_back_and_later_breaches_count_anew(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await gone_bad(bench)
        heard = await confirm_healthy(bench.watch, Word("a", "ada", "the limits are wrong"))
        await bench.settle()

        assert bench.routing() is Routing.IN
        state = bench.target().sets[0].state
        assert (state.quality, state.breaches, state.clean, state.proof) == (Quality.UNKNOWN, 0, 0, None)
        assert bench.path_of("quality") == ["unknown", "ok", "inconclusive", "degraded", "unknown"]
        assert bench.path_of("human") == ["none", "none"]
        assert "vouched for: the limits are wrong" in [one.reason for one in bench.timeline()]
        assert bench.decisions("a")[-1].id == heard.decision
        assert heard.told == ()

        await bench.round("a")  # it still breaches: one run and its confirmation, as after any clean time
        assert bench.routing() is Routing.OUT
        assert [one.action for one in bench.decisions("a")] == [Action.ISOLATE, Action.RELEASE, Action.ISOLATE]


async def test_vouching_ends_the_lock_on_a_corrupted_process(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await measured(bench)
        bench.nodes["a"].nan_on = lambda ids: len(ids) > 10
        await bench.rounds(1)
        assert bench.target().state.lane == "corrupted"
        bench.nodes["a"].nan_on = lambda _: False
        await confirm_healthy(bench.watch, Word("a", "ada", "a cosmic ray"))
        await bench.settle()
        assert bench.routing() is Routing.IN
        await bench.rounds(3)
        assert bench.routing() is Routing.IN


async def test_vouching_outlives_the_daemon(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await measured(bench)
        await hold(bench.watch, Word("a", "ada", "x"))
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        await confirm_healthy(bench.watch, Word("a", "ada", "fine"))
        gateway, clock = bench.gateway, bench.clock
    async with watching(tmp_path, gateway=gateway, clock=clock) as bench:
        assert bench.target().sets[0].state.breaches == 0
        assert bench.target().state.vouched is not None
        assert (bench.routing(), human(bench)) == (Routing.IN, Human.NONE)
        assert bench.decisions() == []


async def test_a_run_that_began_before_somebody_vouched_proves_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await measured(bench)
        restarted(bench.nodes["a"], damage=BAD)
        seen: list[str] = []
        bench.wire.hear = lambda request: seen.append(request.url.host)
        held = bench.wire.held["a"] = asyncio.Event()
        bench.watch.due("a", "letters")
        await bench.until(lambda: "a" in seen)
        await confirm_healthy(bench.watch, Word("a", "ada", "fine"))
        held.set()
        del bench.wire.held["a"]
        await bench.settle()
        assert bench.target().sets[0].state.breaches == 0
        assert bench.routing() is Routing.IN
        assert bench.runs("a")[-1].quality is Quality.DEGRADED  # it is kept all the same

        await bench.round("a")
        assert bench.routing() is Routing.OUT


async def test_vouching_withdraws_an_isolation_under_way(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await measured(bench)
        bench.gateway.down = True
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        await confirm_healthy(bench.watch, Word("a", "ada", "fine"))
        await bench.advance(60)
        assert result(bench.decisions("a")[0]) is Result.WITHDRAWN
        assert bench.routing() is Routing.IN
