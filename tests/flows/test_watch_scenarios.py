"""The daemon's life on a clock moved by hand: a node goes bad, is taken out, is repaired, comes back."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from standardwebhooks import Webhook

from quantwatch.flow.decision import Action, Brake, Lane, Result, Ruling
from quantwatch.flow.state import AWAY, Routing
from quantwatch.flow.verdict import Metric, Quality
from quantwatch.flows.cycle import Ran
from support.gateway import Call, Fault, Gateway
from support.watching import Bench, restarted, settings, watching

BAD = 1.0
"""A spread of noise far over every limit."""

SECRET = "a plain secret of the gateway"  # noqa: S105, of a gateway that is none


def only_decision(bench: Bench) -> str:
    (made,) = bench.decisions("a")
    return made.id


async def sound_once(bench: Bench) -> None:
    """One clean run of everything, which proves the baseline's answers and that there are other backends."""
    if not bench.runs():
        await bench.rounds(1)


async def isolated(bench: Bench, name: str = "a") -> None:
    """Let a node go bad and be taken out."""
    await sound_once(bench)
    restarted(bench.nodes[name], damage=BAD)
    await bench.rounds(1)
    await bench.advance(60)
    assert bench.routing(name) is Routing.OUT


async def test_a_healthy_node_is_measured_and_left_alone(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(3)

        assert [run.quality for run in bench.runs()] == [Quality.OK] * 6
        assert bench.path_of("quality") == ["unknown", "ok"]
        assert bench.decisions() == []
        assert bench.gateway.calls == []
        assert bench.target().quality is Quality.OK
        assert await bench.verdict() == 200


async def test_a_breach_that_is_not_confirmed_yet_changes_nothing_but_the_record(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(task_set={"confirm_cycles": 3})) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)

        assert [run.quality for run in bench.runs("a")] == [Quality.OK, Quality.DEGRADED]
        assert bench.path_of("quality") == ["unknown", "ok", "inconclusive"]
        assert bench.target().sets[0].state.breaches == 1
        assert bench.decisions() == []
        assert bench.gateway.calls == []
        assert bench.routing() is Routing.IN
        assert await bench.verdict() == 200


async def test_a_breach_is_confirmed_at_once_by_one_run_with_a_draw_of_its_own(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        heard: list[tuple[str, int, int]] = []

        def hear(ran: Ran) -> None:
            assert ran.record.report is not None
            heard.append((ran.record.trigger, ran.record.report.seed, len(bench.decisions())))

        bench.watch.turns = bench.watch.turns.hearing(hear)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.round("a")

        (first, seed, before), (second, other, still) = heard
        assert (first, second) == ("schedule", "confirm")
        assert seed != other
        assert (before, still) == (0, 0)
        assert len(bench.decisions()) == 1


async def test_a_node_goes_bad_is_taken_out_is_repaired_and_comes_back(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET, encoding="utf-8")
    signed = {"signing_secret": f"file:{tmp_path / 'secret'}"}
    raw = settings(pool={"minimum_hold": "35m", "hold_jitter": 0}, gateway=signed, task_set={"confirm_cycles": 3})

    async with watching(tmp_path, raw) as bench:
        gateway = bench.gateway
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert gateway.calls == []

        # The third breach in a row confirms it.
        await bench.rounds(1)
        assert gateway.changes == [("http://a", True)]
        assert bench.path_of("routing") == ["in", "leaving", "out"]
        assert bench.path_of("quality") == ["unknown", "ok", "inconclusive", "degraded"]
        assert await bench.verdict() == 503
        assert await bench.verdict("b") == 200
        isolation = bench.decisions()[0]
        assert_isolation_is_recorded(bench, isolation.id)

        # Repaired: another process, with sound numbers. Two clean runs are enough, the hold is not over.
        restarted(bench.nodes["a"])
        await bench.rounds(3)
        assert bench.target().sets[0].state.clean == 3
        assert bench.routing() is Routing.OUT
        assert len(gateway.calls) == 1
        assert bench.target().quality is Quality.OK
        assert await bench.verdict() == 503

        await bench.rounds(1)
        assert gateway.changes == [("http://a", True), ("http://a", False)]
        assert [call.path for call in gateway.calls] == ["/act", "/return"]
        assert all(signed_well(call) for call in gateway.calls)
        assert bench.path_of("routing") == ["in", "leaving", "out", "returning", "in"]
        assert await bench.verdict() == 200
        assert_release_is_recorded(bench, isolation.id)
        state = bench.target().state
        assert (state.owner, state.gone, state.lane, state.ejections) == (None, None, None, 1)


def signed_well(call: Call) -> bool:
    """Whether the signature fits; the package's own check would also hold the time against today's."""
    at = datetime.fromtimestamp(int(call.headers["webhook-timestamp"]), UTC)
    return call.headers["webhook-signature"] == Webhook(SECRET.encode()).sign(call.id, at, call.raw.decode())


def assert_isolation_is_recorded(bench: Bench, id_: str) -> None:
    """Decision, evidence, intent, call and outcome, and the run they rest on."""
    (made,) = bench.decisions()
    assert (made.action, made.lane, made.ruling, made.objections) == (Action.ISOLATE, Lane.LIMITS, Ruling.ACT, ())
    kl = next(one for one in made.findings if one["metric"] == Metric.KL_MEAN)
    assert kl["value"] > kl["critical"] == 0.05
    assert made.run == bench.runs("a")[-1].id
    assert made.intent is not None
    assert made.intent.attempts == 1
    assert made.intent.outcome is not None
    assert made.intent.outcome.result is Result.VERIFIED
    (call,) = bench.gateway.calls
    body = json.loads(call.raw)
    assert call.id == body["decision_id"] == made.id == id_ == bench.target().state.owner
    assert (body["action"], body["node_endpoint"], body["pool"]) == ("isolate", "http://a", "chat")
    assert (body["run_id"], body["verdict"], body["reason"]) == (made.run, "degraded", made.reason)
    assert [one["metric"] for one in body["evidence"]] == [one["metric"] for one in made.findings]
    with bench.archive() as archive:
        assert [one.id for one in archive.decisions_on(made.run or "")] == [id_]
        assert {row["metric"] for row in archive.numbers(made.run or "")} >= {"kl_mean", "top1_agreement"}
        (change,) = archive.changes(made.run or "")
        assert (change.old, change.new) == ("inconclusive", "degraded")
    assert [one.decision for one in made.transitions] == [id_, id_]


def assert_release_is_recorded(bench: Bench, isolation: str) -> None:
    first, made = bench.decisions()
    assert first.id == isolation != made.id
    assert (made.action, made.lane, made.ruling) == (Action.RELEASE, None, Ruling.ACT)
    assert "clean runs in a row" in made.reason
    assert made.intent is not None
    assert made.intent.outcome is not None
    assert made.intent.outcome.result is Result.VERIFIED
    assert [(one.old, one.new) for one in made.transitions] == [("out", "returning"), ("returning", "in")]
    assert all(run.document["report"]["kl_mean"] is not None for run in bench.runs("a"))


async def test_a_node_that_still_breaches_stays_out_and_is_not_ordered_out_again(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        await bench.rounds(5)

        assert bench.gateway.changes == [("http://a", True)]
        assert len(bench.decisions()) == 1


async def test_every_isolation_makes_the_next_hold_longer(tmp_path: Path) -> None:
    raw = settings(pool={"minimum_hold": "25m", "actions_per_hour": 100})
    async with watching(tmp_path, raw) as bench:
        rounds_out = []
        for _ in range(3):
            await isolated(bench)
            restarted(bench.nodes["a"])
            count = 0
            while bench.routing() is not Routing.IN:
                await bench.rounds(1)
                count += 1
            rounds_out.append(count)

        assert rounds_out == [3, 5, 8]
        assert bench.target().state.ejections == 3


async def test_a_node_with_nan_is_taken_out_after_one_run(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(task_set={"confirm_cycles": 5})) as bench:
        await bench.rounds(1)
        bench.nodes["a"].nan_on = lambda ids: len(ids) > 10
        await bench.rounds(1)

        assert [run.quality for run in bench.runs("a")] == [Quality.OK, Quality.CORRUPTED]
        assert bench.routing() is Routing.OUT
        assert bench.decisions()[0].lane is Lane.CORRUPTED
        assert bench.gateway.calls[0].body["verdict"] == "corrupted"


async def test_a_node_with_nan_comes_back_only_as_another_process(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.nodes["a"].nan_on = lambda ids: len(ids) > 10
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT

        # The same process seems well again.
        bench.nodes["a"].nan_on = lambda _: False
        await bench.rounds(6)
        assert bench.target().quality is Quality.OK
        assert bench.routing() is Routing.OUT

        restarted(bench.nodes["a"])
        await bench.rounds(2)
        assert bench.routing() is Routing.IN
        assert bench.gateway.changes == [("http://a", True), ("http://a", False)]


async def test_a_process_that_was_broken_from_its_first_answer_on_is_remembered_as_the_broken_one(
    tmp_path: Path,
) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"])  # the process that was well is gone before anything was seen of the new one
        bench.nodes["a"].nan_on = lambda _: True
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT

        bench.nodes["a"].nan_on = lambda _: False
        await bench.rounds(6)
        assert bench.routing() is Routing.OUT

        restarted(bench.nodes["a"])
        await bench.rounds(2)
        assert bench.routing() is Routing.IN


async def test_a_gateway_that_is_down_for_an_hour_is_called_again_with_one_id(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.gateway.down = True
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(6)

        id_ = only_decision(bench)
        intent = bench.decisions()[0].intent
        assert intent is not None
        assert intent.outcome is None
        assert 20 < intent.attempts < 120
        assert bench.routing() is Routing.LEAVING
        assert bench.board().own.open_intents == 1
        assert bench.board().own.gateway_trouble is not None
        assert await bench.series("gateway_up") == 0
        assert await bench.series("gateway_request_failures_total", reason="unavailable") == intent.attempts

        bench.gateway.down = False
        await bench.advance(120)
        assert bench.gateway.ids == {id_}
        assert len(bench.gateway.calls) == 1
        assert bench.gateway.changes == [("http://a", True)]
        assert bench.routing() is Routing.OUT
        assert bench.board().own.open_intents == 0
        assert await bench.series("gateway_up") == 1
        assert only_decision(bench) == id_


async def test_an_order_is_withdrawn_when_the_node_is_well_before_the_gateway(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.gateway.down = True
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(2)
        restarted(bench.nodes["a"])
        await bench.rounds(1)
        await bench.advance(120)
        bench.gateway.down = False
        await bench.rounds(2)

        (made,) = bench.decisions()
        assert made.intent is not None
        assert made.intent.outcome is not None
        assert made.intent.outcome.result is Result.WITHDRAWN
        assert bench.gateway.calls == []
        assert bench.path_of("routing") == ["in", "leaving", "in"]
        assert await bench.verdict() == 200


async def test_an_order_that_is_given_up_is_followed_by_another_decision(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(gateway={"give_up_after": "5m"})) as bench:
        await bench.rounds(1)
        bench.gateway.down = True
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        await bench.advance(400)
        (given_up,) = bench.decisions()
        assert given_up.intent is not None
        assert given_up.intent.outcome is not None
        assert given_up.intent.outcome.result is Result.FAILED
        assert bench.routing() is Routing.IN
        assert await bench.series("orders_settled_total", result="failed") == 1

        bench.gateway.down = False
        await bench.rounds(1)
        assert bench.gateway.ids == {bench.decisions()[1].id}
        assert bench.routing() is Routing.OUT


async def test_a_yes_that_does_nothing_is_never_taken_for_an_isolation(tmp_path: Path) -> None:
    raw = settings(pool={"actions_per_hour": 2})
    async with watching(tmp_path, raw, gateway=Gateway(always=Fault.YES_AND_NOTHING)) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        for _ in range(4):
            await bench.rounds(1)
            await bench.advance(120)
            assert bench.routing() is not Routing.OUT
            assert await bench.verdict() == 200

        tried, again, refused = bench.decisions()
        for one in (tried, again):
            assert one.intent is not None
            assert one.intent.outcome is not None
            assert one.intent.outcome.result is Result.CONTRADICTED
        assert tried.id != again.id
        assert refused.ruling is Ruling.SUPPRESSED
        assert [one["brake"] for one in refused.objections] == [Brake.RATE]
        assert bench.gateway.ids == {tried.id, again.id}
        assert len(bench.gateway.calls) == 2
        assert await bench.series("orders_settled_total", result="contradicted") == 2
        assert bench.target().state.ejections == 0
        assert "out" not in bench.path_of("routing")


async def test_a_gateway_that_does_nothing_again_and_again_is_left_to_a_person(tmp_path: Path) -> None:
    raw = settings(pool={"actions_per_hour": 100})
    async with watching(tmp_path, raw, gateway=Gateway(always=Fault.YES_AND_NOTHING)) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        for _ in range(8):
            await bench.rounds(1)
            await bench.advance(120)

        assert len(bench.gateway.ids) == 3
        (pause,) = bench.board().pauses
        assert (pause.scope, pause.author) == ("target:a", "quantwatch")
        assert [one["brake"] for one in bench.decisions()[-1].objections] == [Brake.PAUSED]


async def test_a_yes_that_cannot_be_read_back_counts_as_accepted(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(gateway={"state_url": None})) as bench:
        await isolated(bench)

        (made,) = bench.decisions()
        assert made.intent is not None
        assert made.intent.outcome is not None
        assert made.intent.outcome.result is Result.ACCEPTED
        assert bench.gateway.looks == 0


async def test_a_reply_that_got_lost_is_found_done_by_reading_back(tmp_path: Path) -> None:
    async with watching(tmp_path, gateway=Gateway(faults=[Fault.CUT_DONE])) as bench:
        await isolated(bench)

        assert bench.gateway.changes == [("http://a", True)]
        assert len(bench.gateway.calls) == 1


async def test_where_it_is_not_known_how_the_gateway_stands_a_bad_node_is_ordered_out_again(tmp_path: Path) -> None:
    lost = settings(gateway={"state_url": None, "give_up_after": "1m"})
    async with watching(tmp_path, lost, gateway=Gateway(always=Fault.HANGS_DONE)) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        await bench.advance(120)
        assert bench.routing() is Routing.CONTRADICTED
        assert await bench.verdict() == 200  # in doubt there is no word against a node

        bench.gateway.always = None
        bench.gateway.faults.clear()
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT
        assert len(bench.gateway.ids) == 2


async def test_where_it_is_not_known_how_the_gateway_stands_a_node_that_is_well_is_ordered_back(tmp_path: Path) -> None:
    lost = settings(gateway={"state_url": None, "give_up_after": "1m"})
    async with watching(tmp_path, lost, gateway=Gateway(always=Fault.HANGS_DONE)) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        await bench.advance(120)
        bench.gateway.always = None
        bench.gateway.faults.clear()
        restarted(bench.nodes["a"])
        await bench.rounds(3)

        assert bench.path_of("routing") == ["in", "leaving", "contradicted", "returning", "in"]
        assert bench.gateway.changes == [("http://a", True), ("http://a", False)]


async def test_an_isolation_outlives_the_daemon(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        gateway, nodes, stored = bench.gateway, bench.nodes, bench.target().sets[0].numbers

    async with watching(tmp_path, gateway=gateway, nodes=nodes, clock=bench.clock) as again:
        assert await again.verdict() == 503
        assert again.target().sets[0].numbers["kl_mean"] == stored["kl_mean"]
        restarted(nodes["a"])
        await again.rounds(2)
        assert gateway.changes == [("http://a", True), ("http://a", False)]


async def test_an_order_under_way_is_taken_up_by_the_next_life_under_its_id(tmp_path: Path) -> None:
    async with watching(tmp_path, gateway=Gateway(down=True)) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        id_, gateway, nodes = only_decision(bench), bench.gateway, bench.nodes

    gateway.down = False
    async with watching(tmp_path, gateway=gateway, nodes=nodes, clock=bench.clock) as again:
        await again.settle()
        assert gateway.ids == {id_}
        assert again.routing() is Routing.OUT


@pytest.mark.parametrize("seed", range(4))
async def test_no_sequence_of_troubles_takes_out_more_than_is_allowed_or_without_a_sound_baseline(
    tmp_path: Path, seed: int
) -> None:
    chance = Random(seed)
    async with watching(tmp_path, settings("a", "b", "c", pool={"max_isolated": "34%", "minimum_hold": "0s"})) as bench:
        await bench.rounds(1)
        for _ in range(12):
            trouble = await one_step(bench, chance)
            before = len(bench.gateway.changes)
            await bench.rounds(1)
            await bench.advance(60)
            new = bench.gateway.changes[before:]
            out = [name for name, away in bench.gateway.isolated.items() if away]
            assert len(out) <= 1
            if trouble:
                assert [name for name, away in new if away] == []
            assert {f"http://{one.state.target}" for one in bench.board().targets if one.state.routing in AWAY} == set(
                out
            )
        assert_the_record_is_whole(bench)


async def one_step(bench: Bench, chance: Random) -> bool:
    """Change the condition of one node, or of the baseline; whether the baseline is in trouble now."""
    one = bench.nodes[chance.choice("abc")]
    match chance.choice(["ok", "ok", "damaged", "damaged", "nan", "down", "busy", "baseline", "baseline"]):
        case "ok":
            restarted(one)
            one.nan_on, one.waiting = (lambda _: False), 0
            bench.wire.down -= {"a", "b", "c"}
        case "damaged":
            restarted(one, damage=chance.uniform(0.5, 2.0))
        case "nan":
            one.nan_on = lambda ids: len(ids) > 10
        case "down":
            bench.wire.down.add(chance.choice("abc"))
        case "busy":
            one.waiting = 9
        case "baseline":
            bench.baseline.model.seed = chance.choice([7, 11, 13])
            bench.wire.down -= {"baseline"}
            bench.wire.down |= chance.choice([set(), {"baseline"}])
    return bench.baseline.model.seed != 7 or "baseline" in bench.wire.down


def assert_the_record_is_whole(bench: Bench) -> None:
    """Every call rests on a decision that was written before it, and every change follows on the one before."""
    made = {one.id: one for one in bench.decisions()}
    for call in bench.gateway.calls:
        assert made[call.id].ruling is Ruling.ACT
    for one in made.values():
        assert (one.intent is not None) == (one.ruling is Ruling.ACT)
        assert one.intent is None or one.intent.outcome is not None
    for name in "abc":
        bench.path_of("routing", name)
        bench.path_of("quality", name)
        runs = bench.runs(name)
        assert all(after.started - run.started > timedelta() for run, after in pairwise(runs))
