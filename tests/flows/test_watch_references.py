"""A watch over enrolled answers: the baseline may be off, and nothing goes over to another yardstick in silence."""

import logging
from pathlib import Path
from typing import Any

import pytest

from quantwatch.flow.decision import Ruling
from quantwatch.flow.reference import ReferenceState
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import Quality
from quantwatch.flows.enroll import Ending
from quantwatch.flows.upkeep import end_pauses
from support.enrolments import enrolled, folder_of, raw
from support.tiny_node import TinyNode
from support.watching import Bench, node, restarted, watching

BAD = 1.0
OTHER_WEIGHTS = 11


def content(place: Path, mode: str = "auto", **sections: Any) -> dict[str, Any]:
    """The configuration of a watch beside whose store the references lie."""
    return raw(references={"mode": mode}, store={"path": str(place / "q.db")}, **sections)


async def enrol(place: Path, baseline: TinyNode | None = None, **sections: Any) -> None:
    one = await enrolled(place, baseline or node(number=0), content=content(place, **sections), anew=True)
    assert one.ending is Ending.ENROLLED, one.reason


def assert_nothing_was_done(bench: Bench) -> None:
    assert bench.gateway.calls == []
    assert [one for one in bench.decisions() if one.ruling is Ruling.ACT] == []


@pytest.mark.parametrize("mode", ["auto", "stored"])
async def test_a_breach_isolates_while_the_baseline_is_off(tmp_path: Path, mode: str) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path, mode)) as bench:
        bench.wire.down = {"baseline"}
        await bench.rounds(2)
        assert [run.quality for run in bench.runs()] == [Quality.OK] * 4
        assert bench.board().baseline.sound is True

        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT
        assert bench.gateway.changes == [("http://a", True)]
        assert [run.document["trigger"] for run in bench.runs("a")[2:]] == ["schedule", "confirm"]
        assert [run.numbers["mode"] for run in bench.runs("a")[2:]] == ["prompt_scoring", "one_token"]

        restarted(bench.nodes["a"])
        await bench.rounds(4)
        assert bench.routing() is Routing.IN
        assert "baseline" not in bench.wire.calls


async def test_the_numbers_are_those_of_a_live_baseline(tmp_path: Path) -> None:
    await enrol(tmp_path)
    found = []
    for mode in ("live", "stored"):
        place = tmp_path / mode
        place.mkdir()
        whole = content(tmp_path, mode)
        async with watching(place, whole, nodes={"a": node(0.1)}) as bench:
            await bench.rounds(1, "a")
            found.append(bench.runs("a")[0].numbers)
    live, stored = found
    assert live["seed"] == stored["seed"]
    for name in ("kl_mean", "perplexity_ratio", "top1_agreement", "positions"):
        assert stored[name] == pytest.approx(live[name], rel=0.2)
    assert stored["perplexity_baseline"] == pytest.approx(live["perplexity_baseline"], rel=1e-5)
    assert stored["kl_mean"] >= live["kl_mean"] * 0.999


async def test_a_node_is_asked_and_the_baseline_is_not(tmp_path: Path) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path)) as bench:
        await bench.rounds(2)
        assert bench.wire.calls.count("baseline") == 0
        assert bench.wire.calls.count("a") > 20


async def test_without_a_reference_auto_asks_the_live_baseline(tmp_path: Path) -> None:
    async with watching(tmp_path, content(tmp_path)) as bench:
        await bench.rounds(1)
        assert [run.quality for run in bench.runs()] == [Quality.OK] * 2
        assert bench.wire.calls.count("baseline") > 10
        assert bench.memory.references["letters"].state is ReferenceState.LIVE


async def test_in_mode_live_a_reference_is_not_looked_at(tmp_path: Path) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path, "live")) as bench:
        bench.wire.down = {"baseline"}
        await bench.rounds(1)
        assert {run.quality for run in bench.runs()} == {Quality.UNKNOWN}


async def invalid(bench: Bench, state: str) -> str:
    """A round in which every run is invalid for this reason; gives it."""
    restarted(bench.nodes["a"], damage=BAD)
    before = len(bench.runs())
    await bench.rounds(3)
    runs = bench.runs()[before:]
    assert len(runs) >= 6
    assert {run.quality for run in runs} == {Quality.INVALID}
    assert all(run.reason.startswith(f"reference_{state}: ") for run in runs), runs[0].reason
    assert all("quantwatch enroll --config FILE" in run.reason for run in runs)
    assert_nothing_was_done(bench)
    assert bench.target().reason.startswith(("letters: reference_", "reference_"))
    return runs[-1].reason


async def test_mode_stored_without_a_reference_is_a_named_state_with_its_cure(tmp_path: Path) -> None:
    async with watching(tmp_path, content(tmp_path, "stored")) as bench:
        assert "letters" in await invalid(bench, "missing")
        assert await bench.series("baseline_up") == 0

        await enrol(tmp_path)  # and from the next run on it counts, without a reload
        restarted(bench.nodes["a"])
        await bench.rounds(1)
        assert [run.quality for run in bench.runs()[-2:]] == [Quality.OK] * 2
        assert await bench.series("baseline_up") == 1


CHANGES: dict[str, dict[str, Any]] = {
    "continuation_tokens": {"continuation_tokens": 6},
    "k of letters": {"k": 20},
    "mode first_token": {"mode": "first_token"},
}


@pytest.mark.parametrize(("said", "task_set"), CHANGES.items(), ids=CHANGES)
async def test_a_reference_that_does_not_fit_is_a_named_state(
    tmp_path: Path, said: str, task_set: dict[str, Any]
) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path, task_set=task_set)) as bench:
        assert said in await invalid(bench, "changed")
        assert bench.wire.calls.count("baseline") == 0


async def test_other_golden_prompts_than_were_enrolled_are_a_named_state(tmp_path: Path) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path)) as bench:
        await bench.rounds(1)
        text = (tmp_path / "letters.yaml").read_text()
        (tmp_path / "letters.yaml").write_text(text.replace("Say moss", "Say wolf"))
        await bench.reload(content(tmp_path))
        assert "golden prompts" in await invalid(bench, "changed")


@pytest.mark.parametrize("damage", ["cut", "gone"])
async def test_a_reference_that_breaks_while_it_is_used_is_a_named_state(tmp_path: Path, damage: str) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path)) as bench:
        await bench.rounds(1)
        path = folder_of(tmp_path).path("letters")
        whole = path.read_bytes()
        path.write_bytes(whole[:-5]) if damage == "cut" else path.unlink()
        await invalid(bench, "damaged")

        path.write_bytes(whole)
        restarted(bench.nodes["a"])
        await bench.rounds(1)
        assert [run.quality for run in bench.runs()[-2:]] == [Quality.OK] * 2


async def test_a_breach_against_one_reference_is_not_confirmed_by_another(tmp_path: Path) -> None:
    await enrol(tmp_path)
    whole = content(tmp_path, task_set={"confirm_cycles": 3})
    async with watching(tmp_path, whole) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1, "a")
        assert bench.target().sets[0].state.breaches == 1

        await enrol(tmp_path, node(number=9))
        await bench.rounds(1, "a")
        assert bench.target().sets[0].state.breaches == 1
        assert bench.routing() is Routing.IN


async def test_the_self_check_finds_other_weights_under_the_old_name(tmp_path: Path) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path)) as bench:
        await bench.rounds(1)
        await bench.watch.self_check()
        assert bench.memory.references["letters"].state is ReferenceState.STORED
        assert bench.memory.references["letters"].checked is not None
        assert bench.memory.baseline_answers is True
        assert bench.memory.silent is None

        restarted(bench.baseline, seed=OTHER_WEIGHTS)
        await bench.watch.self_check()
        assert "no longer gives the answers" in await invalid(bench, "drifted")
        assert bench.board().baseline.sound is False
        assert await bench.series("baseline_sound") == 0

        restarted(bench.baseline)
        restarted(bench.nodes["a"])
        await bench.watch.self_check()
        await bench.rounds(1)
        assert [run.quality for run in bench.runs()[-2:]] == [Quality.OK] * 2


async def test_the_self_check_finds_another_baseline(tmp_path: Path) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path)) as bench:
        await bench.rounds(1)
        bench.baseline.max_model_len = 4096
        await bench.watch.self_check()
        assert "another baseline" in await invalid(bench, "changed")

        await enrol(tmp_path, bench.baseline)
        restarted(bench.nodes["a"])
        await bench.rounds(1)
        assert [run.quality for run in bench.runs()[-2:]] == [Quality.OK] * 2


async def test_a_drift_that_was_found_outlives_a_reload(tmp_path: Path) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path)) as bench:
        restarted(bench.baseline, seed=OTHER_WEIGHTS)
        await bench.watch.self_check()
        await bench.reload(content(tmp_path, probe={"patience": "1s"}))
        await invalid(bench, "drifted")


async def test_a_baseline_that_does_not_answer_its_self_check_is_noted_and_verdicts_go_on(tmp_path: Path) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path)) as bench:
        bench.wire.down = {"baseline"}
        await bench.watch.self_check()
        assert bench.memory.baseline_answers is False
        assert bench.memory.silent is not None
        await bench.rounds(1)
        assert [run.quality for run in bench.runs()] == [Quality.OK] * 2
        assert bench.memory.references["letters"].state is ReferenceState.STORED


async def test_a_baseline_with_nan_does_not_spoil_its_enrolled_answers(tmp_path: Path) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path)) as bench:
        bench.baseline.nan_on = lambda _: True
        await bench.watch.self_check()
        await bench.rounds(1)
        assert [run.quality for run in bench.runs()] == [Quality.OK] * 2


async def test_a_self_check_asks_for_one_prompt_and_for_each_in_turn(tmp_path: Path) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path)) as bench:
        asked = []
        for _ in range(3):
            bench.baseline.asked.clear()
            await bench.watch.self_check()
            scored = [one["prompt"] for one in bench.baseline.asked if one.get("prompt_logprobs")]
            asked += [tuple(one) for one in scored if bytes(one[1:4]) == b"Say"]
        assert len(asked) == len(set(asked)) == 3


async def test_a_self_check_without_references_asks_nobody(tmp_path: Path) -> None:
    async with watching(tmp_path, content(tmp_path)) as bench:
        await bench.watch.self_check()
        assert "baseline" not in bench.wire.calls
        assert bench.memory.baseline_answers is None


async def test_a_corrupted_node_is_told_and_isolated_with_enrolled_answers(tmp_path: Path) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path)) as bench:
        bench.wire.down = {"baseline"}
        await bench.rounds(1)
        restarted(bench.nodes["a"])
        bench.nodes["a"].nan_on = lambda _: True
        await bench.rounds(1)
        assert bench.target().quality is Quality.CORRUPTED
        assert bench.routing() is Routing.OUT


async def test_a_node_that_says_one_token_over_and_over_is_told_from_its_enrolled_baseline(tmp_path: Path) -> None:
    task_set = {"continuation_tokens": 32}
    await enrol(tmp_path, task_set=task_set)
    async with watching(tmp_path, content(tmp_path, task_set=task_set)) as bench:
        bench.wire.down = {"baseline"}
        restarted(bench.nodes["a"], stuck_on=33)
        await bench.rounds(1, "a")
        assert bench.runs("a")[-1].quality is Quality.CORRUPTED


async def test_a_fallback_to_a_baseline_that_is_off_is_refused(tmp_path: Path) -> None:
    pool = {"fallback": "baseline"}
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path, pool=pool)) as bench:
        bench.wire.down = {"baseline"}
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(2, "a")
        assert bench.routing() is Routing.IN
        objections = {one["brake"] for made in bench.decisions() for one in made.objections}
        assert "fallback" in objections


async def test_a_node_that_is_the_enrolled_baseline_itself_is_never_compared(tmp_path: Path) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path), nodes={"a": node(number=0)}) as bench:
        await bench.rounds(1, "a")
        assert bench.runs("a")[0].quality is Quality.INVALID
        assert "same server" in bench.runs("a")[0].reason


def loud(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings and errors of the log."""
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


async def rollout(bench: Bench, scope: str = "rollout:all", seconds: float = 7200) -> None:
    await bench.people.pause(scope, reason="weights of May", author="ada", seconds=seconds)


async def test_a_changed_baseline_in_an_expected_rollout_is_no_alarm_and_shows_the_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path)) as bench:
        await bench.rounds(1)
        await rollout(bench)
        bench.baseline.max_model_len = 4096
        restarted(bench.nodes["a"], damage=BAD)
        caplog.clear()
        await bench.watch.self_check()
        await bench.rounds(2)

        reasons = {run.reason for run in bench.runs()[2:]}
        (said,) = reasons
        assert said.startswith("reference_changed: expected rollout by ada until 2026-01-01 ")
        assert said.endswith("when it is done: `quantwatch enroll --config FILE`")
        assert {run.quality for run in bench.runs()[2:]} == {Quality.INVALID}
        assert loud(caplog) == []
        assert_nothing_was_done(bench)

        await bench.advance(7200)
        end_pauses(bench.memory, bench.clock)
        await bench.rounds(1)
        assert "run `quantwatch enroll --config FILE`" in bench.runs()[-1].reason
        assert "expected rollout" not in bench.runs()[-1].reason
        await enrol(tmp_path, bench.baseline)
        restarted(bench.nodes["a"])
        await bench.rounds(1)
        assert [run.quality for run in bench.runs()[-2:]] == [Quality.OK] * 2


async def test_without_a_rollout_a_changed_baseline_is_an_alarm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path)) as bench:
        bench.baseline.max_model_len = 4096
        await bench.watch.self_check()
        await bench.rounds(1)
        assert any("enrolled answers do not count any longer" in one for one in loud(caplog))
        assert any("letters on a: invalid (reference_changed" in one for one in loud(caplog))


async def test_nothing_acts_on_a_target_that_is_exchanged_and_others_are_watched_as_before(
    tmp_path: Path,
) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path)) as bench:
        await bench.rounds(1)
        await rollout(bench, "rollout:target:a")
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert bench.routing("a") is Routing.IN
        assert "paused" in {one["brake"] for made in bench.decisions("a") for one in made.objections}

        restarted(bench.nodes["a"])
        await bench.rounds(2)
        restarted(bench.nodes["b"], damage=BAD)
        await bench.rounds(1)
        assert bench.routing("b") is Routing.OUT


async def test_a_drifted_live_baseline_in_a_rollout_points_to_its_acceptance(tmp_path: Path) -> None:
    async with watching(tmp_path, content(tmp_path)) as bench:
        await bench.rounds(1)
        await rollout(bench)
        restarted(bench.baseline, seed=OTHER_WEIGHTS)
        await bench.rounds(1)
        assert bench.runs()[-1].reason.startswith("expected rollout by ada until ")
        assert bench.runs()[-1].reason.endswith("`quantwatch accept-baseline`")
        assert_nothing_was_done(bench)


async def test_a_rollout_of_one_target_expects_no_other_baseline(tmp_path: Path) -> None:
    await enrol(tmp_path)
    async with watching(tmp_path, content(tmp_path)) as bench:
        await rollout(bench, "rollout:target:a")
        bench.baseline.max_model_len = 4096
        await bench.watch.self_check()
        await bench.rounds(1)
        assert "another baseline" in bench.runs("a")[-1].reason
