"""How sure the watch is before it acts: larger draws where one cannot decide, and a second path before any breach."""

from pathlib import Path

import pytest

from quantwatch.flow.run import Trigger
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import Quality
from quantwatch.flows.cycle import Ran
from support.tiny_node import TinyModel
from support.watching import Bench, restarted, settings, watching

BAD = 1.0
NEAR = {"kl_mean": {"critical": 0.09}, "perplexity_ratio": {}, "top1_agreement": {}}
"""A limit some way under the mean KL of a bad node, 0.13, so that six prompts cannot tell."""


def hearing(bench: Bench) -> list[Ran]:
    heard: list[Ran] = []
    bench.watch.turns = bench.watch.turns.hearing(heard.append)
    return heard


def drawn(ran: Ran) -> tuple[str, int, Quality]:
    assert ran.record.report is not None
    return ran.record.trigger, ran.record.report.observation.drawn, ran.record.quality


async def test_a_draw_that_cannot_decide_grows_until_it_can(tmp_path: Path) -> None:
    raw = settings(task_set={"draw": 6, "draw_at_most": 96, "limits": NEAR})
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(1)
        heard = hearing(bench)
        restarted(bench.nodes["a"], damage=BAD)
        bench.watch.due("a", "letters")
        await bench.settle()

        trigger, size, quality = drawn(heard[0])
        assert trigger is Trigger.SCHEDULE
        assert size in (12, 24, 48, 96)
        assert quality is Quality.DEGRADED


async def test_a_draw_that_may_not_grow_stays_undecided(tmp_path: Path) -> None:
    raw = settings(task_set={"draw": 6, "draw_at_most": 6, "limits": NEAR})
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(1)
        heard = hearing(bench)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.round("a")

        assert [drawn(one) for one in heard] == [("schedule", 6, Quality.INCONCLUSIVE)]
        assert "prompts would decide" in heard[0].record.reason


async def test_a_larger_draw_asks_no_prompt_twice(tmp_path: Path) -> None:
    raw = settings(task_set={"draw": 6, "draw_at_most": 96, "limits": NEAR})
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        bench.nodes["a"].asked.clear()
        heard = hearing(bench)
        bench.watch.due("a", "letters")
        await bench.until(lambda: heard)

        scored = [tuple(body["prompt"]) for body in bench.nodes["a"].asked if body.get("prompt_logprobs")]
        assert len(scored) == len(set(scored))
        assert drawn(heard[0])[1] > 6


async def test_a_draw_that_decides_is_not_enlarged(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        heard = hearing(bench)
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=3.0)
        await bench.rounds(1, "a")
        assert {drawn(one)[1] for one in heard} == {10}


async def test_the_confirming_run_asks_by_the_second_mode(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        heard = hearing(bench)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1, "a")

        reports = [one.record.report for one in heard]
        assert [one.mode for one in reports if one is not None] == ["prompt_scoring", "one_token"]
        assert heard[0].record.basis == heard[1].record.basis
        assert bench.routing() is Routing.OUT


async def test_a_fault_of_one_path_takes_nobody_out(tmp_path: Path) -> None:
    """A node whose prompt scoring is broken answers its users well."""
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.nodes["a"].scored_by = TinyModel(damage=BAD)
        await bench.rounds(4, "a")

        assert bench.routing() is Routing.IN
        assert bench.gateway.calls == []
        assert bench.target().quality is Quality.INCONCLUSIVE
        assert "the confirming run (one_token) does not show it" in bench.target().sets[0].state.reason


async def test_a_second_mode_that_cannot_be_asked_confirms_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        bench.nodes["a"].edit = lambda reply: reply if reply["choices"][0].get("prompt_logprobs") else {}
        await bench.rounds(3, "a")

        assert bench.routing() is Routing.IN
        assert bench.target().quality is not Quality.DEGRADED


@pytest.mark.parametrize("mode", ["one_token", "first_token"])
async def test_a_set_in_another_mode_is_confirmed_in_its_own(tmp_path: Path, mode: str) -> None:
    async with watching(tmp_path, settings(task_set={"mode": mode, "draw": 24})) as bench:
        await bench.rounds(1)
        heard = hearing(bench)
        restarted(bench.nodes["a"], damage=2.0)
        await bench.rounds(1, "a")

        assert [one.record.report.mode for one in heard if one.record.report is not None] == [mode, mode]
        assert bench.routing() is Routing.OUT


async def test_a_part_over_its_own_limit_is_a_breach(tmp_path: Path) -> None:
    loose = {"kl_mean": {"critical": 9.0}, "perplexity_ratio": {}, "top1_agreement": {}}
    parts = {"language": {"en": {"kl_mean": {"critical": 0.05}}}}
    async with watching(tmp_path, settings(task_set={"limits": loose, "slices": parts})) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1, "a")

        assert bench.routing() is Routing.OUT
        assert "mean KL of language en" in bench.decisions()[-1].reason


async def test_the_level_follows_from_the_number_of_limits_and_looks(tmp_path: Path) -> None:
    one = {"limits": {"kl_mean": {"critical": 9.0}, "perplexity_ratio": {}, "top1_agreement": {}}}
    async with watching(tmp_path, settings(task_set={**one, "draw_at_most": 40}, judge={"confidence": 0.9})) as bench:
        wanted = bench.watch.watchlist.targets["a"].sets["letters"]
        assert wanted.sizes == (10, 20, 40)
        assert wanted.level == pytest.approx(1 - 2 * 0.1 / 3)
