"""A ladder in the daemon's life: traffic climbs a rung when one breaks, skips what is not sound, and comes down."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from quantwatch.flow.decision import Brake, Result, Ruling
from quantwatch.flow.state import Axis, Pause, Routing
from quantwatch.flow.verdict import Quality
from quantwatch.flow.word import Word
from quantwatch.flows.approve import approve
from quantwatch.flows.matters import matters
from quantwatch.flows.view import View
from quantwatch.flows.words import hold, isolate
from support.gateway import Fault
from support.runtime_socket import RuntimeSocket, runtime_socket
from support.watching import EVERY, Bench, HandClock, restarted, settings, watching

BAD = 1.5
LADDER = ["int4", "int8", "baseline"]


def ladder(*rungs: str, mode: str = "enforce", **given: Any) -> dict[str, Any]:
    """Targets a (int4) and b (int8) on one ladder before a webhook."""
    pool = {"mode": mode, "variants": list(rungs) or LADDER, "release_after": 2, "minimum_hold": "0s", **given}
    raw = settings("a", "b")
    raw["pools"] = {"chat": pool}
    for target, scheme in zip(raw["targets"], ("int4", "int8"), strict=True):
        target["scheme"] = scheme
    return raw


async def broken(bench: Bench, *names: str) -> None:
    """Let nodes break, with everything proven before."""
    if not bench.runs():
        await bench.rounds(1)
    for name in names:
        restarted(bench.nodes[name], damage=BAD)
        await bench.rounds(1, name)
        await bench.advance(5)


def brakes(bench: Bench, target: str) -> list[str]:
    return [one["brake"] for one in bench.decisions(target)[-1].objections]


def rung(bench: Bench) -> str | None:
    (pool,) = bench.board().pools
    return pool.rung


async def test_a_yes_to_a_whole_pool_names_who_takes_over_from_each_rung(tmp_path: Path) -> None:
    """a and b break on one rung, d on the next; c is sound there, so the traffic of a and b goes up to it."""
    raw = settings("a", "b", "c", "d", task_set={"confirm_cycles": 3, "draw": 5, "draw_at_most": 10})
    raw["pools"] = {"chat": {"mode": "enforce", "variants": LADDER}}
    for target, scheme in zip(raw["targets"], ("int4", "int4", "int8", "int8"), strict=True):
        target["scheme"] = scheme
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(1)
        for name in "abd":
            restarted(bench.nodes[name], damage=BAD)
        await bench.rounds(2)
        assert bench.gateway.calls == []
        (one,) = [each for each in bench.board().proposals if each.of_pool]
        heard = await approve(bench.watch, one.decision, author="ada")
        await bench.settle()

        assert [bench.routing(name) for name in "abcd"] == [Routing.OUT, Routing.OUT, Routing.IN, Routing.OUT], heard
        sent = {
            one.body["node_endpoint"]: (one.body["fallback_target"], one.body["rung"]) for one in bench.gateway.calls
        }
        assert sent["http://a"] == sent["http://b"] == ("http://c", "int8")


async def test_traffic_climbs_rung_by_rung_and_comes_down_again(tmp_path: Path) -> None:
    async with watching(tmp_path, ladder()) as bench:
        await bench.rounds(1)
        assert rung(bench) == "int4"
        await broken(bench, "a")
        assert (bench.routing("a"), rung(bench)) == (Routing.OUT, "int8")
        await broken(bench, "b")
        assert (bench.routing("b"), rung(bench)) == (Routing.OUT, "baseline")
        assert await bench.series("pool_rung", rung="baseline") == 1
        assert await bench.series("pool_rung", rung="int8") == 0

        restarted(bench.nodes["a"])
        restarted(bench.nodes["b"])
        await bench.rounds(2, "b")
        await bench.advance(5)
        assert (bench.routing("b"), rung(bench)) == (Routing.IN, "int8")
        await bench.rounds(2, "a")
        await bench.advance(5)
        assert (bench.routing("a"), rung(bench)) == (Routing.IN, "int4")

        assert [
            (one.body["node_endpoint"], one.body["fallback_target"], one.body["rung"]) for one in bench.gateway.calls
        ] == [
            ("http://a", "http://b", "int8"),
            ("http://b", "http://baseline", "baseline"),
            ("http://b", None, "int8"),
            ("http://a", None, "int4"),
        ]
        up, last, _, down = _told(bench)
        assert "; traffic goes up from int4 to int8 (b)" in up
        assert "; traffic goes up from int8 to baseline (baseline)" in last
        assert down.endswith("; traffic goes down from int8 to int4")


def _told(bench: Bench) -> tuple[str, str, str, str]:
    first, fourth = (one.reason for one in bench.decisions("a"))
    second, third = (one.reason for one in bench.decisions("b"))
    return first, second, third, fourth


async def test_a_rung_that_does_not_answer_is_skipped(tmp_path: Path) -> None:
    async with watching(tmp_path, ladder()) as bench:
        await bench.rounds(1)
        bench.wire.down.add("b")
        await broken(bench, "a")

        (call,) = bench.gateway.calls
        assert (call.body["fallback_target"], call.body["rung"]) == ("http://baseline", "baseline")
        assert rung(bench) == "int8", "b is in at the gateway, which is told to pass it over"


async def test_a_busy_rung_is_skipped_and_a_busy_ladder_objects(tmp_path: Path) -> None:
    async with watching(tmp_path, ladder(fallback_max_waiting=0)) as bench:
        await bench.rounds(1)
        bench.nodes["b"].waiting = 3.0
        await broken(bench, "a")

        assert bench.gateway.calls[0].body["rung"] == "baseline"

    folder = tmp_path / "second"
    folder.mkdir()
    async with watching(folder, ladder("int4", "int8", fallback_max_waiting=0)) as bench:
        await bench.rounds(1)
        bench.nodes["b"].waiting = 3.0
        await broken(bench, "a")

        assert brakes(bench, "a") == [Brake.FALLBACK_OVERLOADED]
        assert bench.gateway.calls == []


async def test_where_no_rung_above_is_sound_nothing_acts(tmp_path: Path) -> None:
    async with watching(tmp_path, ladder("int4", "int8")) as bench:
        await broken(bench, "b", "a")

        assert (bench.routing("a"), bench.routing("b")) == (Routing.IN, Routing.OUT)
        assert Brake.FALLBACK in brakes(bench, "a")
        assert "nobody of the rungs above is in" in str(bench.decisions("a")[-1].objections)
        assert [one.body["node_endpoint"] for one in bench.gateway.calls] == ["http://b"], "it stood by, so it may go"
        (made,) = bench.decisions("a")
        assert made.ruling is Ruling.SUPPRESSED


async def test_the_last_rung_is_never_taken(tmp_path: Path) -> None:
    async with watching(tmp_path, ladder("int4", "int8")) as bench:
        await broken(bench, "a", "b")

        assert (bench.routing("a"), bench.routing("b")) == (Routing.OUT, Routing.IN)
        assert "b is on the last rung, which is never taken" in str(bench.decisions("b")[-1].objections)


async def test_an_order_is_withdrawn_when_who_was_to_take_the_traffic_breaks_meanwhile(tmp_path: Path) -> None:
    async with watching(tmp_path, ladder()) as bench:
        await bench.rounds(1)
        bench.gateway.always = Fault.BUSY
        await broken(bench, "a")
        assert bench.routing("a") is Routing.LEAVING
        await broken(bench, "b")
        await bench.advance(120)
        (first, *_) = bench.decisions("a")
        assert first.intent is not None
        assert first.intent.outcome is not None
        assert first.intent.outcome.result is Result.WITHDRAWN
        assert "b, which was to take the traffic, is" in first.intent.outcome.detail

        bench.gateway.always = None
        await bench.rounds(1, "a")
        await bench.advance(120)
        assert bench.gateway.changes == [("http://b", True), ("http://a", True)]
        assert bench.gateway.calls[-1].body["rung"] == "baseline"


@pytest.mark.parametrize("lost", ["baseline", "d"])
async def test_an_order_is_withdrawn_when_nobody_on_the_ladder_is_left(tmp_path: Path, lost: str) -> None:
    """b is to leave, with the lower rung out already: the baseline above takes over, or where none is, d beside it."""
    above = lost == "baseline"
    raw = ladder() if above else ladder("int4", "int8", max_isolated="50%")
    if not above:
        raw["targets"].append({**raw["targets"][1], "name": "d", "url": "http://d"})
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(1)
        await isolate(bench.watch, Word("a", "ada", "not needed"))
        await bench.settle()
        bench.gateway.always = Fault.BUSY
        await broken(bench, "b")
        assert bench.routing("b") is Routing.LEAVING
        before = list(bench.gateway.changes)

        bench.wire.down.add(lost)
        await bench.round("a" if above else "d")
        bench.gateway.always = None
        await bench.advance(120)
        assert bench.gateway.changes == before
        (made,) = [one for one in bench.decisions("b") if one.intent is not None]
        assert made.intent is not None
        assert made.intent.outcome is not None
        assert made.intent.outcome.result is Result.WITHDRAWN
        told = "baseline, which was to take the traffic, can" if above else "no sound member of chat is left"
        assert told in made.intent.outcome.detail


async def test_an_order_without_a_stand_in_is_withdrawn_when_the_others_of_its_rung_are_lost(tmp_path: Path) -> None:
    """While e is sound the traffic of a stays on their rung; without it somebody above has to be named, anew."""
    raw = ladder("int4", "int8", max_isolated="50%")
    raw["targets"].append({**raw["targets"][0], "name": "e", "url": "http://e"})
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(1)
        bench.gateway.always = Fault.BUSY
        await broken(bench, "a")
        assert bench.gateway.calls[0].body["fallback_target"] is None
        bench.wire.down.add("e")
        await bench.round("e")
        await bench.advance(120)
        (made,) = [one for one in bench.decisions("a") if one.intent is not None]
        assert made.result is Result.WITHDRAWN

        bench.gateway.always = None
        await bench.rounds(1, "b", "a")
        await bench.advance(5)
        assert bench.gateway.changes == [("http://a", True)]
        assert bench.gateway.calls[-1].body["fallback_target"] == "http://b"


async def test_mode_approve_proposes_the_rung_and_an_answer_takes_it(tmp_path: Path) -> None:
    async with watching(tmp_path, ladder(mode="approve")) as bench:
        await broken(bench, "a")
        (waiting,) = bench.board().proposals
        assert waiting.reason.endswith("; traffic goes up from int4 to int8 (b)")
        assert bench.gateway.calls == []

        await approve(bench.watch, waiting.decision, author="ann")
        await bench.settle()

        assert bench.gateway.calls[0].body["rung"] == "int8"
        assert bench.routing("a") is Routing.OUT


async def test_a_word_by_hand_says_the_rung_as_well(tmp_path: Path) -> None:
    async with watching(tmp_path, ladder()) as bench:
        await bench.rounds(1)
        await isolate(bench.watch, Word("a", "ann", "a new build"))
        await bench.settle()

        (call,) = bench.gateway.calls
        assert (call.body["fallback_target"], call.body["rung"]) == ("http://b", "int8")


async def test_who_is_told_hears_the_rung(tmp_path: Path) -> None:
    async with watching(tmp_path, ladder()) as bench:
        await broken(bench, "a")
        told = [one for one in matters(View(bench.memory, bench.watch.watchlist, bench.clock.now())) if one.done]

        assert any(one.done.endswith("; traffic on rung int8") and "goes up from int4" in one.reason for one in told)


async def test_one_set_judges_one_pool(tmp_path: Path) -> None:
    """The same node in two pools by its task sets: it leaves for the class that breaks."""
    raw = settings("a", "b", pool={"task_sets": ["letters"], "max_isolated": "50%"})
    raw["task_sets"]["words"] = {**raw["task_sets"]["letters"]}
    raw["pools"]["code"] = {"mode": "enforce", "task_sets": ["words"], "variants": ["int8", "baseline"]}
    raw["targets"].append({**raw["targets"][0], "name": "a-code", "pool": "code", "gateway_name": "code/a"})
    raw["targets"][0]["gateway_name"] = "chat/a"
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1, "a-code")

        assert {run.target: run.task_set for run in bench.runs() if run.target.startswith("a")} == {
            "a": "letters",
            "a-code": "words",
        }
        assert (bench.routing("a-code"), bench.routing("a")) == (Routing.OUT, Routing.IN)
        assert [one.body["node_endpoint"] for one in bench.gateway.calls] == ["code/a"]


# --- by weights, at a played runtime socket of HAProxy ---------------------------------------------------------------


def weighed(socket: RuntimeSocket, **given: Any) -> dict[str, Any]:
    raw = ladder(release_after=1, shift=["10%", "50%"], **given)
    raw["gateway"] = {"driver": "haproxy", "socket": str(socket.path), "backend": "llm"}
    raw["baseline"]["gateway_name"] = "fp16"
    for target in raw["targets"]:
        target["gateway_name"] = target["name"]
    return raw


def weights(socket: RuntimeSocket) -> Mapping[str, int]:
    """The weight of everyone who is in."""
    inside = [one for one, bits in socket.states.items() if bits == 0]
    return {one.partition("/")[2]: socket.weights.get(one, socket.configured) for one in inside}


async def test_a_restart_in_the_middle_of_a_shift_goes_on_from_what_the_gateway_tells(tmp_path: Path) -> None:
    clock = HandClock()
    async with runtime_socket(tmp_path, a=0, b=0, fp16=0) as socket:
        async with watching(tmp_path, weighed(socket), clock=clock) as bench:
            await bench.rounds(1)
            assert weights(socket) == {"a": 100, "b": 1, "fp16": 1}
            await broken(bench, "a")
            assert weights(socket) == {"b": 100, "fp16": 1}
            assert socket.changes.index("set server llm/b weight 100%") < socket.changes.index(
                "set server llm/a state drain"
            )
            restarted(bench.nodes["a"])
            await bench.rounds(1)
            await bench.advance(5)
            assert weights(socket) == {"a": 10, "b": 90, "fp16": 1}
            mended = bench.nodes["a"]
            before = list(socket.changes)

        async with watching(tmp_path, weighed(socket), clock=clock, nodes={"a": mended}) as bench:
            assert bench.target("a").weight is None or bench.target("a").weight == 10
            await bench.rounds(1, "b")
            assert socket.changes == before, "no step without a clean run of its own in this life"
            await bench.rounds(1, "a")
            assert weights(socket) == {"a": 50, "b": 50, "fp16": 1}
            assert await bench.series("target_weight_ratio", target="a") == 0.5
            await bench.rounds(1, "a")
            assert weights(socket) == {"a": 100, "b": 1, "fp16": 1}
            steps = [one for one in bench.timeline("a") if one.axis is Axis.ROUTING and one.old == one.new]
            assert [one.reason.partition(" of")[0] for one in steps] == ["from 10 % to 50 %", "from 50 % to 100 %"]

            await bench.reload(weighed(socket, mode="observe"))
            await bench.rounds(1)
            assert bench.target("a").weight is None, "nobody looks any more"


async def test_no_step_while_something_objects_and_none_on_a_doubt(tmp_path: Path) -> None:
    async with runtime_socket(tmp_path, a=0, b=0, fp16=0) as socket, watching(tmp_path, weighed(socket)) as bench:
        await broken(bench, "a")
        restarted(bench.nodes["a"])
        await bench.rounds(1)
        await bench.advance(5)
        assert weights(socket)["a"] == 10

        now = bench.clock.now()
        bench.memory.pauses.append(Pause("p", "target:a", "look", "ann", now))
        await bench.rounds(2)
        assert weights(socket)["a"] == 10
        bench.memory.pauses.clear()

        bench.wire.down.add("a")  # a run that tells nothing is no clean run
        await bench.rounds(1, "a")
        assert weights(socket)["a"] == 10
        bench.wire.down.clear()

        socket.replies = [b""]  # the gateway tells nothing, and is asked no further
        await bench.round("a")
        assert weights(socket)["a"] == 10
        await bench.rounds(1, "a")
        assert weights(socket)["a"] == 50


async def test_a_gateway_that_cannot_weigh_a_server_still_takes_the_bad_one_out_and_back(tmp_path: Path) -> None:
    async with runtime_socket(tmp_path, a=0, b=0, fp16=0) as socket:
        socket.backups = {"b", "fp16"}
        async with watching(tmp_path, weighed(socket)) as bench:
            await broken(bench, "a")
            assert bench.routing("a") is Routing.OUT
            restarted(bench.nodes["a"])
            socket.configured = 1
            await bench.rounds(1)
            await bench.advance(5)
            assert bench.routing("a") is Routing.IN
            assert weights(socket) == {"a": 1, "b": 1, "fp16": 1}


@pytest.mark.parametrize("mode", ["observe", "dry_run"])
async def test_weights_are_left_alone_in_a_pool_that_may_not_act(tmp_path: Path, mode: str) -> None:
    async with (
        runtime_socket(tmp_path, a=0, b=0, fp16=0) as socket,
        watching(tmp_path, weighed(socket, mode=mode)) as bench,
    ):
        await broken(bench, "a")

        assert socket.changes == []
        assert bench.target("a").weight is None


async def test_where_the_gateway_goes_by_its_own_order_an_unknown_next_rung_is_not_passed_over(tmp_path: Path) -> None:
    """HAProxy takes the first backup that is in, whoever was named."""
    async with runtime_socket(tmp_path, a=0, b=0, fp16=0) as socket:
        raw = weighed(socket)
        del raw["pools"]["chat"]["shift"]
        async with watching(tmp_path, raw) as bench:
            await bench.rounds(1)
            await bench.advance(4 * EVERY)  # what is known of b is too old now
            await broken(bench, "a")
            assert bench.routing("a") is Routing.IN
            assert "b on rung int8: b is unknown" in str(bench.decisions("a")[-1].objections)
            assert bench.target("b").quality is Quality.UNKNOWN

            await bench.rounds(1, "b", "a")
            await bench.advance(5)
            assert bench.routing("a") is Routing.OUT


async def test_a_rung_that_is_not_known_to_be_sound_gets_no_share(tmp_path: Path) -> None:
    async with runtime_socket(tmp_path, a=0, b=0, fp16=0) as socket, watching(tmp_path, weighed(socket)) as bench:
        await broken(bench, "a")
        restarted(bench.nodes["a"])
        await bench.rounds(1)
        await bench.advance(5)
        assert weights(socket) == {"a": 10, "b": 90, "fp16": 1}

        bench.wire.down.add("b")
        await bench.rounds(4, "b")
        assert bench.target("b").quality is Quality.UNKNOWN
        await bench.round("a")
        assert weights(socket) == {"a": 50, "b": 1, "fp16": 50}, "the baseline is proven, b is not"


async def test_nobody_goes_on_while_it_is_not_known_who_has_the_rest(tmp_path: Path) -> None:
    async with runtime_socket(tmp_path, a=0, b=0, fp16=0) as socket:
        raw = weighed(socket)
        raw["pools"]["chat"]["variants"] = ["int4", "int8"]
        async with watching(tmp_path, raw) as bench:
            await broken(bench, "a")
            restarted(bench.nodes["a"])
            await bench.rounds(1)
            await bench.advance(5)
            assert (weights(socket)["a"], weights(socket)["b"]) == (10, 90)

            bench.wire.down.add("b")
            await bench.rounds(4, "b")
            await bench.round("a")
            assert (weights(socket)["a"], weights(socket)["b"]) == (10, 90)
            bench.wire.down.clear()
            await bench.rounds(1, "b")
            assert (weights(socket)["a"], weights(socket)["b"]) == (50, 50)


async def test_a_word_does_not_wait_for_a_gateway_that_is_slow_to_tell_its_weights(tmp_path: Path) -> None:
    async with runtime_socket(tmp_path, a=0, b=0, fp16=0) as socket, watching(tmp_path, weighed(socket)) as bench:
        await bench.rounds(1)
        socket.weights["llm/b"] = 50  # by hand; the next look would set it back
        socket.gate, before = asyncio.Event(), len(socket.commands)
        looking = asyncio.create_task(bench.watch.shift.tend("chat"))
        await bench.until(lambda: len(socket.commands) > before)

        await hold(bench.watch, Word("a", "ann", "a new build"))
        assert not looking.done()
        heard = list(socket.changes)
        socket.gate.set()
        await looking
        assert socket.changes == heard, "what was read is from before the word"
        await bench.watch.shift.tend("chat")
        assert weights(socket)["b"] == 1
