"""What the baseline says to every golden prompt is kept, once it is certain that it can be trusted."""

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from quantwatch.flow.prompt import ProbeMode
from quantwatch.flows.enroll import Ending
from quantwatch.flows.enrolling import BUSY_SECONDS
from quantwatch.flows.fit import misfit
from quantwatch.flows.plan import Progress
from quantwatch.record.reference_file import Reference, load
from support.builders import FakeClock
from support.daemons import until
from support.enrolments import K, enrolled, folder_of, raw, wanted_of
from support.tiny_node import TinyModel, TinyNode
from support.watching import WORDS, letters, restarted, settings

SCORING, ONE = ProbeMode.PROMPT_SCORING, ProbeMode.ONE_TOKEN


def kept(place: Path) -> Reference:
    return load(folder_of(place).path("letters"))


async def test_every_prompt_is_enrolled_in_both_modes(tmp_path: Path) -> None:
    baseline, told = TinyNode(), list[Progress]()
    one = await enrolled(tmp_path, baseline, told=told)

    assert (one.ending, one.there) == (Ending.ENROLLED, 0)
    whole = kept(tmp_path)
    assert whole.digest == one.reference.digest if one.reference else None
    assert whole.prompts == tuple(f"letters-{word}" for word in WORDS)
    assert whole.k == whole.asked_k == K
    assert (whole.modes, whole.continuation_tokens) == ((SCORING, ONE), 4)
    assert (whole.baseline.model, whole.baseline.version, whole.baseline.url) == ("tiny", "0.32.0", "http://baseline")
    assert whole.baseline.tokenizer
    assert misfit(whole, wanted_of(tmp_path)) is None
    assert told[-1].done == told[-1].total == len(WORDS)
    assert not folder_of(tmp_path).half_made()


async def test_what_is_kept_is_what_the_model_says(tmp_path: Path) -> None:
    await enrolled(tmp_path, TinyNode())
    model = TinyModel()
    for mode in (SCORING, ONE):
        for answer in kept(tmp_path).answers[mode].values():
            d = answer.distribution
            assert len(answer.sequence) == answer.prompt_length + 4
            assert d.positions[-1] == len(answer.sequence) - 1
            for row, position in enumerate(d.positions):
                after = model.logprobs(list(answer.sequence[:position]))
                top = after.topk(K)
                held = d.ids[row * d.width : row * d.width + K]
                assert set(held) == set(top.indices.tolist())
                assert d.floor[row] == pytest.approx(float(top.values[-1]), abs=1e-5)
    answer = kept(tmp_path).answers[ONE]["letters-lamp"]
    assert list(answer.distribution.positions) == list(range(answer.prompt_length, len(answer.sequence)))


async def test_of_many_positions_as_many_are_sampled_as_configured(tmp_path: Path) -> None:
    content = raw(task_set={"positions": 3, "continuation_tokens": 24})
    await enrolled(tmp_path, content=content)
    first = {name: list(one.distribution.positions) for name, one in kept(tmp_path).answers[ONE].items()}
    await enrolled(tmp_path, content=content, anew=True)

    assert {len(one) for one in first.values()} == {3}
    assert len({tuple(p - q for p, q in itertools.pairwise(one)) for one in first.values()}) > 1
    assert {name: list(one.distribution.positions) for name, one in kept(tmp_path).answers[ONE].items()} == first


async def test_k_is_lowered_to_the_servers_cap_and_that_is_said(tmp_path: Path) -> None:
    one = await enrolled(tmp_path, TinyNode(cap=7))

    assert one.ending is Ending.ENROLLED
    assert "gives 7 of the 12" in one.reason
    assert (kept(tmp_path).k, kept(tmp_path).asked_k) == (7, K)


async def test_a_reference_that_fits_is_kept_and_one_that_does_not_is_made_anew(tmp_path: Path) -> None:
    baseline = TinyNode()
    first = await enrolled(tmp_path, baseline)
    asked = len(baseline.asked)
    again = await enrolled(tmp_path, baseline)
    assert again.ending is Ending.KEPT
    assert again.reference is not None
    assert first.reference is not None
    assert again.reference.digest == first.reference.digest
    assert len(baseline.asked) - asked < 5

    forced = await enrolled(tmp_path, baseline, anew=True)
    assert forced.ending is Ending.ENROLLED
    baseline.max_model_len = 4096
    other = await enrolled(tmp_path, baseline)
    assert other.ending is Ending.ENROLLED
    longer = await enrolled(tmp_path, baseline, content=raw(task_set={"continuation_tokens": 6}))
    assert longer.ending is Ending.ENROLLED
    assert kept(tmp_path).continuation_tokens == 6
    assert len(folder_of(tmp_path).superseded()) == 3


async def test_a_damaged_reference_is_made_anew(tmp_path: Path) -> None:
    await enrolled(tmp_path)
    path = folder_of(tmp_path).path("letters")
    path.write_bytes(path.read_bytes()[:-9])
    assert (await enrolled(tmp_path)).ending is Ending.ENROLLED
    assert kept(tmp_path).prompts


async def test_an_enrolment_that_breaks_off_goes_on_where_it_was(tmp_path: Path) -> None:
    baseline = TinyNode()

    def gone(path: str) -> Response | None:
        return Response(status_code=500) if len(baseline.completions()) > 12 and path.startswith("/v1/c") else None

    baseline.replace = gone
    first = await enrolled(tmp_path, baseline)
    assert first.ending is Ending.UNFINISHED
    assert "500" in first.reason
    assert not folder_of(tmp_path).path("letters").exists()

    baseline.replace = lambda _: None
    before = len(baseline.completions())
    second = await enrolled(tmp_path, baseline)
    assert second.ending is Ending.ENROLLED
    assert 0 < second.there < len(WORDS)
    whole = len(baseline.completions()) - before

    assert whole < await requests_of_a_whole_one(tmp_path)


async def requests_of_a_whole_one(place: Path) -> int:
    other = place / "whole"
    other.mkdir()
    baseline = TinyNode()
    await enrolled(other, baseline)
    return len(baseline.completions())


async def test_an_enrolment_that_is_cancelled_keeps_what_was_answered(tmp_path: Path) -> None:
    baseline = TinyNode(delay=0.002)
    task = asyncio.create_task(enrolled(tmp_path, baseline))
    await until(lambda: len(baseline.completions()) >= 15)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    again = await enrolled(tmp_path, baseline)
    assert again.ending is Ending.ENROLLED
    assert again.there > 0


async def test_parts_of_another_question_are_not_taken_over(tmp_path: Path) -> None:
    baseline = TinyNode(delay=0.002)
    task = asyncio.create_task(enrolled(tmp_path, baseline))
    await until(lambda: len(baseline.completions()) >= 15)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    again = await enrolled(tmp_path, baseline, content=raw(task_set={"continuation_tokens": 5}))
    assert again.there == 0
    assert kept(tmp_path).continuation_tokens == 5


async def refused(place: Path, baseline: TinyNode, **given: Any) -> str:
    one = await enrolled(place, baseline, **given)
    assert one.ending is Ending.REFUSED
    assert not folder_of(place).path("letters").exists()
    assert not folder_of(place).half_made()
    return one.reason


async def test_a_baseline_with_nan_is_not_enrolled(tmp_path: Path) -> None:
    reason = await refused(tmp_path, TinyNode(nan_on=lambda ids: len(ids) == 11))
    assert "broken" in reason


async def test_a_baseline_that_is_broken_from_its_first_answer_on_is_not_enrolled(tmp_path: Path) -> None:
    assert "broken" in await refused(tmp_path, TinyNode(nan_on=lambda _: True))


async def test_a_baseline_that_repeats_one_token_is_not_enrolled(tmp_path: Path) -> None:
    stuck = TinyNode(model=TinyModel(stuck_on=33))
    assert "with one token over and over" in await refused(tmp_path, stuck)
    content = raw(task_set={"continuation_tokens": 20})
    assert "with one token over and over" in await refused(tmp_path, stuck, content=content)


async def test_one_prompt_alone_may_make_a_sound_model_repeat_itself(tmp_path: Path) -> None:
    baseline = TinyNode()

    def looping(reply: dict[str, Any]) -> dict[str, Any]:
        body = baseline.completions()[-1]
        if body["max_tokens"] > 1 and bytes(body["prompt"][1:]) == b"Say moss":
            reply["choices"][0]["token_ids"] = [46] * body["max_tokens"]
        return reply

    baseline.edit = looping
    one = await enrolled(tmp_path, baseline, content=raw(task_set={"continuation_tokens": 20}))
    assert one.ending is Ending.ENROLLED
    assert "left out in a mode: letters-moss" in one.reason
    assert set(kept(tmp_path).left_out[SCORING]) == {"letters-moss"}


async def test_free_answers_are_kept_as_runs_ask_for_them(tmp_path: Path) -> None:
    await enrolled(tmp_path)
    for name, answers in kept(tmp_path).free.items():
        (free,) = answers
        assert (free.limit, len(free.ids), free.finish_reason) == (32, 32, "length")
        assert free.ids[:4] == kept(tmp_path).answers[ONE][name].sequence[-4:]


async def test_a_baseline_that_answers_otherwise_the_second_time_is_not_enrolled(tmp_path: Path) -> None:
    baseline = TinyNode()

    def drifting(reply: dict[str, Any]) -> dict[str, Any]:
        if len(baseline.completions()) > 30:
            baseline.model = TinyModel(damage=0.3)
        return reply

    baseline.edit = drifting
    assert "unstable baseline" in await refused(tmp_path, baseline)


async def test_a_baseline_that_became_another_on_the_way_is_not_enrolled(tmp_path: Path) -> None:
    baseline = TinyNode()

    def replaced(reply: dict[str, Any]) -> dict[str, Any]:
        baseline.max_model_len = 8192 if len(baseline.completions()) < 30 else 4096
        return reply

    baseline.edit = replaced
    assert "another baseline" in await refused(tmp_path, baseline)


async def test_a_restart_alone_on_the_way_does_no_harm(tmp_path: Path) -> None:
    baseline = TinyNode()

    def again(reply: dict[str, Any]) -> dict[str, Any]:
        if len(baseline.completions()) == 30:
            restarted(baseline)
        return reply

    baseline.edit = again
    assert (await enrolled(tmp_path, baseline)).ending is Ending.ENROLLED


async def test_a_set_of_which_too_much_is_left_out_is_not_enrolled(tmp_path: Path) -> None:
    content = raw(probe={"patience": "0s", "max_scored_tokens": 16}, task_set={"continuation_tokens": 12})
    reason = await refused(tmp_path, TinyNode(), content=content)
    assert "in mode prompt_scoring" in reason
    assert "over the budget" in reason


async def test_a_busy_baseline_is_waited_for(tmp_path: Path) -> None:
    baseline, looks = TinyNode(waiting=9), list[str]()

    def calmer(path: str) -> Response | None:
        looks.extend([path] if path == "/metrics" else [])
        baseline.waiting = 9 if len(looks) < 6 else 0
        return None

    baseline.replace, clock = calmer, FakeClock()
    assert (await enrolled(tmp_path, baseline, clock=clock)).ending is Ending.ENROLLED
    assert BUSY_SECONDS in clock.waits


async def test_a_wrong_model_name_is_for_a_person_to_correct(tmp_path: Path) -> None:
    content = raw(baseline={"url": "http://baseline", "model": "other"})
    one = await enrolled(tmp_path, content=content)
    assert (one.ending, one.misconfigured) == (Ending.UNFINISHED, True)


MISFITS: dict[str, dict[str, Any]] = {
    "golden prompts": {},
    "k of letters is 20": {"k": 20},
    "continuation_tokens": {"continuation_tokens": 5},
    "positions": {"positions": 40},
    "mode first_token": {"mode": "first_token"},
    "asked in mode first_token": {"confirm_mode": "first_token"},
}


@pytest.mark.parametrize(("said", "task_set"), MISFITS.items(), ids=MISFITS)
async def test_what_keeps_a_reference_from_being_used_is_said(
    tmp_path: Path, said: str, task_set: dict[str, Any]
) -> None:
    await enrolled(tmp_path)
    wanted = wanted_of(tmp_path, settings(task_set=letters(**task_set)))
    if not task_set:
        wanted = replace(wanted, prompts=replace(wanted.prompts, digest="0" * 64))
    assert said in (misfit(kept(tmp_path), wanted) or "")


async def test_a_server_that_gives_no_more_than_it_gave_fits_a_larger_k(tmp_path: Path) -> None:
    await enrolled(tmp_path, TinyNode(cap=4))
    assert kept(tmp_path).k == 4
    assert misfit(kept(tmp_path), wanted_of(tmp_path)) is None
