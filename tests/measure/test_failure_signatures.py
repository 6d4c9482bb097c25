"""The failure signatures that users report, one test a signature, each with data of the kind that was seen.

docs/failures.md links the reports to these tests.
"""

import json
import random
from array import array
from typing import Any

import pytest

from quantwatch.errors import ReplyCorrupted
from quantwatch.flow.canary import FreeAnswer, Sign
from quantwatch.flow.distribution import NO_ID, Distribution
from quantwatch.flow.divergence import Evidence
from quantwatch.flow.prompt import GoldenSequence, ProbeMode
from quantwatch.measure.answer import fault
from quantwatch.measure.canary import Case, signs, suspicious
from quantwatch.measure.compare import Pair, Scope, measure
from quantwatch.measure.shape import flat, signatures
from quantwatch.net import Answer
from quantwatch.probe import reply
from quantwatch.probe.refusal import refuse
from quantwatch.probe.reply import Asked
from support.recordings import exchange, pairs
from support.spoken import cut, ended, ids_of

PROMPT = Case("p", "Explain how a bakery keeps its sourdough alive over the summer break.")
SOUND = cut(
    "A bakery feeds the starter once a week and keeps it in the fridge. Before the break, the baker dries a part of it "
    "on paper, so that there is a copy if the jar fails."
)


def kinds(answer: FreeAnswer, reference: FreeAnswer = SOUND, case: Case = PROMPT) -> set[Sign]:
    return {one.sign for one in signs(answer, reference, case)}


# ------------------------------------------------------------------ one id to the token limit


def test_exclamation_marks_to_the_token_limit_are_one_id() -> None:
    """vllm#53480, #14126, #10713: id 0, which many vocabularies print as `!`, from the first token to the last."""
    (one,) = signs(FreeAnswer((0,) * 32, "!" * 32, 32, "length"), SOUND, PROMPT)

    assert one.sign is Sign.ONE_ID
    assert one.said == f"a free answer is token 0, 32 times over: '{'!' * 32}'"


def test_empty_text_of_id_zero_to_the_limit_is_one_id() -> None:
    """A NaN node of vLLM 0.32: id 0 is a special token there, so the text is empty and the status 200."""
    assert Sign.ONE_ID in kinds(FreeAnswer((0,) * 32, "", 32, "length"))


def test_id_zero_between_other_tokens_is_a_share_of_id_zero() -> None:
    """vllm#10713: NaN at some steps only."""
    ids = tuple(0 if i % 3 else 700 + i for i in range(32))

    assert kinds(FreeAnswer(ids, "!! is!! the!! of", 32, "length")) == {Sign.ID_ZERO}


def test_a_sound_beginning_that_turns_into_id_zero_is_a_share_of_id_zero() -> None:
    start = ids_of("A bakery feeds the starter")

    assert Sign.ID_ZERO in kinds(FreeAnswer(start + (0,) * 27, "A bakery feeds the starter" + "!" * 27, 32, "length"))


# ------------------------------------------------------------------ numbers that no JSON holds


@pytest.mark.parametrize("name", ["c_ids_prompt_logprobs5", "c_ids_logprobs5_tokids", "c_batch_prefixes"])
def test_out_of_range_floats_only_when_logprobs_are_asked_are_corruption(name: str) -> None:
    """sglang#5984, dphn sonar#328, tt-metal#47297, as vLLM 0.32 with a NaN weight answers it."""
    _, status, body = exchange(name, node="nan")

    with pytest.raises(ReplyCorrupted):
        refuse(Answer(status, body, 0.1), node="node")


def test_a_null_logprob_is_a_non_finite_mark() -> None:
    """trl#6693: the whole row was NaN; hiding it makes a broken model look healthy."""
    request, _, body = exchange("c_ids_prompt_logprobs5")
    raw = json.loads(body)
    for entry in raw["choices"][0]["prompt_logprobs"][4].values():
        entry["logprob"] = None
    sequence = GoldenSequence("s", tuple(request["prompt"]), 10)
    asked = Asked("node", 5)

    got = reply.prompt_scoring(reply.read(json.dumps(raw).encode(), asked, choices=1)[0], sequence, asked, seconds=0.1)

    assert [mark.kind for mark in got.marks] == ["non_finite"]


@pytest.mark.parametrize(("value", "kind"), [(-9999.0, "sentinel"), (-3.4e38, "sentinel")])
def test_minus_9999_within_the_top_k_is_a_sentinel_and_no_logprob(value: float, kind: str) -> None:
    """vllm#10234, #11073."""
    request, _, body = exchange("c_ids_prompt_logprobs5")
    raw = json.loads(body)
    entries = [*raw["choices"][0]["prompt_logprobs"][4].values()]
    for entry in entries[1:]:
        entry["logprob"] = value
    sequence, asked = GoldenSequence("s", tuple(request["prompt"]), 10), Asked("node", 5)

    got = reply.prompt_scoring(reply.read(json.dumps(raw).encode(), asked, choices=1)[0], sequence, asked, seconds=0.1)

    assert [mark.kind for mark in got.marks] == [kind]


# ------------------------------------------------------------------ salad


SALAD = "оцен 的な ufact ประเทศ jeho 이는 Ευρ ssid ოდენ ありが qvist تحقيق ndata संस्कृत המש rique"


def rows(top: list[list[float]], *, prompt_id: str = "p", first: int = 0, start: int = 1) -> Distribution:
    """Distributions with these top-k log-probabilities; ids count up from `first`."""
    k = len(top[0])
    return Distribution(
        prompt_id=prompt_id,
        mode=ProbeMode.PROMPT_SCORING,
        k=k,
        prompt_length=start,
        positions=array("q", range(start, start + len(top))),
        ids=array("q", [i for _ in top for i in [*range(first, first + k), NO_ID]]),
        logprobs=array("d", [value for row in top for value in [*row, 0.0]]),
        actual=array("d", [row[0] for row in top]),
        floor=array("d", [row[-1] for row in top]),
    )


PEAKED = [-0.4, -1.9, -3.0, -3.8, -4.5]
NEARLY_FLAT = [-6.0, -6.4, -6.6, -6.7, -6.8]


def test_multilingual_salad_with_a_flat_distribution_is_a_script_salad() -> None:
    """vllm#42715, #35718."""
    assert flat(rows([PEAKED] * 20), rows([NEARLY_FLAT] * 20))
    (one,) = signs(cut(SALAD), SOUND, Case("p", PROMPT.prompt, flat=True))

    assert one.sign is Sign.SCRIPT_SALAD
    assert "nearly flat" in one.said


def test_multilingual_salad_with_sound_distributions_is_only_a_foreign_script() -> None:
    assert kinds(cut(SALAD)) == {Sign.FOREIGN_SCRIPT}


def test_random_tokens_after_sanitizing_show_an_entropy_far_above_the_baselines() -> None:
    """sglang#33206: NaN made finite draws tokens evenly; -ln V itself is a mark, this is just short of it."""
    found = signatures(
        [Pair(rows([PEAKED] * 8, prompt_id=f"p{i}"), rows([NEARLY_FLAT] * 8, prompt_id=f"p{i}")) for i in range(5)]
    )

    assert {one.sign for one in found} == {Sign.ENTROPY_HIGH, Sign.TOP1_LOW}


def test_bytes_that_form_no_text_are_a_flood_of_replacement_characters() -> None:
    """TGI#2894: random characters under load."""
    noise = random.Random(4).randbytes(120).decode("utf-8", "replace")

    assert Sign.REPLACEMENT_FLOOD in kinds(cut(noise))


# ------------------------------------------------------------------ loops and length


def test_a_repetition_loop_is_a_loop() -> None:
    """vllm#5663, #12770; TRT-LLM#1303: one word for ever."""
    assert kinds(cut(" the starter" * 20)) == {Sign.LOOP}
    assert kinds(cut("A jar. " + " starter" * 40)) == {Sign.LOOP}


def test_question_marks_and_slashes_are_a_loop_of_text() -> None:
    """verl#4435: `????////`, in tokens of unequal length."""
    ids = tuple(random.Random(1).choices([30, 31, 90, 91], k=32))

    assert kinds(FreeAnswer(ids, "?" * 90, 32, "length")) == {Sign.LOOP}


def test_a_long_period_is_a_loop_in_a_long_answer() -> None:
    sentence = " I am not able to help you with your starter, but I can help"
    assert 12 <= len(ids_of(sentence)) <= 16

    assert kinds(cut(sentence * 20, limit=128), ended("Feed it.", limit=128)) == {Sign.LOOP, Sign.LENGTH}


def test_sentences_that_come_back_are_repetition() -> None:
    """Some turns, but too few for a loop; alone it only warns."""
    sentence = " Feed it now, and then wait for it."

    assert kinds(cut(sentence * 4)) == {Sign.REPETITION}


def test_answers_several_times_longer_are_a_length_sign() -> None:
    """vllm#13133: fp8 KV cache, 140 tokens before, over a thousand after."""
    answer = cut(SOUND.text + SOUND.text)
    (one,) = signs(answer, ended("Feed it weekly."), PROMPT)

    assert one.sign is Sign.LENGTH
    assert "runs into its limit of 32 tokens, the baseline's ends after 5" in one.said
    assert suspicious(answer, PROMPT, expected=5)


def test_a_loop_makes_every_next_token_certain_which_is_an_entropy_collapse() -> None:
    certain = [-0.001, -8.0, -9.0, -9.5, -10.0]
    found = [
        *signatures(
            [Pair(rows([PEAKED] * 8, prompt_id=f"p{i}"), rows([certain] * 8, prompt_id=f"p{i}")) for i in range(5)]
        )
    ]

    assert [one.sign for one in found] == [Sign.ENTROPY_LOW]


def test_an_empty_answer_where_the_baseline_answers_is_told() -> None:
    assert kinds(FreeAnswer((2,), "", 32, "stop")) == {Sign.EMPTY}


# ------------------------------------------------------------------ tool calls and structure


TOOLS: dict[str, Any] = {
    "type": "object",
    "required": ["name", "arguments"],
    "properties": {
        "name": {"enum": ["set_schedule", "pause_zone"]},
        "arguments": {"type": "object", "required": ["zone"], "properties": {"zone": {"type": "integer"}}},
    },
}


def test_a_tool_call_left_in_content_is_told() -> None:
    """dgx-spark#89, lmdeploy#4743: markup in the text, finish reason `stop`."""
    text = '<tool_call>\n{"name": "pause_zone", "arguments": {"zone": 3}}\n</tool_call>'

    assert fault(text, TOOLS) == (
        Sign.TOOL_CALL_AS_TEXT,
        "an answer holds the markup of a tool call where JSON was asked for",
    )


@pytest.mark.parametrize(
    "text", ['{"name": "pause_zone", "arguments": {"zone": 3}', "pause_zone(3)", "", '{"name": NaN}', "[" * 5000]
)
def test_a_broken_bracket_is_no_json(text: str) -> None:
    """hipfire#111: XML and JSON mixed."""
    found = fault(text, TOOLS)

    assert found is not None
    assert found[0] is Sign.NOT_JSON


def test_a_tool_that_was_not_offered_is_an_unknown_name() -> None:
    found = fault('{"name": "stop_zone", "arguments": {"zone": 3}}', TOOLS)

    assert found == (Sign.UNKNOWN_NAME, "an answer calls what was not offered, at '$.name'")


def test_wrong_arguments_are_a_schema_mismatch() -> None:
    """onnxruntime-genai#1334."""
    found = fault('{"name": "pause_zone", "arguments": {"zone": "three"}}', TOOLS)

    assert found is not None
    assert found[0] is Sign.SCHEMA_MISMATCH
    assert "'three' is not of type 'integer'" in found[1]


# ------------------------------------------------------------------ what a divergence shows


def pair(position_shift: list[float], i: int) -> Pair:
    """A node whose most probable token loses this much, in nats, position by position."""
    shifted = [[row - shift if j == 0 else row for j, row in enumerate(PEAKED)] for shift in position_shift]
    return Pair(rows([PEAKED] * len(position_shift), prompt_id=f"p{i}"), rows(shifted, prompt_id=f"p{i}"))


def test_right_at_first_and_wrong_later_shows_in_the_numbers() -> None:
    """vllm#38652, #23813; llama.cpp#23606: sound for 64 tokens, then not."""
    node = [pair([0.0] * 64 + [2.5] * 32, i) for i in range(8)]

    got = measure(node, scope=Scope.CONTINUATION, evidence=Evidence.DRAW)

    assert got.kl_median == pytest.approx(0.0, abs=1e-6)
    assert got.kl_mean.value > 0.1
    assert got.top1_agreement.value == pytest.approx(64 / 96)


def test_wrong_later_is_told_by_depth() -> None:
    node = [pair([0.0] * 64 + [2.5] * 32, i) for i in range(8)]

    parts = measure(node, scope=Scope.CONTINUATION, evidence=Evidence.DRAW).slices

    told = {part.value: part.top1_agreement.value for part in parts if part.dimension == "depth"}
    assert told == {"early": 1.0, "middle": 1.0, "late": 0.0}


def test_one_sick_prompt_family_of_many_shows_in_the_tail() -> None:
    """ai-dynamo#12463: one bad replica ruins whole prompt families while the average stays presentable."""
    node = [pair([2.5 if i == 0 else 0.0] * 24, i) for i in range(12)]

    got = measure(node, scope=Scope.CONTINUATION, evidence=Evidence.DRAW)

    assert got.kl_p99.value > 20 * max(got.kl_median, 0.01)


def test_flips_without_a_change_of_accuracy_lower_the_top1_agreement() -> None:
    """arXiv 2407.09141: as many answers get right as wrong, and still the model is another one."""
    twisted = [PEAKED[1], PEAKED[0], *PEAKED[2:]]
    node = [
        Pair(rows([PEAKED] * 10, prompt_id=f"p{i}"), rows([PEAKED] * 8 + [twisted] * 2, prompt_id=f"p{i}"))
        for i in range(8)
    ]

    got = measure(node, scope=Scope.CONTINUATION, evidence=Evidence.DRAW)

    assert got.top1_agreement.value == pytest.approx(0.8)


def test_zero_drift_is_noted_and_never_more() -> None:
    """mlx-quant-fidelity's guard: both URLs are one server, or quantization is not engaged."""
    same = [Pair(one.baseline, one.baseline) for one in pairs("int4-w4g64")]

    assert [(one.sign, one.weight) for one in signatures(same)] == [(Sign.ZERO_DRIFT, "note")]


@pytest.mark.parametrize("node", ["int8-w8a8-smoothquant", "int8-w8a8-outlier", "int4-w4g64"])
def test_a_quantized_node_that_drifts_shows_no_signature(node: str) -> None:
    """The recorded nodes, the worst of them with a mean KL of 0.3: their numbers are for the limits to judge."""
    assert list(signatures(pairs(node))) == []
