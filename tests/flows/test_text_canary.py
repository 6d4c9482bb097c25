"""The text canary over tiny nodes: what free answers must show, and how often, before a node is blamed."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quantwatch.flow.as_json import canary_json
from quantwatch.flow.canary import Sign, Weight
from quantwatch.flow.report import SetReport
from quantwatch.flow.verdict import Quality
from quantwatch.flows.canary import MOST, STRUCTURED_LEAST, affordable
from quantwatch.flows.plan import Plan, planned_draw
from quantwatch.probe.cost import CANARY_TOKENS, STRUCTURED_DRAWS, STRUCTURED_TOKENS
from support.runs import POOL, compared, node, only, plan
from support.tiny_node import TinyNode, said

Edit = Callable[[dict[str, Any]], Any]
Change = Callable[[dict[str, Any], int], dict[str, Any]]


def speaking(change: Change, *, times: int | None = None) -> Edit:
    """Change free answers, the first `times` of them, and leave golden continuations (24 tokens) and probes alone.

    change: new fields of a choice from the choice and the number of its tokens.
    """
    left = [times]

    def edit(reply: dict[str, Any]) -> Any:
        choice = reply["choices"][0]
        tokens = len(choice["token_ids"])
        if tokens >= CANARY_TOKENS and left[0] != 0:
            left[0] = None if left[0] is None else left[0] - 1
            choice |= change(choice, tokens)
        return reply

    return edit


def looping(_: dict[str, Any], tokens: int) -> dict[str, Any]:
    ids = [7, 8, 9, 10] * tokens
    return {"token_ids": ids[:tokens], "text": said(ids[:tokens])}


def stuck(_: dict[str, Any], tokens: int) -> dict[str, Any]:
    return {"token_ids": [0] * tokens, "text": "!" * tokens}


def unreadable(choice: dict[str, Any], _: int) -> dict[str, Any]:
    return {"text": "\ufffd" * 20 + choice["text"]}


def russian(_: dict[str, Any], __: int) -> dict[str, Any]:
    return {"text": "в хлебопекарне сегодня тихо"}


def salad(_: dict[str, Any], __: int) -> dict[str, Any]:
    return {"text": "оцен ประเทศ 이는 Ευρ ოდენ تحقيق संस्कृत"}


def says(text: str, *, finish: str = "stop") -> Change:
    return lambda _, __: {"text": text, "finish_reason": finish, "token_ids": [5, 6, 7, 8]}


def free_answers(server: TinyNode) -> int:
    return sum(body["max_tokens"] == CANARY_TOKENS for body in server.completions())


def seen(one: SetReport) -> list[tuple[Sign, Weight]]:
    return [(sign.sign, sign.weight) for sign in one.observation.canary.seen if sign.sign is not Sign.ZERO_DRIFT]


# ------------------------------------------------------------------ proofs


@pytest.mark.parametrize(
    ("change", "sign", "words"),
    [
        (stuck, Sign.ONE_ID, "is token 0, 32 times over: '!!!!"),
        (unreadable, Sign.REPLACEMENT_FLOOD, "is replacement characters: '\ufffd\ufffd"),
    ],
)
async def test_a_proof_on_two_prompts_is_corruption(tmp_path: Path, change: Change, sign: Sign, words: str) -> None:
    asked = node(edit=speaking(change))

    result = await compared(tmp_path, node=asked)

    assert result.targets[0].quality is Quality.CORRUPTED
    assert words in result.targets[0].reasons[0]
    assert "seen twice" in result.targets[0].reasons[0]
    assert free_answers(asked) == 2
    assert [one for one, _ in seen(result.targets[0].task_sets[0])] == [sign, sign]


@pytest.mark.parametrize("change", [stuck, unreadable])
async def test_a_proof_on_one_prompt_is_inconclusive(tmp_path: Path, change: Change) -> None:
    asked = node(edit=speaking(change, times=1))

    one = only(await compared(tmp_path, node=asked))

    assert one.verdict.quality is Quality.INCONCLUSIVE
    assert any("not confirmed by a second probe" in reason for reason in one.verdict.reasons)
    assert free_answers(asked) == 2


@pytest.mark.parametrize("change", [stuck, unreadable, looping, russian])
async def test_what_the_baseline_shows_too_is_held_against_nobody(tmp_path: Path, change: Change) -> None:
    baseline, asked = TinyNode(edit=speaking(change)), node(edit=speaking(change))

    one = only(await compared(tmp_path, baseline=baseline, node=asked))

    assert one.verdict.quality is Quality.OK
    assert seen(one) == []
    assert free_answers(asked) == free_answers(baseline) == 1


async def test_a_baseline_that_does_not_answer_leaves_no_sign(tmp_path: Path) -> None:
    def silent(reply: dict[str, Any]) -> Any:
        if len(reply["choices"][0]["token_ids"]) == CANARY_TOKENS:
            del reply["choices"]
        return reply

    one = only(await compared(tmp_path, baseline=TinyNode(edit=silent), node=node(edit=speaking(stuck))))

    assert one.verdict.quality is Quality.OK


def flattened(reply: dict[str, Any]) -> None:
    """Every listed value near ln 300: a vocabulary without any preference."""
    for row in (reply["choices"][0]["prompt_logprobs"] or [])[1:]:
        for place, entry in enumerate(row.values()):
            entry["logprob"] = -5.6 - place / 1000


async def test_salad_with_flat_distributions_is_corruption(tmp_path: Path) -> None:
    speak = speaking(salad)

    def edit(reply: dict[str, Any]) -> Any:
        flattened(reply)
        return speak(reply)

    result = await compared(tmp_path, node=node(edit=edit))

    assert result.targets[0].quality is Quality.CORRUPTED
    assert (
        "which neither the prompt nor the baseline uses, and its distribution is nearly flat"
        in (result.targets[0].reasons[0])
    )


async def test_salad_with_sound_distributions_warns(tmp_path: Path) -> None:
    one = only(await compared(tmp_path, node=node(edit=speaking(salad))))

    assert one.verdict.quality is Quality.WARN
    assert set(seen(one)) == {(Sign.FOREIGN_SCRIPT, Weight.WARNING)}


# ------------------------------------------------------------------ loops


async def test_five_looping_answers_in_a_row_are_corruption(tmp_path: Path) -> None:
    asked = node(edit=speaking(looping))

    result = await compared(tmp_path, wanted=plan(draws=20), node=asked)

    assert result.targets[0].quality is Quality.CORRUPTED
    assert "repeats 4 tokens 8 times over" in result.targets[0].reasons[0]
    assert free_answers(asked) == 5


@pytest.mark.parametrize(
    ("times", "quality"), [(1, Quality.OK), (2, Quality.OK), (3, Quality.WARN), (4, Quality.INCONCLUSIVE)]
)
async def test_fewer_loops_prove_nothing(tmp_path: Path, times: int, quality: Quality) -> None:
    """A healthy small model loops now and then where its baseline does not."""
    asked = node(edit=speaking(looping, times=times))

    one = only(await compared(tmp_path, wanted=plan(draws=20), node=asked))

    assert one.verdict.quality is quality
    assert [sign for sign, _ in seen(one)] == [Sign.LOOP] * times
    assert free_answers(asked) == times + 1


async def test_loops_with_a_sound_answer_between_them_are_no_row(tmp_path: Path) -> None:
    count = [0]

    def every_other(reply: dict[str, Any]) -> Any:
        choice = reply["choices"][0]
        if len(choice["token_ids"]) == CANARY_TOKENS:
            count[0] += 1
            if count[0] % 3:
                choice |= looping(choice, CANARY_TOKENS)
            else:
                choice |= russian(choice, CANARY_TOKENS)
        return reply

    one = only(await compared(tmp_path, wanted=plan(draws=20), node=node(edit=every_other)))

    assert one.verdict.quality is Quality.WARN


# ------------------------------------------------------------------ warnings


async def test_an_oddity_of_three_prompts_warns_and_never_acts(tmp_path: Path) -> None:
    asked = node(edit=speaking(russian))

    result = await compared(tmp_path, wanted=plan(draws=20), node=asked)

    one = only(result)
    assert one.verdict.quality is result.targets[0].quality is Quality.WARN
    assert "are Cyrillic, which neither the prompt nor the baseline uses: 'в хлебопекарне" in one.verdict.reasons[0]
    assert one.observation.corruption is None
    assert free_answers(asked) <= MOST


@pytest.mark.parametrize("times", [1, 2])
async def test_an_oddity_of_fewer_prompts_is_only_noted(tmp_path: Path, times: int) -> None:
    one = only(await compared(tmp_path, wanted=plan(draws=20), node=node(edit=speaking(russian, times=times))))

    assert one.verdict.quality is Quality.OK
    assert seen(one) == [(Sign.FOREIGN_SCRIPT, Weight.WARNING)] * times


async def test_a_healthy_node_answers_once_and_its_baseline_not_at_all(tmp_path: Path) -> None:
    baseline, asked = TinyNode(), node(0.3)

    one = only(await compared(tmp_path, baseline=baseline, node=asked))

    assert (free_answers(baseline), free_answers(asked)) == (0, 1)
    assert one.observation.canary.answers == 1
    assert seen(one) == []


# ------------------------------------------------------------------ answers with a schema


SCHEMA: dict[str, Any] = {"type": "object", "required": ["unit"], "properties": {"unit": {"type": "string"}}}
FITTING = json.dumps({"unit": "3B"})


def structured(draws: int = 8) -> Plan:
    """The test pool, every prompt with a schema."""
    prompts = tuple(dataclasses.replace(prompt, answer_schema=SCHEMA) for prompt in POOL.prompts)
    pool = dataclasses.replace(POOL, prompts=prompts)
    return plan(planned_draw(pool, size=draws, seed=1, mode=None))


def whole(change: Change) -> Edit:
    """Change whole answers only, whose limit is far over that of a short one."""

    def edit(reply: dict[str, Any]) -> Any:
        choice = reply["choices"][0]
        if len(choice["token_ids"]) > CANARY_TOKENS:
            choice |= change(choice, len(choice["token_ids"]))
        return reply

    return edit


async def with_schema(tmp_path: Path, *, baseline: str, said: str, finish: str = "stop") -> SetReport:
    return only(
        await compared(
            tmp_path,
            baseline=TinyNode(edit=whole(says(baseline))),
            wanted=structured(),
            node=node(edit=whole(says(said, finish=finish))),
        )
    )


@pytest.mark.parametrize(
    ("said", "sign", "words"),
    [
        ("unit: 3B", Sign.NOT_JSON, "is not the JSON that was asked for: 'unit: 3B' (2 prompts)"),
        ('{"unit": 3}', Sign.SCHEMA_MISMATCH, "does not fit its schema: '3 is not of type 'string''"),
        ("<tool_call>{}</tool_call>", Sign.TOOL_CALL_AS_TEXT, "holds the markup of a tool call"),
    ],
)
async def test_broken_structure_warns_where_the_baselines_is_sound(
    tmp_path: Path, said: str, sign: Sign, words: str
) -> None:
    one = await with_schema(tmp_path, baseline=FITTING, said=said)

    assert one.verdict.quality is Quality.WARN
    assert words in one.verdict.reasons[0]
    assert seen(one) == [(sign, Weight.WARNING)] * STRUCTURED_DRAWS
    assert one.observation.canary.structured == STRUCTURED_DRAWS


async def test_broken_structure_of_both_sides_is_held_against_nobody(tmp_path: Path) -> None:
    one = await with_schema(tmp_path, baseline="unit: 3B", said="I do not know.")

    assert one.verdict.quality is Quality.OK
    assert seen(one) == []


async def test_sound_structure_costs_the_baseline_nothing(tmp_path: Path) -> None:
    baseline = TinyNode()
    asked = node(edit=whole(says(FITTING)))

    one = only(await compared(tmp_path, baseline=baseline, wanted=structured(), node=asked))

    assert one.verdict.quality is Quality.OK
    assert [body["max_tokens"] for body in baseline.completions() if body["max_tokens"] > CANARY_TOKENS] == []
    longest = [body["max_tokens"] for body in asked.completions() if body["max_tokens"] > CANARY_TOKENS]
    assert longest == [STRUCTURED_TOKENS] * STRUCTURED_DRAWS


async def test_a_short_and_a_whole_answer_to_one_prompt_are_not_two_prompts(tmp_path: Path) -> None:
    """Both would be stuck on the first prompt; the second is sound."""
    prompts: list[list[int]] = []
    asked = node()

    def first_prompt_only(reply: dict[str, Any]) -> Any:
        choice = reply["choices"][0]
        if len(choice["token_ids"]) >= CANARY_TOKENS:
            prompts.append(choice["prompt_token_ids"])
            if prompts[-1] == prompts[0]:
                choice |= stuck(choice, len(choice["token_ids"]))
        return reply

    asked.edit = first_prompt_only
    one = only(await compared(tmp_path, wanted=structured(), node=asked))

    assert one.verdict.quality is Quality.INCONCLUSIVE
    assert prompts.count(prompts[0]) == 1


async def test_an_answer_that_its_limit_cuts_is_no_broken_structure(tmp_path: Path) -> None:
    """But it is a length sign where the baseline comes to an end."""
    one = await with_schema(tmp_path, baseline=FITTING, said='{"unit": ["', finish="length")

    assert {sign for sign, _ in seen(one)} == {Sign.LENGTH}


@pytest.mark.parametrize(
    ("token_seconds", "tokens"),
    [(None, 0), (0.0, STRUCTURED_TOKENS), (0.01, STRUCTURED_TOKENS), (0.1, 300), (0.2, 150), (0.3, 0)],
)
def test_a_slow_node_is_asked_for_less_or_for_nothing(token_seconds: float | None, tokens: int) -> None:
    assert affordable(token_seconds) == tokens
    assert tokens == 0 or tokens >= STRUCTURED_LEAST


# ------------------------------------------------------------------ in the report


async def test_signs_stand_in_the_json_report_with_the_prompt_they_came_from(tmp_path: Path) -> None:
    one = only(await compared(tmp_path, node=node(edit=speaking(russian, times=1))))

    got = canary_json(one.observation.canary)

    assert (got["answers"], got["structured"]) == (2, 0)
    told = got["signs"][0]
    assert (told["sign"], told["weight"]) == ("foreign_script", "warning")
    assert told["prompt"] in {prompt.id for prompt in POOL.prompts}


async def test_a_node_that_is_the_baselines_equal_to_the_last_bit_is_noted_and_ok(tmp_path: Path) -> None:
    one = only(await compared(tmp_path, node=node()))

    assert one.verdict.quality is Quality.OK
    assert [sign.sign for sign in one.observation.canary.seen] == [Sign.ZERO_DRIFT]
