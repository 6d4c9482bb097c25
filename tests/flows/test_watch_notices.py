"""What people are told of a whole watch: each change once, its end too, and nothing twice over a restart."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quantwatch.flow.run import Trigger
from quantwatch.flow.state import Routing
from quantwatch.flows.outbox import FAILURES
from support.gateway import Fault, Gateway
from support.receiver import Receiver
from support.watching import EVERY, Bench, HandClock, restarted, settings, watching

BAD = 1.0
HOOK = {"name": "ops", "kind": "webhook", "url": "http://hook/in", "min_severity": "info"}


def told(**given: Any) -> dict[str, Any]:
    """A configuration with one channel that hears everything."""
    return settings(notifications=[HOOK], **given)


def hear(bench: Bench) -> Receiver:
    """Put a receiver behind the channel; the watch has begun, and has told nothing yet."""
    receiver = Receiver()
    bench.wire.put("hook", receiver.transport())
    return receiver


def heads(receiver: Receiver) -> list[tuple[str, str, bool]]:
    """Topic, state and whether it stands of everything that was told."""
    return [(one["topic"], one["state"], one["standing"]) for one in receiver.bodies]


async def test_a_breach_its_isolation_and_the_way_back_are_told_once_each(tmp_path: Path) -> None:
    async with watching(tmp_path, told()) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        assert heads(receiver) == []
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        await bench.mend()
        assert heads(receiver) == [("quality", "degraded", True), ("routing", "out", True)]
        await bench.rounds(2)
        await bench.mend()
        assert len(heads(receiver)) == 2

        restarted(bench.nodes["a"])
        await bench.rounds(3)
        await bench.mend()
        assert bench.routing() is Routing.IN
        assert heads(receiver)[2:] == [("quality", "ok", False), ("routing", "in", False)]
        assert await bench.series("notifications_total", channel="ops") == 4
        assert await bench.series("notification_failures_total", channel="ops") == 0


async def test_what_is_told_carries_the_evidence(tmp_path: Path) -> None:
    async with watching(tmp_path, told()) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        await bench.mend()
        decided = bench.decisions()[-1]
        breach, out = receiver.bodies
        assert (breach["target"], breach["pool"], breach["task_set"]) == ("a", "chat", "letters")
        assert breach["run_id"] == decided.run == out["run_id"]
        quick, slow = "it is out of traffic", "its isolation is under way"  # as the gateway was asked before or after
        assert breach["done"] in {f"{done}, decision {decided.id}" for done in (quick, slow)}
        (kl,) = [one for one in breach["evidence"] if one["metric"] == "kl_mean"]
        assert kl["low"] < kl["value"] < kl["high"]
        assert kl["low"] > kl["critical"] > kl["warn"] > 0
        assert out["decision_id"] == decided.id
        assert "its state says isolated" in out["done"]
        assert out["evidence"] == breach["evidence"]


async def test_a_restart_tells_nothing_again_and_then_the_end(tmp_path: Path) -> None:
    clock, gateway = HandClock(), Gateway()
    async with watching(tmp_path, told(), clock=clock, gateway=gateway) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        await bench.mend()
        assert len(receiver.taken) == 2
        nodes = bench.nodes
    async with watching(tmp_path, told(), clock=clock, gateway=gateway, nodes=nodes) as bench:
        again = hear(bench)
        await bench.mend()
        await bench.rounds(1)
        await bench.mend()
        assert heads(again) == []
        restarted(nodes["a"])
        await bench.rounds(3)
        await bench.mend()
        assert heads(again) == [("quality", "ok", False), ("routing", "in", False)]
        assert again.bodies[0]["since"] == receiver.bodies[0]["since"]


async def test_what_could_not_be_told_before_a_restart_is_told_after_it_under_the_same_id(tmp_path: Path) -> None:
    clock, gateway = HandClock(), Gateway()
    async with watching(tmp_path, told(), clock=clock, gateway=gateway) as bench:
        bench.wire.down.add("hook")
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.round()
        await bench.mend()
        waiting = [one.id for one in bench.watch.notices.post.waiting["ops"]]
        assert len(waiting) == 2
        assert await bench.series("notifications_waiting", channel="ops") == 2
        nodes = bench.nodes
    async with watching(tmp_path, told(), clock=clock, gateway=gateway, nodes=nodes) as bench:
        receiver = hear(bench)
        await bench.advance(120)
        assert [one["id"] for one in receiver.bodies] == waiting
        assert bench.watch.notices.waiting == {"ops": 0}


async def test_a_suppressed_isolation_is_told_with_its_objections_until_it_is_over(tmp_path: Path) -> None:
    raw = told()
    raw["targets"], raw["pools"]["chat"]["max_isolated"] = raw["targets"][:1], "50%"
    async with watching(tmp_path, raw) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(3)
        breach, held = receiver.bodies
        assert heads(receiver) == [("quality", "degraded", True), ("held_back", "last_backend", True)]
        assert "no sound backend left" in held["reason"]
        assert breach["done"].startswith("not isolated: ")
        assert held["decision_id"] == bench.decisions()[-1].id
        restarted(bench.nodes["a"])
        await bench.rounds(1)
        assert heads(receiver)[2:] == [("quality", "ok", False), ("held_back", "", False)]


async def test_a_rehearsal_says_what_it_would_have_done(tmp_path: Path) -> None:
    async with watching(tmp_path, told(pool={"mode": "dry_run"})) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert heads(receiver) == [("quality", "degraded", True), ("would_have", "dry_run", True)]
        assert bench.gateway.calls == []


async def test_a_pool_that_is_only_observed_is_told_of_its_breach(tmp_path: Path) -> None:
    async with watching(tmp_path, told(pool={"mode": "observe"})) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        (breach,) = receiver.bodies
        assert breach["done"] == "nothing: its pool is only observed"


async def test_refused_orders_and_the_pause_after_them_are_told(tmp_path: Path) -> None:
    gateway = Gateway(always=Fault.REFUSED)
    async with watching(tmp_path, told(), gateway=gateway) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        for _ in range(FAILURES):
            await bench.rounds(1)
            await bench.mend()
        topics = heads(receiver)
        assert topics.count(("order", "refused", True)) == 1
        assert topics.count(("paused", "paused", True)) == 1
        paused = next(one for one in receiver.bodies if one["topic"] == "paused")
        assert "3 orders in a row came to nothing" in paused["reason"]
        assert paused["target"] == "a"
        await bench.advance(7 * 3600)
        await bench.mend()
        assert ("paused", "over", False) in heads(receiver)


async def test_a_contradicted_order_is_told_and_so_is_its_end(tmp_path: Path) -> None:
    gateway = Gateway(faults=[Fault.YES_AND_NOTHING])
    async with watching(tmp_path, told(), gateway=gateway) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.round()
        await bench.advance(300)
        await bench.mend()
        assert ("order", "contradicted", True) in heads(receiver)
        assert ("contradicted", "contradicted", True) in heads(receiver)
        await bench.rounds(1)
        await bench.mend()
        assert bench.routing() is Routing.OUT
        over = {topic for topic, _, standing in heads(receiver) if not standing}
        assert over == {"contradicted", "order"}
        assert ("routing", "out", True) in heads(receiver)


async def test_a_storm_is_told_once_and_so_is_its_end(tmp_path: Path) -> None:
    raw = told(pool={"storm_cooldown": "30m"}, task_set={"confirm_cycles": 3})
    raw["targets"].append(raw["targets"][0] | {"name": "c", "url": "http://c"})
    async with watching(tmp_path, raw) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        for name in ("a", "b"):
            restarted(bench.nodes[name], damage=BAD)
        await bench.rounds(2)
        storms = [one for one in receiver.bodies if one["topic"] == "storm"]
        assert [(one["state"], one["severity"]) for one in storms] == [("fleet_degraded", "critical")]
        assert storms[0]["reason"] == "2 of 3 members breach at once (a, b), and the baseline is proven sound"
        restarted(bench.nodes["b"])
        await bench.rounds(2)
        assert [one["standing"] for one in receiver.bodies if one["topic"] == "storm"] == [True]
        await bench.rounds(2)
        assert [one["standing"] for one in receiver.bodies if one["topic"] == "storm"] == [True, False]


async def test_a_baseline_that_moved_is_told_and_not_in_an_expected_rollout(tmp_path: Path) -> None:
    async with watching(tmp_path, told()) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        bench.baseline.model.damage = BAD
        await bench.people.pause("rollout:all", reason="weights of May", author="ada", seconds=EVERY * 2.5)
        await bench.rounds(2)
        assert [one for one in receiver.bodies if one["topic"].startswith("baseline")] == []
        await bench.advance(EVERY)
        await bench.rounds(1)
        (moved,) = [one for one in receiver.bodies if one["topic"] == "baseline_moved"]
        assert (moved["target"], moved["standing"]) == (None, True)
        assert "no longer gives the answers" in moved["reason"]


async def test_a_target_that_leaves_the_configuration_ends_what_was_told_of_it(tmp_path: Path) -> None:
    async with watching(tmp_path, told(pool={"mode": "observe"})) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        raw = told(pool={"mode": "observe"})
        raw["targets"] = raw["targets"][1:]
        await bench.reload(raw)
        assert heads(receiver) == [("quality", "degraded", True), ("quality", "gone", False)]


async def test_the_first_channel_hears_of_what_stands_and_one_that_left_of_nothing_more(tmp_path: Path) -> None:
    async with watching(tmp_path, settings()) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        await bench.reload(told())
        assert set(heads(receiver)) == {("quality", "degraded", True), ("routing", "out", True)}
        await bench.reload(settings())
        restarted(bench.nodes["a"])
        await bench.rounds(3)
        await bench.mend()
        assert len(receiver.posts) == 2


@pytest.mark.parametrize("trouble", ["down", "refuses", "hangs", "broken"])
async def test_a_channel_in_trouble_holds_nothing_up(tmp_path: Path, trouble: str) -> None:
    raw = settings(notifications=[HOOK | {"timeout": "100ms"}])
    async with watching(tmp_path, raw) as bench:
        receiver = hear(bench)
        if trouble == "down":
            bench.wire.down.add("hook")
        if trouble == "hangs":
            bench.wire.held["hook"] = asyncio.Event()
        receiver.always = 400 if trouble == "refuses" else 503
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT
        restarted(bench.nodes["a"])
        await bench.rounds(3)
        assert bench.routing() is Routing.IN
        assert receiver.taken == []


async def test_a_locked_store_puts_notices_off_and_loses_none(tmp_path: Path) -> None:
    async with watching(tmp_path, told(pool={"mode": "observe"})) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        other = bench.lock()
        bench.watch.due("a", "letters", Trigger.MANUAL)
        await bench.until(lambda: bench.memory.set_state("a", "letters").breaches >= 2)
        await bench.until(lambda: bench.keeper.trouble is not None)
        assert heads(receiver) == []
        other.close()
        await bench.settle()
        await bench.mend()
        assert heads(receiver) == [("quality", "degraded", True)]


async def test_what_stands_is_repeated_to_an_alertmanager_alone(tmp_path: Path) -> None:
    raw = told()
    raw["notifications"].append({"name": "am", "kind": "alertmanager", "url": "http://am/prefix"})
    async with watching(tmp_path, raw) as bench:
        receiver, alerts = hear(bench), Receiver()
        bench.wire.put("am", alerts.transport())
        await bench.rounds(1)
        await bench.watch.notices.repeat()
        assert alerts.posts == []
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        await bench.mend()
        before = len(alerts.posts)
        assert {one.path for one in alerts.posts} == {"/prefix/api/v2/alerts"}
        await bench.advance(60)
        await bench.watch.notices.repeat()
        (repeated,) = [one.body for one in alerts.posts[before:]]
        assert {one["labels"]["alertname"] for one in repeated} == {"QuantwatchQuality", "QuantwatchRouting"}
        first = next(one for one in alerts.bodies[0] if one["labels"]["alertname"] == "QuantwatchQuality")
        again = next(one for one in repeated if one["labels"] == first["labels"])
        assert again["startsAt"] == first["startsAt"]
        assert again["endsAt"] > first["endsAt"]
        assert len(receiver.posts) == 2


async def test_a_baseline_that_nothing_has_proven_is_told_once_everybody_was_measured(tmp_path: Path) -> None:
    async with watching(tmp_path, told()) as bench:
        receiver = hear(bench)
        for name in ("a", "b"):
            restarted(bench.nodes[name], damage=BAD)
        await bench.round("a")
        assert [one for one in heads(receiver) if one[0] == "baseline_unproven"] == []
        await bench.round("b")
        assert [one for one in heads(receiver) if one[0] == "baseline_unproven"] == [
            ("baseline_unproven", "unproven", True)
        ]
        restarted(bench.nodes["b"])
        await bench.rounds(1)
        assert ("baseline_unproven", "unproven", False) in heads(receiver)


async def test_a_fault_of_ours_in_telling_ends_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with watching(tmp_path, told()) as bench:
        hear(bench)
        bench.memory.ended["a"] = "no order"  # type: ignore[assignment]  # as a fault of ours would leave it
        await bench.rounds(2)
        await bench.mend()
        assert len(bench.runs("a")) == 2
        assert not bench.watch.tasks["a"].done()
    assert "telling people broke off by a fault in quantwatch" in caplog.text


async def test_no_log_line_and_no_series_holds_a_secret_of_a_channel(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, key = "/services/T1/B2/abcdefghijkl", "sk-very-secret-key"
    (tmp_path / "url").write_text(f"http://slack{place}")
    (tmp_path / "key").write_text(key)
    slack = {"name": "team", "kind": "slack", "url": f"file:{tmp_path / 'url'}"}
    raw = settings(notifications=[slack, HOOK | {"api_key": f"file:{tmp_path / 'key'}"}])
    caplog.set_level("DEBUG")
    async with watching(tmp_path, raw) as bench:
        receiver = hear(bench)
        team = Receiver(statuses=[503, 403, 307, 410], said=f"no app at {place}")
        bench.wire.put("slack", team.transport())
        receiver.said, receiver.statuses = f"bad key {key}", [503, 401, 307, 403]
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(2)
        await bench.mend()
        await bench.advance(60)
        assert {one.path for one in team.posts} == {place}
        assert {one.headers["authorization"] for one in receiver.posts} == {f"Bearer {key}"}
        shown = (await bench.get("/metrics")).text + (await bench.get("/")).text
    assert "notices were not told" in caplog.text
    ours = "\n".join(str(one.msg) for one in caplog.records if one.name.startswith("quantwatch"))
    for word in ("abcdefghijkl", key):
        assert word not in ours + shown
