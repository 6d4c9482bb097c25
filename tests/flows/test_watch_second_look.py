"""What a second look at the whole watch found: each of these once left a node in, out or nowhere for too long."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.responses import Response

from quantwatch.errors import InputError
from quantwatch.flow.decision import Brake, Ruling
from quantwatch.flow.pool import PoolState
from quantwatch.flow.run import Trigger
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import Quality
from quantwatch.flow.word import Word
from quantwatch.flows.cycle import Ran
from quantwatch.flows.release import release
from quantwatch.flows.resume import look
from support.daemons import inside, site, until
from support.gateway import Fault, Gateway
from support.served import served
from support.tiny_node import TinyModel
from support.watching import Bench, node, restarted, settings, watching

BAD = 1.0
A = "http://a"


async def goes_bad(bench: Bench, name: str = "a") -> None:
    """Prove everything, then let a node go bad and be measured."""
    await bench.rounds(1)
    restarted(bench.nodes[name], damage=BAD)
    await bench.rounds(1)


async def isolated(bench: Bench, name: str = "a") -> None:
    """Let a node go bad and be taken out."""
    await goes_bad(bench, name)
    assert bench.routing(name) is Routing.OUT


def brakes(bench: Bench, name: str = "a") -> set[str]:
    """What objected to the latest decision about a target."""
    latest = bench.decisions(name)[-1]
    assert latest.ruling is Ruling.SUPPRESSED
    return {one["brake"] for one in latest.objections}


def orders_alive() -> list[str]:
    """Names of the orders that are under way."""
    return sorted(one.get_name() for one in asyncio.all_tasks() if one.get_name().startswith("order "))


# The gateway forgets, and people drain by hand


async def test_a_gateway_that_forgets_an_isolation_is_found_out_and_the_next_breach_orders_it_anew(
    tmp_path: Path,
) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        first = bench.target().state.owner
        bench.gateway.isolated.clear()

        await look(bench.watch)
        assert bench.routing() is Routing.CONTRADICTED
        assert bench.target().state.owner == first
        assert bench.timeline()[-1].reason == "the gateway says routable, and on record it is isolated"

        await bench.rounds(1, "b", "a")
        assert bench.routing() is Routing.OUT
        assert bench.gateway.stands(A) is True
        second = bench.target().state.owner
        assert [one.id for one in bench.gateway.calls] == [first, second]
        assert first != second


async def test_an_isolation_that_the_gateway_has_after_all_is_out_again_without_another_order(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        owner = bench.target().state.owner
        bench.gateway.isolated[A] = False
        await look(bench.watch)
        bench.gateway.isolated[A] = True
        await look(bench.watch)

        assert bench.path_of("routing")[-2:] == ["contradicted", "out"]
        assert bench.target().state.owner == owner
        assert len(bench.gateway.calls) == 1


async def test_what_the_gateway_goes_on_routing_is_in_traffic_and_nobodys_isolation(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        bench.gateway.isolated[A] = False
        await look(bench.watch)
        await look(bench.watch)

        state = bench.target().state
        assert bench.path_of("routing")[-2:] == ["contradicted", "in"]
        assert (state.owner, state.gone, state.lane, state.node, state.driver) == (None,) * 5
        with pytest.raises(InputError, match="not isolated by quantwatch"):
            await release(bench.watch, Word("a", "ada", "x"))

        # It is still bad, so it does not stay there.
        await bench.rounds(1, "b", "a")
        assert bench.routing() is Routing.OUT
        assert bench.gateway.stands(A) is True


async def test_what_was_drained_by_hand_is_in_traffic_once_it_is_undrained(tmp_path: Path) -> None:
    gateway = Gateway(isolated={A: True})
    async with watching(tmp_path, gateway=gateway) as bench:
        assert bench.routing() is Routing.CONTRADICTED
        await look(bench.watch)
        assert bench.routing() is Routing.CONTRADICTED  # it is drained still

        gateway.isolated[A] = False
        await look(bench.watch)
        assert bench.routing() is Routing.IN
        assert bench.timeline()[-1].reason == "the gateway says routable again"
        assert gateway.calls == []

        # And it counts as a backend again.
        await isolated(bench, "b")


async def test_a_look_leaves_a_target_alone_whose_order_is_under_way(tmp_path: Path) -> None:
    async with watching(tmp_path, gateway=Gateway(always=Fault.BUSY)) as bench:
        await goes_bad(bench)
        bench.gateway.isolated["http://b"] = True
        asked: list[str] = []
        bench.wire.hear = lambda request: asked.append(request.url.params.get("node_endpoint", ""))
        await look(bench.watch)
        assert asked == ["http://b"]
        assert bench.routing("a") is Routing.LEAVING
        assert bench.routing("b") is Routing.CONTRADICTED

        bench.gateway.isolated["http://b"] = False
        await look(bench.watch)
        bench.gateway.always = None
        await bench.advance(60)
        assert bench.routing("a") is Routing.OUT


async def test_an_order_under_way_does_not_take_the_last_one_that_the_gateway_still_has(tmp_path: Path) -> None:
    async with watching(tmp_path, gateway=Gateway(always=Fault.BUSY)) as bench:
        await goes_bad(bench)
        bench.gateway.isolated["http://b"] = True
        await look(bench.watch)
        assert (bench.routing("a"), bench.routing("b")) == (Routing.LEAVING, Routing.CONTRADICTED)

        bench.gateway.always = None
        await bench.advance(60)
        assert bench.routing("a") is Routing.IN
        assert bench.gateway.changes == []


async def test_a_look_does_not_ask_about_a_pool_that_is_only_watched_now(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        await bench.reload(settings(pool={"mode": "observe"}))
        bench.gateway.isolated.clear()
        before = bench.gateway.looks
        await look(bench.watch)
        assert bench.gateway.looks == before
        assert bench.routing() is Routing.OUT


async def test_a_look_changes_nothing_where_an_order_began_while_the_gateway_was_asked(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        restarted(bench.nodes["a"])
        await bench.rounds(1)  # clean once, and twice is asked for
        bench.gateway.isolated[A] = False
        answers = bench.wire.held["gateway"] = asyncio.Event()
        asked = len(bench.wire.calls)
        looking = asyncio.create_task(look(bench.watch))
        await bench.until(lambda: len(bench.wire.calls) >= asked + 2)

        await release(bench.watch, Word("a", "ada", "repaired"))
        answers.set()
        await looking
        await bench.settle()
        assert bench.path_of("routing") == ["in", "leaving", "out", "returning", "in"]


# Corrupted while it is out


async def corrupted_while_out(bench: Bench) -> None:
    """Out for its limits, then NaN, then well again, all but the first in one process."""
    await isolated(bench)
    assert bench.target().state.lane == "limits"
    bench.nodes["a"].nan_on = lambda _: True
    await bench.rounds(1)
    assert bench.target().quality is Quality.CORRUPTED
    assert bench.target().state.lane == "corrupted"
    bench.nodes["a"].nan_on = lambda _: False
    bench.nodes["a"].model = TinyModel()


async def test_a_node_out_for_its_limits_that_turns_corrupted_comes_back_as_another_process_only(
    tmp_path: Path,
) -> None:
    async with watching(tmp_path) as bench:
        await corrupted_while_out(bench)
        await bench.rounds(6)
        assert {run.quality for run in bench.runs("a")[-6:]} == {Quality.OK}
        assert bench.routing() is Routing.OUT

        restarted(bench.nodes["a"])
        await bench.rounds(3)
        assert bench.routing() is Routing.IN
        assert bench.gateway.stands(A) is False


async def test_that_a_node_turned_corrupted_while_it_was_out_outlives_the_daemon(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await corrupted_while_out(bench)
        gone = bench.target().state.gone
        assert gone is not None
    async with watching(tmp_path, nodes=bench.nodes, gateway=bench.gateway, clock=bench.clock) as again:
        assert (again.target().state.lane, again.target().state.gone) == ("corrupted", gone)
        await again.rounds(6)
        assert again.routing() is Routing.OUT

        restarted(again.nodes["a"])
        await again.rounds(3)
        assert again.routing() is Routing.IN


# Another server under a known name


async def test_clean_runs_of_another_server_do_not_bring_back_the_one_that_is_out(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        raw = settings()
        raw["targets"][0]["url"] = "http://c"
        bench.wire.add("c", node(number=7))
        await bench.reload(raw)
        await bench.rounds(5)
        assert {run.quality for run in bench.runs("a")[-5:]} == {Quality.OK}
        assert bench.routing() is Routing.OUT
        assert brakes(bench) == {Brake.DRIVER}

        await release(bench.watch, Word("a", "ada", "the old one is switched off"))
        await bench.settle()
        assert bench.routing() is Routing.IN
        told = [(one.body["action"], one.body["node_endpoint"]) for one in bench.gateway.calls]
        assert told == [("isolate", A), ("release", A)]


# Who counts, and who does not


async def test_members_that_are_out_already_make_no_storm(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", "b", "c", "d", pool={"storm_share": "50%"})) as bench:
        await isolated(bench, "a")
        await bench.rounds(3)
        restarted(bench.nodes["b"], damage=BAD)
        await bench.rounds(1)
        assert (bench.routing("a"), bench.routing("b")) == (Routing.OUT, Routing.OUT)


async def test_nodes_that_go_bad_together_are_a_storm_although_the_first_has_left_already(tmp_path: Path) -> None:
    """The first is measured, confirmed and isolated before the second has its next run."""
    whole = {"storm_share": "50%", "max_isolated": "100%", "fallback": "baseline"}
    async with watching(tmp_path, settings("a", "b", "c", "d", pool=whole)) as bench:
        await isolated(bench, "a")
        restarted(bench.nodes["b"], damage=BAD)
        await bench.rounds(1)
        assert (bench.routing("a"), bench.routing("b")) == (Routing.OUT, Routing.IN)
        assert brakes(bench, "b") == {Brake.STORM}
        assert bench.memory.storms["chat"].state is not PoolState.HEALTHY


@pytest.mark.parametrize(("skipped", "expected"), [(1, Routing.OUT), (3, Routing.IN)])
async def test_a_peer_that_is_busy_for_a_moment_is_still_a_backend_and_one_that_stays_busy_is_none(
    tmp_path: Path, skipped: int, expected: Routing
) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        bench.nodes["b"].waiting = 50
        await bench.rounds(skipped, "b")
        assert [run.quality for run in bench.runs("b")[-skipped:]] == [Quality.SKIPPED] * skipped

        restarted(bench.nodes["a"], damage=BAD)
        await bench.round("a")
        assert bench.target("a").quality is Quality.DEGRADED
        assert bench.routing("a") is expected
        if expected is Routing.IN:
            assert brakes(bench) == {Brake.LAST_BACKEND}


# Nodes that answer less than others


async def test_a_node_with_a_lower_cap_than_the_baseline_is_taken_out_when_it_is_nan_from_the_handshake_on(
    tmp_path: Path,
) -> None:
    low, peer = node(number=1), node(number=2)
    low.cap = peer.cap = 4  # nobody else proves the baseline's answers under its own k
    async with watching(tmp_path, nodes={"a": low, "b": peer}) as bench:
        await bench.rounds(2)
        assert bench.target().quality is Quality.OK
        low.nan_on = lambda _: True
        await bench.rounds(1)
        assert bench.target().quality is Quality.CORRUPTED
        assert bench.routing() is Routing.OUT


async def test_breaches_of_a_node_whose_metrics_answer_every_other_run_are_confirmed(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        known: list[bool] = []

        def answers(path: str) -> Response | None:
            return Response(status_code=500) if path == "/metrics" and len(known) % 2 else None

        bench.nodes["a"].replace = answers
        bench.watch.turns = bench.watch.turns.hearing(
            lambda ran: known.append(ran.record.node is not None and ran.record.node.process is not None)
        )
        await bench.rounds(1, "a")
        assert known == [True, False]
        assert bench.routing() is Routing.OUT


# Orders under way


async def test_an_order_that_is_under_way_is_not_begun_again(tmp_path: Path) -> None:
    async with watching(tmp_path, gateway=Gateway(always=Fault.BUSY)) as bench:
        await goes_bad(bench)
        (intent,) = await bench.keeper.write(lambda store: store.open_intents())
        alive = orders_alive()
        assert len(alive) == 1
        bench.watch.outbox.start(intent)
        bench.watch.revive()
        await bench.settle()
        assert orders_alive() == alive

        bench.gateway.always, before = None, len(bench.gateway.calls)
        await bench.advance(120)
        assert len(bench.gateway.calls) == before + 1
        assert bench.target().state.ejections == 1
        assert orders_alive() == []


@contextlib.asynccontextmanager
async def two_orders_and_a_slow_store(folder: Path) -> AsyncIterator[tuple[Bench, threading.Event]]:
    """Two orders that wait for their next call; one of them begins it, and the store takes its time."""
    names = ("a", "b", "c", "d", "e")
    raw = settings(*names, pool={"max_isolated": "60%", "storm_share": "100%"}, gateway={"state_url": None})
    async with watching(folder, raw, gateway=Gateway(always=Fault.BUSY)) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        restarted(bench.nodes["b"], damage=BAD)
        await bench.rounds(1)
        assert bench.watch.outbox.open == 2
        bench.gateway.always = None
        opened, held = threading.Event(), threading.Event()

        def hold(_: object) -> None:
            held.set()
            opened.wait(20)

        slow = asyncio.create_task(bench.keeper.write(hold))
        try:
            await bench.until(held.is_set)
            assert bench.clock.wake_until(bench.clock.time + 60)
            await asyncio.sleep(0.05)  # until its call waits for the store
            yield bench, opened
        finally:
            opened.set()
            await slow


async def test_what_begins_while_orders_are_begun_again_is_neither_lost_nor_doubled(tmp_path: Path) -> None:
    async with two_orders_and_a_slow_store(tmp_path) as (bench, opened):
        before = len(bench.gateway.calls)
        renewing = asyncio.create_task(bench.watch.outbox.renew())
        await bench.until(lambda: len(orders_alive()) == 1)  # the other one has left the store alone
        assert not renewing.done()
        bench.watch.revive()  # the upkeep comes between
        assert len(orders_alive()) == 2
        opened.set()
        await renewing
        assert len(orders_alive()) == len(set(orders_alive())) <= 2

        await bench.settle()
        await bench.advance(120)
        later = [one.body["node_endpoint"] for one in bench.gateway.calls[before:]]
        assert sorted(later) == ["http://a", "http://b"]
        assert {name: bench.target(name).state.ejections for name in ("a", "b")} == {"a": 1, "b": 1}
        assert (bench.routing("a"), bench.routing("b")) == (Routing.OUT, Routing.OUT)
        assert bench.watch.outbox.open == 0


# A breach that a restart found unconfirmed


async def test_a_breach_that_is_not_confirmed_yet_is_due_at_once_after_a_restart(tmp_path: Path) -> None:
    bad = node(number=1)
    with served(node(number=0)) as baseline, served(bad) as one, served(node(number=2)) as other:
        where = site(tmp_path, baseline, {"a": one, "b": other})
        where.content["task_sets"]["letters"]["confirm_cycles"] = 20
        where.write()
        async with inside(where) as daemon:
            for name in "ab":
                await daemon.desk.run_now(name, None)
            await until(lambda: all(daemon.memory.set_state(name, "letters").at for name in "ab"))
            bad.model = TinyModel(damage=BAD)
            await daemon.desk.run_now("a", None)
            await until(lambda: daemon.memory.set_state("a", "letters").breaches)
        async with inside(where) as daemon:
            assert daemon.memory.set_state("a", "letters").quality is Quality.INCONCLUSIVE
            assert daemon.memory.set_state("b", "letters").quality is Quality.OK
            assert {entry.target: entry.overdue for entry in daemon._entries(but=())} == {"a": True, "b": False}


# The yardstick


async def test_a_drift_of_a_moment_is_checked_again_at_once_and_acting_goes_on(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        good, bench.baseline.model = bench.baseline.model, TinyModel(damage=0.6)
        turns = bench.watch.turns
        heard: list[tuple[Trigger, Quality]] = []

        def over(ran: Ran) -> None:
            heard.append((ran.record.trigger, ran.record.quality))
            bench.baseline.model = good

        bench.watch.turns = turns.hearing(over)
        await bench.rounds(1, "b")
        assert heard == [(Trigger.SCHEDULE, Quality.INVALID), (Trigger.CONFIRM, Quality.OK)]
        assert bench.memory.checks["b", "letters"].sound is True

        bench.watch.turns = turns
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1, "a")
        assert bench.routing() is Routing.OUT


async def test_a_drift_that_stays_is_checked_again_once_a_run_and_nothing_acts(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        bench.baseline.model = TinyModel(damage=0.6)
        restarted(bench.nodes["a"], damage=BAD)
        heard: list[Trigger] = []
        bench.watch.turns = bench.watch.turns.hearing(lambda ran: heard.append(ran.record.trigger))
        await bench.rounds(1, "b", "a")
        assert heard == [Trigger.SCHEDULE, Trigger.CONFIRM] * 2
        assert bench.board().baseline.sound is False
        assert bench.gateway.calls == []


def another_version(bench: Bench, length: int) -> None:
    """Start the baseline anew under another fingerprint."""
    bench.baseline.max_model_len = length
    bench.baseline.started += 99


async def test_a_baseline_accepted_before_any_run_has_met_it_bears_the_next_verdict_and_no_later_one_does(
    tmp_path: Path,
) -> None:
    async with watching(tmp_path, settings("a", "b", "c", "d")) as bench:
        await bench.rounds(2)
        another_version(bench, 4096)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.people.accept_baseline(author="ada", reason="new weights")
        await bench.advance(60)
        await bench.round("a")
        assert bench.runs("a")[-2].quality is Quality.DEGRADED
        assert bench.memory.checks["a", "letters"].sound is True
        assert bench.routing("a") is Routing.OUT

        # The word was about that one; a third baseline is unproven again.
        another_version(bench, 2048)
        restarted(bench.nodes["b"], damage=BAD)
        await bench.advance(60)
        await bench.round("b")
        assert bench.target("b").quality is Quality.DEGRADED
        assert bench.routing("b") is Routing.IN
        assert brakes(bench, "b") == {Brake.YARDSTICK, Brake.STORM}  # a has only just left
