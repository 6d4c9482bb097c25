"""Coming back, from the run to the gateway: hold and jitter, the stricter limit, probation, and forgiveness."""

from pathlib import Path
from typing import Any

from quantwatch.flow.decision import Action
from quantwatch.flow.state import Axis, Routing
from quantwatch.flow.verdict import Quality
from support.tiny_node import TinyModel
from support.watching import EVERY, Bench, restarted, settings, watching

BAD, SLIGHT = 1.0, 0.02
HOUR = 3600.0


async def taken_out(bench: Bench) -> None:
    """Let a go bad, and be isolated for it."""
    if not bench.runs():
        await bench.rounds(1)
    restarted(bench.nodes["a"], damage=BAD)
    await bench.rounds(1)
    await bench.advance(60)
    assert bench.routing() is Routing.OUT


async def back(bench: Bench, **model: Any) -> None:
    """Mend a, and let it return."""
    restarted(bench.nodes["a"], **model)
    while bench.routing() is Routing.OUT:
        await bench.rounds(1)
        await bench.advance(60)
    assert bench.routing() is Routing.IN


def at_once(**pool: Any) -> dict[str, Any]:
    """A pool in which nothing but what is asked for keeps a node out."""
    return settings(pool={"minimum_hold": "0s", "actions_per_hour": 100, **pool})


async def test_a_hold_is_longer_by_its_jitter_and_shown_and_nothing_returns_before_it_is_over(tmp_path: Path) -> None:
    raw = settings(pool={"minimum_hold": "50m", "hold_jitter": "100%", "release_after": 1})
    async with watching(tmp_path, raw) as bench:
        await taken_out(bench)
        state, ends = bench.target().state, bench.target().hold_until
        assert state.since is not None
        assert ends is not None
        held = (ends - state.since).total_seconds()
        assert 50 * 60 < held < 100 * 60
        assert await bench.series("hold_until_timestamp_seconds", target="a") == ends.timestamp()

        await back(bench)
        released = bench.decisions("a")[-1]
        assert released.action is Action.RELEASE
        assert ends <= released.at < ends.replace(microsecond=0).astimezone() + (ends - state.since)
        assert bench.target().hold_until is None


async def test_the_second_isolation_holds_for_longer_than_the_first(tmp_path: Path) -> None:
    raw = settings(pool={"minimum_hold": "15m", "hold_jitter": "100%", "release_after": 1, "actions_per_hour": 100})
    held = []
    async with watching(tmp_path, raw) as bench:
        for _ in range(2):
            await taken_out(bench)
            state, ends = bench.target().state, bench.target().hold_until
            assert state.since is not None
            assert ends is not None
            held.append((ends - state.since).total_seconds())
            await back(bench)
    assert 15 * 60 <= held[0] < 30 * 60 <= held[1]


async def test_a_node_that_is_only_just_within_its_limits_stays_in_traffic_and_does_not_come_back(
    tmp_path: Path,
) -> None:
    """The same numbers that isolate nobody release nobody: taking out and coming back have two limits."""
    async with watching(tmp_path, at_once(release_margin="100%")) as bench:
        bench.nodes["b"].model = TinyModel(damage=SLIGHT)
        await taken_out(bench)
        restarted(bench.nodes["a"], damage=SLIGHT)
        await bench.rounds(5)
        for name in ("a", "b"):
            (one,) = bench.target(name).sets
            assert (one.state.quality, one.state.clean) == (Quality.OK, 0)
            assert "so it does not count towards a return" in one.state.reason
        assert (bench.routing("a"), bench.routing("b")) == (Routing.OUT, Routing.IN)

        await bench.reload(at_once(release_margin="20%"))
        await bench.rounds(2)
        assert bench.routing("a") is Routing.IN


async def test_who_came_back_is_on_probation_also_in_the_next_life_of_the_daemon(tmp_path: Path) -> None:
    raw = at_once(probation="90m")
    async with watching(tmp_path, raw) as bench:
        assert await bench.series("target_probation") == 0
        await taken_out(bench)
        await back(bench)
        ends = bench.target().probation_until
        assert ends is not None
        assert await bench.series("target_probation", target="a") == 1
        assert await bench.series("target_probation", target="b") == 0
        assert bench.decisions("a")[-1].reason.endswith("; on probation for 90 min")
        nodes = bench.nodes

    async with watching(tmp_path, raw, nodes=nodes, clock=bench.clock) as again:
        assert again.target().probation_until == ends
        await again.advance(90 * 60)
        assert again.target().probation_until is None
        assert await again.series("target_probation", target="a") == 0


async def test_on_probation_an_isolation_needs_the_same_proof_as_ever(tmp_path: Path) -> None:
    async with watching(tmp_path, at_once(probation="9h")) as bench:
        await taken_out(bench)
        await back(bench)
        calls = len(bench.gateway.changes)
        restarted(bench.nodes["a"], damage=BAD)

        def heal(_: object) -> None:
            bench.nodes["a"].model = TinyModel()

        bench.watch.turns = bench.watch.turns.hearing(heal)
        await bench.rounds(1, "a")  # one breach, which the confirming run does not show
        assert bench.target().quality is Quality.INCONCLUSIVE
        assert len(bench.gateway.changes) == calls


async def test_isolations_are_forgiven_one_for_each_clean_time_and_that_is_on_record(tmp_path: Path) -> None:
    raw = at_once(forgive_after="2h", probation="1h")
    async with watching(tmp_path, raw) as bench:
        for _ in range(2):
            await taken_out(bench)
            await back(bench)
        assert bench.target().state.ejections == 2
        await bench.rounds(8)
        began = bench.target().state.well_since
        assert began is not None
        assert bench.target().state.ejections == 2
        nodes = bench.nodes

    async with watching(tmp_path, raw, nodes=nodes, clock=bench.clock) as again:
        assert again.target().state.well_since == began
        await again.rounds(5)
        assert again.target().state.ejections == 1
        assert await again.series("ejections", target="a") == 1
        await again.rounds(26)
        assert again.target().state.ejections == 0
        forgiven = [one for one in again.timeline() if one.axis is Axis.EJECTIONS]
        assert [(one.old, one.new) for one in forgiven] == [("2", "1"), ("1", "0")]
        assert forgiven[0].reason.startswith(
            "one isolation is forgiven: in traffic with clean results since 2026-01-01"
        )
        assert (again.target().state.well_since, again.path_of("routing")[-1]) == (None, "in")


async def test_a_time_in_which_nothing_is_known_forgives_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path, at_once(forgive_after="1h", probation="0s")) as bench:
        await taken_out(bench)
        await back(bench)
        await bench.rounds(4)
        bench.wire.down.add("a")
        await bench.rounds(1)
        assert bench.target().state.well_since is None
        bench.wire.down.clear()
        await bench.rounds(6)
        assert bench.target().state.ejections == 1
        await bench.rounds(1)
        assert bench.target().state.ejections == 0


async def test_what_cannot_be_written_down_is_not_forgiven(tmp_path: Path) -> None:
    async with watching(tmp_path, at_once(forgive_after="1h", probation="0s")) as bench:
        await taken_out(bench)
        await back(bench)
        await bench.rounds(4)
        (tmp_path / "q.db").rename(tmp_path / "elsewhere.db")
        await bench.rounds(4)
        assert bench.target().state.ejections == 1
        (tmp_path / "elsewhere.db").rename(tmp_path / "q.db")
        await bench.mend()
        await bench.rounds(1)
        assert bench.target().state.ejections == 0


async def test_forgiveness_can_be_switched_off(tmp_path: Path) -> None:
    async with watching(tmp_path, at_once(forgive_after="0s")) as bench:
        await taken_out(bench)
        await back(bench)
        await bench.rounds(int(30 * HOUR / EVERY / 60) + 3, every=HOUR / 4)
        assert (bench.target().state.ejections, bench.target().state.well_since) == (1, None)
