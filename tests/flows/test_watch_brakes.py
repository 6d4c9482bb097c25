"""Everything that can object to an action, from the run to the gateway that is not called."""

from pathlib import Path
from typing import Any

import pytest

from quantwatch.flow.decision import Action, Brake, Ruling
from quantwatch.flow.state import Axis, Routing
from support.watching import EVERY, Bench, node, restarted, settings, watching

BAD = 1.0


async def goes_bad(bench: Bench, *names: str) -> None:
    """Let nodes go bad, and measure everything once."""
    if not bench.runs():
        await bench.rounds(1)  # proves the baseline's answers, and that there are other backends
    for name in names or ("a",):
        restarted(bench.nodes[name], damage=BAD)
    await bench.rounds(1)
    await bench.advance(60)


def objected(bench: Bench, target: str = "a") -> list[list[str]]:
    """The brakes of every recorded decision about a target."""
    return [[one["brake"] for one in made.objections] for made in bench.decisions(target)]


def with_spare(**pool: Any) -> dict[str, Any]:
    """A pool of one with a fallback that is itself watched, in a pool of its own."""
    raw = settings("a", pool={"fallback": "spare", **pool})
    raw["targets"].append({"name": "spare", "url": "http://spare", "scheme": "int8", "pool": "spares"})
    raw["pools"]["spares"] = {"mode": "observe"}
    return raw


async def test_the_only_node_is_never_taken_out_without_a_fallback(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a")) as bench:
        await goes_bad(bench)
        await bench.rounds(2)

        assert objected(bench) == [[Brake.LAST_BACKEND]]
        assert bench.gateway.calls == []
        assert await bench.verdict() == 200


async def test_the_only_node_is_taken_out_when_the_baseline_takes_over(tmp_path: Path) -> None:
    raw = settings("a", pool={"fallback": "baseline"})
    raw["baseline"]["gateway_name"] = "http://full-precision"
    async with watching(tmp_path, raw) as bench:
        await goes_bad(bench)

        assert bench.routing() is Routing.OUT
        assert bench.gateway.calls[0].body["fallback_target"] == "http://full-precision"


async def test_a_fallback_that_was_never_proven_sound_takes_no_traffic(tmp_path: Path) -> None:
    async with watching(tmp_path, with_spare()) as bench:
        await bench.round("a")  # nothing is known of the spare yet
        restarted(bench.nodes["a"], damage=BAD)
        await bench.round("a")
        assert objected(bench) == [[Brake.LAST_BACKEND, Brake.FALLBACK]]

        await bench.round("spare")
        await bench.round("a")
        assert bench.routing() is Routing.OUT
        assert bench.gateway.calls[0].body["fallback_target"] == "http://spare"


async def test_a_fallback_that_is_bad_itself_takes_no_traffic(tmp_path: Path) -> None:
    async with watching(tmp_path, with_spare()) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["spare"], damage=BAD)
        await bench.round("spare")
        await goes_bad(bench)

        assert bench.gateway.calls == []
        assert objected(bench) == [[Brake.LAST_BACKEND, Brake.FALLBACK]]


async def test_a_fallback_that_is_down_right_now_takes_no_traffic(tmp_path: Path) -> None:
    async with watching(tmp_path, with_spare()) as bench:
        await bench.round()
        restarted(bench.nodes["a"], damage=BAD)
        bench.wire.down.add("spare")
        await bench.round("a")

        assert bench.gateway.calls == []
        assert Brake.FALLBACK in objected(bench)[0]


async def test_a_fallback_with_a_queue_is_recorded_once_and_counted_each_time(tmp_path: Path) -> None:
    probe = {"patience": "0s", "max_waiting": 50}
    async with watching(tmp_path, settings("a", pool={"fallback": "baseline"}, probe=probe)) as bench:
        bench.baseline.waiting = 5
        await goes_bad(bench)
        await bench.rounds(3)
        assert objected(bench) == [[Brake.FALLBACK_OVERLOADED]]
        assert await bench.series("actions_suppressed_total", reason="fallback_overloaded") == 4
        assert await bench.series("decisions_total", ruling="suppressed") == 4

        bench.baseline.waiting = 4
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT


async def test_a_node_that_stands_in_for_others_is_not_taken_out(tmp_path: Path) -> None:
    raw = settings("a", "spare", pool={"fallback": "c"})
    raw["targets"].append({"name": "c", "url": "http://c", "scheme": "int8", "pool": "others"})
    raw["targets"].append({"name": "d", "url": "http://d", "scheme": "int8", "pool": "others"})
    raw["pools"]["others"] = raw["pools"]["chat"] | {"fallback": None}
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(1)
        await goes_bad(bench, "a")
        assert bench.routing("a") is Routing.OUT
        await goes_bad(bench, "c")

        assert objected(bench, "c") == [[Brake.FALLBACK_IN_USE]]
        assert bench.routing("c") is Routing.IN


async def test_many_bad_nodes_at_once_are_a_storm_in_which_nobody_is_taken_out(tmp_path: Path) -> None:
    raw = settings("a", "b", "c", pool={"storm_cooldown": "30m"}, task_set={"confirm_cycles": 3})
    async with watching(tmp_path, raw) as bench:
        await goes_bad(bench, "a", "b")
        await bench.rounds(1)
        assert bench.gateway.calls == []
        assert Brake.STORM in objected(bench, "a")[0]
        assert Brake.STORM in objected(bench, "b")[0]
        assert bench.board().pools[0].storm is True
        assert await bench.series("storm_active") == 1

        # One of them is well again: the storm is over, and its cooldown begins.
        restarted(bench.nodes["b"])
        await bench.rounds(2)
        assert bench.gateway.calls == []
        assert bench.board().pools[0].storm is True

        await bench.rounds(2)
        assert bench.gateway.changes == [("http://a", True)]
        assert bench.board().pools[0].storm is False


async def test_no_more_nodes_are_taken_out_than_the_pool_can_spare(tmp_path: Path) -> None:
    raw = settings("a", "b", "c", "d", pool={"max_isolated": "25%", "storm_share": 1.0})
    async with watching(tmp_path, raw) as bench:
        await goes_bad(bench, "a", "b")
        await bench.rounds(1)

        assert bench.gateway.changes == [("http://a", True)]
        assert objected(bench, "b") == [[Brake.CAP]]
        pool = bench.board().pools[0]
        assert (pool.isolated, pool.allowed) == (1, 1)


async def test_two_nodes_that_are_decided_about_at_once_share_one_place_under_the_cap(tmp_path: Path) -> None:
    raw = settings("a", "b", "c", "d", pool={"max_isolated": "25%", "storm_share": 1.0})
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(1)
        for name in ("a", "b"):
            restarted(bench.nodes[name], damage=BAD)
            bench.watch.due(name, "letters")
        await bench.settle()

        assert len(bench.gateway.changes) == 1


async def test_only_so_many_isolations_are_made_in_an_hour(tmp_path: Path) -> None:
    raw = settings("a", "b", "c", "d", pool={"max_isolated": "75%", "storm_share": 1.0, "actions_per_hour": 1})
    async with watching(tmp_path, raw) as bench:
        await goes_bad(bench, "a", "b")
        await bench.rounds(4)
        assert bench.gateway.changes == [("http://a", True)]
        assert objected(bench, "b") == [[Brake.RATE]]

        await bench.rounds(2)
        assert bench.gateway.changes == [("http://a", True), ("http://b", True)]


@pytest.mark.parametrize("scope", ["all", "pool:chat", "target:a"])
async def test_nothing_acts_while_a_person_says_so(tmp_path: Path, scope: str) -> None:
    async with watching(tmp_path) as bench:
        pause = await bench.people.pause(scope, reason="rollout", author="ada", seconds=None)
        await goes_bad(bench)
        await bench.rounds(1)
        assert objected(bench) == [[Brake.PAUSED]]
        assert [one.id for one in bench.board().pauses] == [pause.id]
        assert await bench.series("paused", scope=scope) == 1

        assert await bench.people.resume(pause.id, author="ada", reason="it is over")
        kept = bench.timeline(scope.removeprefix("target:"))[-1]
        assert kept.author == "ada"
        assert kept.reason == f"resume {pause.id}: it is over"
        assert (kept.axis, kept.old, kept.new) == (Axis.HUMAN, "none", "none")
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT
        assert bench.board().pauses == ()


async def test_a_pause_of_others_holds_nothing_back(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.people.pause("target:b", reason="rollout", author="ada", seconds=None)
        await goes_bad(bench)

        assert bench.routing() is Routing.OUT


async def test_a_pause_outlives_the_daemon_and_ends_when_its_time_is_over(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.people.pause("all", reason="rollout", author="ada", seconds=4 * EVERY)
        nodes = bench.nodes

    async with watching(tmp_path, nodes=nodes, clock=bench.clock) as again:
        await goes_bad(again)
        assert objected(again) == [[Brake.PAUSED]]
        await again.rounds(4)
        await again.mend()
        assert again.memory.pauses == []
        assert again.routing() is Routing.OUT


async def test_a_pause_ends_an_order_under_way(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        bench.gateway.down = True
        await goes_bad(bench)
        assert bench.routing() is Routing.LEAVING
        await bench.people.pause("all", reason="the gateway is being mended", author="ada", seconds=None)
        await bench.advance(120)
        bench.gateway.down = False
        await bench.advance(120)

        assert bench.gateway.calls == []
        assert bench.routing() is Routing.IN
        (made,) = bench.decisions()
        assert made.intent is not None
        assert made.intent.outcome is not None
        assert "ada paused all: the gateway is being mended" in made.intent.outcome.detail


async def test_a_pause_that_is_not_there_cannot_be_ended(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        assert not await bench.people.resume("p-none", author="ada")


async def test_in_dry_run_it_is_recorded_once_what_would_have_been_done(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(pool={"mode": "dry_run"})) as bench:
        await goes_bad(bench)
        await bench.rounds(3)

        (made,) = bench.decisions()
        assert (made.action, made.ruling, made.intent) == (Action.ISOLATE, Ruling.WOULD_HAVE, None)
        assert await bench.series("decisions_total", ruling="would_have") == 4
        assert bench.gateway.calls == []
        assert await bench.verdict() == 200


async def test_a_wish_that_comes_again_is_recorded_again(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(pool={"mode": "dry_run"})) as bench:
        await goes_bad(bench)
        restarted(bench.nodes["a"])
        await bench.rounds(1)
        await goes_bad(bench)

        assert [made.ruling for made in bench.decisions()] == [Ruling.WOULD_HAVE] * 2


async def test_a_pool_that_is_only_observed_has_runs_and_no_decisions(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(pool={"mode": "observe"})) as bench:
        await goes_bad(bench)
        await bench.rounds(1)

        assert bench.target().quality == "degraded"
        assert bench.decisions() == []
        assert bench.gateway.calls == []
        assert await bench.verdict() == 200


async def test_a_driver_that_changes_nothing_only_says_what_it_would_have_done(tmp_path: Path) -> None:
    raw = settings()
    raw["gateway"] = {"driver": "dry_run"}
    async with watching(tmp_path, raw) as bench:
        await goes_bad(bench)

        (made,) = bench.decisions()
        assert (made.ruling, made.intent) == (Ruling.WOULD_HAVE, None)
        assert bench.routing() is Routing.IN
        assert await bench.verdict() == 200


async def test_with_driver_verdict_the_answer_to_the_gateways_question_is_the_action(tmp_path: Path) -> None:
    raw = settings()
    raw["gateway"] = {"driver": "verdict"}
    async with watching(tmp_path, raw) as bench:
        await goes_bad(bench)
        assert bench.routing() is Routing.OUT
        assert await bench.verdict() == 503

        restarted(bench.nodes["a"])
        await bench.rounds(2)
        assert bench.routing() is Routing.IN
        assert await bench.verdict() == 200
        assert bench.gateway.calls == []


async def test_a_lane_that_is_off_leads_nowhere(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(task_set={"act_on": ["corrupted"]})) as bench:
        await goes_bad(bench)
        assert bench.decisions() == []

        bench.nodes["a"].nan_on = lambda ids: len(ids) > 10
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT


async def test_a_busy_node_is_left_alone_and_nothing_follows(tmp_path: Path) -> None:
    busy = node(damage=BAD)
    busy.waiting = 3
    async with watching(tmp_path, nodes={"a": busy}) as bench:
        await bench.rounds(2)

        assert {run.quality for run in bench.runs("a")} == {"skipped"}
        assert bench.decisions() == []


async def test_a_wish_is_recorded_anew_when_something_else_objects(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(pool={"max_isolated": "49%"})) as bench:
        await goes_bad(bench)
        await bench.rounds(1)
        await bench.people.pause("pool:chat", reason="upgrade", author="ada", seconds=None)
        await bench.rounds(2)
        assert objected(bench) == [[Brake.CAP], [Brake.PAUSED, Brake.CAP]]
