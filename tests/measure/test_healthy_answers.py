"""What healthy models write and detectors of broken ones must leave alone."""

import base64
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from quantwatch.flow.canary import PROOFS, FreeAnswer, Sign, Weight
from quantwatch.flow.prompt import Prompt
from quantwatch.measure.canary import Case, signs, suspicious
from quantwatch.prompts.load import load_set
from support.recordings import DATA, scored
from support.spoken import cut, ended, pieces

ROOT = Path(__file__).resolve().parents[2]
PROMPT = Case("p", "Answer as well as you can.")
PLAIN = ended("Yes, it can be done.")

ROW = "| 2026-11-29 | gate 4 | open | 12.5 kPa |\n"

HEALTHY = {
    "code with many spaces": "def f(x):\n"
    + "        " * 6
    + "if x:\n"
    + "            return x\n" * 3
    + "    return None\n" * 2,
    "a markdown table": "| day | gate | state | load |\n| --- | --- | --- | --- |\n"
    + ROW
    + ROW.replace("open", "shut"),
    "a row repeated twenty times": "| day | gate | state | load |\n" + ROW * 20,
    "long digits": "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534",
    "a large round number": "A googol is 1" + "0" * 100 + ".",
    "a numbered list": "".join(f"{i}. Check valve {i} and note its pressure.\n" for i in range(1, 12)),
    "chinese with latin code": "用 `sorted(values, key=len)` 按长度排序，再用 print(values[-1]) 输出最长的词。",
    "base64": base64.b64encode(random.Random(7).randbytes(90)).decode(),
    "laughter": "Ha ha ha ha ha ha ha! That is a good one.",
    "a rule of dashes": "Notes\n" + "-" * 60 + "\nnothing to report",
    "emoji": "Well done! 🎉🎉🎉🎉🎉🎉🎉🎉 See you at the picnic 🧺🌞.",
    "math": "∑ xᵢ² ≤ (∑ xᵢ)² for x ≥ 0, so ‖x‖₂ ≤ ‖x‖₁; with μ and σ² as above, Δ = b² − 4ac ≥ 0.",
    "styled letters": "𝐁𝐨𝐥𝐝 and ｆｕｌｌ ｗｉｄｔｈ, ⓒircled and ﬁne ligatures",
    "a word about replacement": "U+FFFD looks like \ufffd and stands for bytes that form no text.",
    "json": json.dumps([{"client": "203.0.113.9", "status": 200, "bytes": 18734 + i} for i in range(6)]),
    "a song": "Row, row, row your boat\nGently down the stream\nMerrily, merrily, merrily, merrily",
    "a dna sequence": "".join(random.Random(3).choices("ACGT", k=90)),
    "a csv of zeros and ones": ",".join(random.Random(5).choices("01", k=60)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_answer_that_ends_shows_nothing(name: str) -> None:
    case = Case("p", "怎么找出最长的词？") if "chinese" in name else PROMPT

    assert signs(ended(HEALTHY[name]), PLAIN, case) == ()


@pytest.mark.parametrize("name", [name for name, text in HEALTHY.items() if len(pieces(text)) >= 32])
def test_a_healthy_answer_that_the_limit_cuts_proves_nothing(name: str) -> None:
    assert [one for one in signs(cut(HEALTHY[name]), PLAIN, PROMPT) if one.sign in PROOFS] == []


def test_what_the_prompt_asks_to_repeat_is_repeated_by_the_baseline_too() -> None:
    asked = cut("ha " * 40)

    assert signs(asked, cut("ha ha " * 40), Case("p", "Laugh as long as you can.")) == ()


def test_a_cut_table_of_equal_rows_is_the_baselines_table_too() -> None:
    assert signs(cut(ROW * 40, limit=256), cut(ROW * 40, limit=256), PROMPT) == ()


def test_a_character_that_the_limit_cuts_is_no_replacement() -> None:
    answer = cut("Well done, all of you who baked, and who came so far, and who stayed to the end! " + HEALTHY["emoji"])
    text = answer.text[:-1] + "\ufffd" * 3

    found = signs(FreeAnswer(answer.ids, text, 32, "length"), PLAIN, PROMPT)

    assert [one for one in found if one.sign is not Sign.LENGTH] == []


def test_a_translation_in_the_script_that_was_asked_for_is_the_baselines_script_too() -> None:
    case = Case("p", "Translate into Russian: the kettle is on the stove.")

    assert signs(ended("Чайник стоит на плите."), ended("Чайник на плите."), case) == ()


@pytest.mark.parametrize("node", ["fp32", "int8-w8a8-smoothquant", "int4-w4g64"])
def test_recorded_continuations_show_no_loop(node: str) -> None:
    for sequence, _ in scored(node):
        ids = sequence.continuation
        answer = FreeAnswer(ids, "".join(chr(0x4E00 + token % 20000) for token in ids), len(ids), "length")
        assert [one for one in signs(answer, PLAIN, Case("p")) if one.sign in {*PROOFS, Sign.LOOP}] == []


def shipped() -> Iterator[Prompt]:
    for path in sorted((ROOT / "golden_prompts").glob("*.yaml")):
        yield from load_set(path).prompts


def test_the_words_of_the_shipped_prompts_show_nothing_even_as_answers() -> None:
    """What people write of code, tables, logs, Chinese and JSON, as an answer that ended or was cut."""
    checked = 0
    for prompt in shipped():
        text = prompt.content[:3000]
        size = len(pieces(text))
        for answer in (ended(text), cut(text, limit=size)):
            found = signs(answer, ended("As you wish."), Case(prompt.id, prompt.content))
            told = [one for one in found if one.sign not in (Sign.REPETITION, Sign.LENGTH)]
            assert told == [], (prompt.id, told)
            checked += 1
    assert checked > 500


def recorded(model: str) -> dict[str, FreeAnswer]:
    """Greedy answers of SmolLM2-135M-Instruct to shipped prompts; see tests/data/README.md."""
    raw = json.loads(gzip.decompress((DATA / "answers" / f"{model}.json.gz").read_bytes()))
    answers, limit = raw["answers"], raw["limit"]
    return {one["id"]: FreeAnswer(tuple(one["ids"]), one["text"], limit, one["finish"]) for one in answers}


def test_recorded_answers_of_a_4_bit_model_prove_nothing_beside_those_of_the_unquantized_one() -> None:
    ours, theirs = recorded("fp32"), recorded("int4")
    prompts = {prompt.id: prompt.content for prompt in shipped()}

    seen = [one for name, answer in theirs.items() for one in signs(answer, ours[name], Case(name, prompts[name]))]

    assert len(theirs) > 100
    assert [one for one in seen if one.weight is Weight.PROOF] == []
    assert sum(one.sign is Sign.LOOP for one in seen) < 0.05 * len(theirs)


def test_a_healthy_model_that_answered_like_a_broken_one_would_be_found_in_the_recordings() -> None:
    """The other way round: the detectors are awake on the same data."""
    ours = recorded("fp32")
    broken = {name: FreeAnswer((0,) * 32, "!" * 32, 32, "length") for name in ours}

    found = [signs(broken[name], answer, Case(name)) for name, answer in ours.items()]

    assert sum(bool(one) for one in found) > 0.6 * len(ours)


@pytest.mark.parametrize(
    ("answer", "case", "expected", "worth"),
    [
        (ended("Yes, it can."), PROMPT, 8, False),
        (ended(""), PROMPT, 8, True),
        (cut("ha ha " * 40), PROMPT, 8, True),
        (ended("Привет, как дела сегодня"), PROMPT, 8, True),
        (ended("Привет, как дела сегодня"), Case("p"), 8, False),
        (cut(HEALTHY["a markdown table"]), PROMPT, 2, True),
        (cut(HEALTHY["a markdown table"]), PROMPT, 32, False),
    ],
)
def test_the_baseline_is_asked_for_its_own_answer_only_where_one_is_odd(
    answer: FreeAnswer, case: Case, expected: int, *, worth: bool
) -> None:
    assert suspicious(answer, case, expected=expected) is worth


def test_what_a_broken_reference_says_excuses_everything() -> None:
    """An answer of one token over and over proves a broken model; beside it nothing can be held against a node."""
    broken = FreeAnswer((7,) * 32, "ab" * 32, 32, "length")

    assert signs(cut("ha ha " * 40), broken, PROMPT) == ()


def test_some_replacement_characters_warn_and_a_flood_of_them_proves() -> None:
    stray = ended("The lamp \ufffd burns \ufffd all \ufffd night at sea.")
    flood = ended("\ufffd" * 24)

    assert [(one.sign, one.weight) for one in signs(stray, PLAIN, PROMPT)] == [(Sign.REPLACEMENT, Weight.WARNING)]
    assert [(one.sign, one.weight) for one in signs(flood, PLAIN, PROMPT)] == [(Sign.REPLACEMENT_FLOOD, Weight.PROOF)]
