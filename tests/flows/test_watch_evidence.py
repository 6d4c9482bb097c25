"""Only proven evidence of now, about the process that runs now and by the limits in force, leads to an action."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response
from torch import Tensor

from quantwatch.flow.decision import Brake
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import Quality
from support.gateway import Fault, Gateway
from support.tiny_node import TinyModel
from support.watching import EVERY, Bench, letters, restarted, settings, watching

BAD = 1.0
FAR_OFF = 3.0
LENIENT = {
    "kl_mean": {"warn": 50, "critical": 60},
    "kl_p99": {"warn": 500, "critical": 600},
    "top1_agreement": {"warn": 0.0, "critical": 0.0},
    "perplexity_ratio": {"warn": 1e6, "critical": 1e7},
}


def brakes(bench: Bench, target: str = "a") -> list[list[str]]:
    """What objected in every decision about a target; nothing where it was acted upon."""
    return [[one["brake"] for one in made.objections] for made in bench.decisions(target)]


def two_sets(**given: Any) -> dict[str, Any]:
    """Two task sets, of which one can be measured without the other."""
    raw = settings()
    raw["task_sets"] = {"letters": letters(**given), "other": letters(draw=4, **given)}
    return raw


async def one_run(bench: Bench, task_set: str, target: str = "a") -> None:
    """Measure one task set only, with the confirmation that follows."""
    bench.watch.due(target, task_set)
    await bench.settle()
    await bench.advance(60)


def answers_and_dies(answers: int) -> Callable[[str], Response | None]:
    """A server that answers so many completions after every introduction, and then fails."""
    asked = [0]

    def replace(path: str) -> Response | None:
        if path == "/v1/models":
            asked[0] = 0
        if path != "/v1/completions":
            return None
        asked[0] += 1
        return Response("boom", 500) if asked[0] > answers else None

    return replace


# The baseline


async def test_wrong_answers_of_a_baseline_that_dies_before_its_self_check_convict_nobody(tmp_path: Path) -> None:
    async with watching(tmp_path, settings(task_set={"draw": 60})) as bench:
        await bench.rounds(1)
        bench.baseline.model = TinyModel(damage=FAR_OFF)  # under its old name and version
        bench.baseline.replace = answers_and_dies(8)
        await bench.rounds(2, "a")

        latest = bench.runs("a")[-1]
        assert latest.quality is Quality.INVALID
        assert "could not be held against its stored answers afterwards" in latest.reason
        assert bench.gateway.calls == []
        assert bench.decisions() == []


async def test_a_baseline_does_not_prove_itself_by_being_met_for_the_first_time(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        # It comes back as another version, and broken: that is another baseline, of which nothing is proven.
        bench.baseline.model, bench.baseline.max_model_len = TinyModel(damage=FAR_OFF), 4096
        bench.baseline.started += 99
        await bench.rounds(2, "a")

        assert bench.target().quality is Quality.DEGRADED
        assert bench.gateway.calls == []
        assert brakes(bench) == [[Brake.YARDSTICK]]
        assert "no clean run has proven its answers" in bench.decisions()[0].objections[0]["reason"]

        # A person says that it is right; its next answers bear the verdict.
        await bench.people.accept_baseline(author="ada", reason="new weights")
        await bench.rounds(1, "b", "a")
        assert bench.board().baseline.sound is True


async def test_a_new_baseline_that_agrees_with_a_node_is_proven_and_bears_the_next_verdict(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        bench.baseline.max_model_len = 4096
        bench.baseline.started += 99
        await bench.rounds(1)
        assert bench.board().baseline.sound is True

        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT


async def test_a_baseline_that_is_down_is_told_as_down_and_as_not_known_to_be_sound(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(2)
        assert await bench.series("baseline_up") == 1
        assert await bench.series("baseline_sound") == 1

        bench.wire.down.add("baseline")
        await bench.rounds(3)
        assert await bench.series("baseline_up") == 0
        assert bench.board().baseline.sound is None

        bench.wire.down.clear()
        await bench.rounds(1)
        assert await bench.series("baseline_up") == 1
        assert bench.board().baseline.sound is True


async def test_a_self_check_of_long_ago_does_not_call_the_baseline_sound(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        await bench.advance(2.4 * EVERY)
        assert bench.board().baseline.sound is True
        await bench.advance(0.2 * EVERY)
        assert bench.board().baseline.sound is None


async def test_a_drift_found_on_a_task_set_that_left_no_longer_objects(tmp_path: Path) -> None:
    raw = settings()
    raw["task_sets"]["other"] = letters(draw=4, k=9)
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(1)
        good, bench.baseline.model = bench.baseline.model, TinyModel(damage=FAR_OFF)
        await bench.rounds(1)
        assert bench.board().baseline.sound is False

        bench.baseline.model = good
        await bench.reload(settings())
        await bench.rounds(1)
        assert bench.board().baseline.sound is True
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT


@dataclass(slots=True)
class DamagedOn(TinyModel):
    """A model that is damaged on the prompts that hold a word, and nowhere else."""

    word: str = ""
    spread: float = 0.0

    def logprobs(self, ids: list[int]) -> Tensor:
        """Of the damaged model where the word stands."""
        hit = self.word.encode() in bytes(one for one in ids if one < 256)
        return TinyModel(damage=self.spread if hit else 0.0).logprobs(ids)


async def test_a_drift_on_one_kept_answer_is_not_cleared_by_asking_for_another(tmp_path: Path) -> None:
    async with watching(tmp_path, task_set_of_many()) as bench:
        await bench.rounds(1)
        # One of four kept answers has moved. An unsuspicious run asks for one of them, in turn.
        bench.baseline.model = DamagedOn(word="keel", spread=0.8)
        found = []
        for _ in range(8):
            await bench.rounds(1, "a")
            found.append(bench.memory.checks["a", "letters"].sound)

        assert bench.runs("a")[-1].quality is Quality.INVALID
        first = found.index(False)
        assert first < 4
        assert set(found[first:]) == {False}

        # It is itself again: a thorough check says so, and the next one asks for a single answer once more.
        bench.baseline.model = TinyModel()
        await bench.rounds(1, "a")
        assert bench.memory.checks["a", "letters"].sound is True
        assert bench.memory.checks["a", "letters"].thorough is True
        await bench.rounds(1, "a")
        assert bench.memory.checks["a", "letters"].thorough is False


async def test_a_drift_is_not_forgotten_while_the_baseline_is_down(tmp_path: Path) -> None:
    async with watching(tmp_path, task_set_of_many()) as bench:
        await bench.rounds(1)
        bench.baseline.model = DamagedOn(word="keel", spread=0.8)
        await bench.rounds(4, "a")  # as many as there are kept answers
        assert bench.board().baseline.sound is False

        for _ in range(4):  # whichever answer would be next in turn
            bench.wire.down.add("baseline")
            await bench.rounds(1, "a")
            assert bench.board().baseline.sound is False
            bench.wire.down.clear()
            await bench.rounds(1, "a")
            assert bench.board().baseline.sound is False


def task_set_of_many() -> dict[str, Any]:
    """Every prompt in each run, and limits on the mean KL alone: one prompt that moves is no breach of the whole."""
    only_mean = {"kl_mean": {"warn": 0.02, "critical": 0.5}, **{k: v for k, v in LENIENT.items() if k != "kl_mean"}}
    return settings(task_set={"limits": only_mean})


async def test_the_self_check_of_one_target_does_not_hide_what_that_of_another_found(tmp_path: Path) -> None:
    raw = settings("a", "b")
    raw["targets"][1]["scheme"] = "int4"  # its limits are wider, so that a small drift is none to it
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(2)
        bench.baseline.model = TinyModel(damage=0.25)
        await bench.rounds(1, "a")
        assert bench.board().baseline.sound is False
        await bench.round("b")

        assert {pair: one.sound for pair, one in bench.memory.checks.items()} == {
            ("a", "letters"): False,
            ("b", "letters"): True,
        }
        assert bench.board().baseline.sound is False


# Whose evidence, by which limits


async def test_a_breach_of_another_process_is_not_acted_upon_after_a_run_of_another_task_set(tmp_path: Path) -> None:
    async with watching(tmp_path, two_sets()) as bench:
        await bench.rounds(1)
        pause = await bench.people.pause("all", reason="rollout", author="ada", seconds=None)
        restarted(bench.nodes["a"], damage=BAD)
        await one_run(bench, "letters")
        assert brakes(bench) == [[Brake.PAUSED]]

        restarted(bench.nodes["a"])  # repaired: another process with sound weights
        await bench.people.resume(pause.id, author="ada")
        await one_run(bench, "other")

        assert bench.runs("a")[-1].task_set == "other"
        assert bench.gateway.calls == []
        assert bench.routing() is Routing.IN


async def test_a_breach_of_limits_no_longer_in_force_is_not_acted_upon_after_another_run(tmp_path: Path) -> None:
    async with watching(tmp_path, two_sets()) as bench:
        await bench.rounds(1)
        pause = await bench.people.pause("all", reason="the limits are wrong", author="ada", seconds=None)
        restarted(bench.nodes["a"], damage=BAD)
        await one_run(bench, "letters")
        assert brakes(bench) == [[Brake.PAUSED]]

        await bench.reload(two_sets(limits=LENIENT))
        await bench.people.resume(pause.id, author="ada")
        await one_run(bench, "other")

        assert bench.runs("a")[-1].quality is Quality.OK
        assert bench.gateway.calls == []
        assert bench.routing() is Routing.IN


async def test_the_same_breach_is_acted_upon_where_process_and_limits_are_the_same(tmp_path: Path) -> None:
    async with watching(tmp_path, two_sets()) as bench:
        await bench.rounds(1)
        pause = await bench.people.pause("all", reason="rollout", author="ada", seconds=None)
        restarted(bench.nodes["a"], damage=BAD)
        await one_run(bench, "letters")
        await bench.people.resume(pause.id, author="ada")
        await one_run(bench, "other")

        assert bench.routing() is Routing.OUT


async def test_an_order_carries_the_run_that_proved_the_breach_and_what_it_found(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await bench.rounds(1)
        pause = await bench.people.pause("all", reason="rollout", author="ada", seconds=None)
        restarted(bench.nodes["a"], damage=BAD)
        await one_run(bench, "letters")
        proving = bench.runs("a")[-1]
        await bench.people.resume(pause.id, author="ada")
        bench.nodes["a"].replace = lambda path: Response("busy", 503) if path == "/v1/completions" else None
        await one_run(bench, "letters")

        assert bench.runs("a")[-1].quality is Quality.SKIPPED
        body = bench.gateway.calls[0].body
        assert body["run_id"] == proving.id
        assert body["verdict"] == "degraded"
        assert [one["metric"] for one in body["evidence"]]
        assert {one["value"] for one in body["evidence"]} <= set(numbers_in(proving.numbers))


def numbers_in(document: Any) -> list[float]:
    """Every number of a document."""
    if isinstance(document, dict):
        return [number for one in document.values() for number in numbers_in(one)]
    if isinstance(document, list | tuple):
        return [number for one in document for number in numbers_in(one)]
    return [document] if isinstance(document, int | float) else []


# Who is left


@pytest.mark.parametrize("others", [("b",), ("b", "c")])
async def test_a_bad_node_stays_while_every_other_member_is_down(tmp_path: Path, others: tuple[str, ...]) -> None:
    async with watching(tmp_path, settings("a", *others, pool={"max_isolated": "50%"})) as bench:
        await bench.rounds(1)
        bench.wire.down |= set(others)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(2, *others, "a")

        assert bench.target("b").quality is not Quality.OK
        assert bench.gateway.calls == []
        assert brakes(bench) == [[Brake.LAST_BACKEND]]


@pytest.mark.parametrize("others", [("b",), ("b", "c")])
async def test_a_bad_node_stays_while_nothing_is_known_of_the_other_members(
    tmp_path: Path, others: tuple[str, ...]
) -> None:
    async with watching(tmp_path, settings("a", *others, pool={"max_isolated": "50%"})) as bench:
        await bench.round("a")
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1, "a")
        assert bench.gateway.calls == []
        assert brakes(bench) == [[Brake.LAST_BACKEND]]

        await bench.round("b")
        await bench.round("a")
        assert bench.routing() is Routing.OUT


# Orders under way


@pytest.mark.parametrize("mode", ["observe", "dry_run", "approve"])
async def test_an_isolation_under_way_ends_when_its_pool_is_no_longer_in_enforce(tmp_path: Path, mode: str) -> None:
    async with watching(tmp_path, gateway=Gateway(always=Fault.BUSY)) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert bench.routing() is Routing.LEAVING

        before = len(bench.gateway.calls)
        await bench.reload(settings(pool={"mode": mode}))
        bench.gateway.always = None
        await bench.advance(300)

        assert len(bench.gateway.calls) == before
        assert bench.gateway.changes == []
        (made,) = bench.decisions("a")
        assert made.intent is not None
        assert made.intent.outcome is not None
        assert f"the mode of its pool is {mode} now" in made.intent.outcome.detail


async def test_a_pause_of_the_pool_that_the_target_is_in_now_ends_an_order_of_its_old_pool(tmp_path: Path) -> None:
    async with watching(tmp_path, gateway=Gateway(always=Fault.BUSY)) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        raw = settings()
        raw["pools"] = {"talk": raw["pools"]["chat"]}
        for one in raw["targets"]:
            one["pool"] = "talk"
        await bench.reload(raw)
        assert bench.routing() is Routing.LEAVING

        await bench.people.pause("pool:talk", reason="rollout", author="ada", seconds=None)
        bench.gateway.always = None
        before = len(bench.gateway.calls)
        await bench.advance(300)

        assert len(bench.gateway.calls) == before
        assert bench.gateway.changes == []
        (made,) = bench.decisions("a")
        assert made.intent is not None
        assert made.intent.outcome is not None
        assert "ada paused pool:talk: rollout" in made.intent.outcome.detail


async def test_a_target_left_alone_after_orders_that_came_to_nothing_is_acted_upon_again_six_hours_later(
    tmp_path: Path,
) -> None:
    raw = settings(pool={"actions_per_hour": 100})
    async with watching(tmp_path, raw, gateway=Gateway(always=Fault.YES_AND_NOTHING)) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        for _ in range(5):
            await bench.rounds(1)
            await bench.advance(120)
        assert len(bench.gateway.ids) == 3
        (pause,) = bench.board().pauses
        assert pause.until == pause.since + timedelta(hours=6)
        assert "3 orders in a row came to nothing" in pause.reason

        bench.gateway.always = None
        left = (pause.until - bench.clock.now()).total_seconds()
        await bench.advance(left - 1.5 * EVERY)
        await bench.mend()
        await bench.rounds(1)
        assert len(bench.gateway.ids) == 3
        await bench.rounds(1)
        assert len(bench.gateway.ids) == 4
        assert bench.routing() is Routing.OUT


async def test_orders_that_came_to_nothing_with_one_between_that_was_done_are_no_row(tmp_path: Path) -> None:
    raw = settings(pool={"actions_per_hour": 100, "minimum_hold": "1m", "release_after": 1})
    async with watching(tmp_path, raw, gateway=Gateway(faults=[Fault.YES_AND_NOTHING] * 2)) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        for _ in range(3):
            await bench.rounds(1)
            await bench.advance(120)
        assert bench.routing() is Routing.OUT
        restarted(bench.nodes["a"])
        await bench.rounds(2)
        assert bench.routing() is Routing.IN
        bench.gateway.faults = [Fault.YES_AND_NOTHING] * 2
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(2)
        await bench.advance(120)

        assert len(bench.gateway.ids) >= 5
        assert bench.board().pauses == ()


async def test_the_gateway_counts_as_up_again_once_no_order_waits_for_it(tmp_path: Path) -> None:
    async with watching(tmp_path, gateway=Gateway(down=True)) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert await bench.series("gateway_up") == 0

        restarted(bench.nodes["a"])  # well again before the gateway, so nothing is asked of it any more
        await bench.rounds(2)
        assert bench.routing() is Routing.IN
        assert bench.board().own.open_intents == 0
        assert await bench.series("gateway_up") == 1


# What a server says


async def test_no_prompt_that_a_server_repeats_in_its_refusal_gets_into_the_record(tmp_path: Path) -> None:
    said = "1 validation error: {'loc': ('body',), 'msg': 'bad', 'input': {'prompt': 'Say lamp and be quiet'}}"
    refusal = {"error": {"message": said, "type": "BadRequestError", "code": 400}}
    async with watching(tmp_path) as bench:
        bench.nodes["a"].replace = lambda path: JSONResponse(refusal, 400) if path == "/v1/completions" else None
        await bench.rounds(1)

        assert "1 validation error" in bench.runs("a")[-1].reason
        shown = [(await bench.get(path)).text for path in ("/verdict/a", "/metrics", "/")]
        everything = "".join(shown) + bench.runs("a")[-1].reason + repr(bench.board())
        assert "be quiet" not in everything
        assert b"1 validation error" in stored(tmp_path)
        assert b"be quiet" not in stored(tmp_path)


def stored(folder: Path) -> bytes:
    """Everything that the store has on disk."""
    return b"".join(path.read_bytes() for path in folder.glob("q.db*"))
