"""What would make a pool a worse instrument is found, and nothing else."""

import pytest

from quantwatch.flow.prompt import LengthBucket, Message, ProbeMode, Prompt, PromptSet
from quantwatch.prompts.estimate import bucket_of, estimated_tokens
from quantwatch.prompts.lint import faults, grams, words

UNALIKE = (
    "Why does the moon pull the sea twice a day?",
    "List three birds that cannot fly.",
    "Somebody left a bicycle in our hall; write a polite note.",
    "My bread never rises - what went wrong?",
)


def prompt(name: str, text: str, length: LengthBucket | None = None) -> Prompt:
    return Prompt(id=name, language="en", length=length or bucket_of(text), tags=("a",), text=text)


def pool(*texts: str, mode: ProbeMode = ProbeMode.ONE_TOKEN) -> PromptSet:
    return PromptSet("tiny", "", tuple(prompt(f"p{i}", text) for i, text in enumerate(texts)), digest="0", mode=mode)


def test_prompts_that_are_unalike_have_no_faults() -> None:
    assert faults(pool(*UNALIKE)) == []


def test_equal_prompts_are_found() -> None:
    assert faults(pool(*UNALIKE, UNALIKE[1])) == ["p1 and p4 have the same text"]


def test_near_duplicates_are_found_with_their_share() -> None:
    twin = UNALIKE[0].replace("twice", "once")  # the word stands in 4 of 7 runs
    assert faults(pool(UNALIKE[0], twin)) == ["p0 and p1 share 43% of their 5-grams"]


def test_what_may_be_shared_is_counted_from_the_shorter_prompt() -> None:
    whole = UNALIKE[2] + " Then tell me why a kettle sings before the water in it has come to the boil at all."
    assert faults(pool(UNALIKE[2], whole)) == ["p0 and p1 share 100% of their 5-grams"]


def test_two_fifths_may_be_shared() -> None:
    shared = "one two three four five six"  # two of five 5-grams: exactly the limit
    assert faults(pool(f"{shared} seven eight nine", f"{shared} ten eleven twelve")) == []


def test_more_than_two_fifths_may_not_be_shared() -> None:
    shared = "one two three four five six seven"
    assert faults(pool(f"{shared} eight nine", f"{shared} ten eleven")) == ["p0 and p1 share 60% of their 5-grams"]


def test_a_conversation_is_compared_with_all_its_words() -> None:
    talk = Prompt("talk", "en", LengthBucket.SHORT, ("a",), messages=(Message("user", UNALIKE[0]),))
    found = faults(PromptSet("tiny", "", (prompt("text", UNALIKE[0]), talk), digest="0"))
    assert found == ["text and talk have the same text"]


TAILS = (
    "rain on a warm slate roof",
    "clocks that tick too loud",
    "salt for our icy front steps",
    "moss under very old stones",
)


def test_three_prompts_may_open_alike() -> None:
    assert faults(pool(*(f"Tell me about {tail}" for tail in TAILS[:3]))) == []


def test_four_prompts_may_not_open_alike() -> None:
    assert faults(pool(*(f"Tell me about {tail}" for tail in TAILS[:4]))) == [
        "4 prompts open with 'tell me about': p0, p1, p2, p3"
    ]


def test_four_prompts_may_not_close_alike() -> None:
    assert faults(pool(*(f"{tail}, and keep it short" for tail in TAILS[:4]))) == [
        "4 prompts close with 'and keep it short': p0, p1, p2, p3"
    ]


def test_numbers_do_not_make_an_opening_different() -> None:
    (fault,) = faults(pool(*(f"Give {i + 2} facts: {tail}" for i, tail in enumerate(TAILS[:4]))))
    assert fault.startswith("4 prompts open with 'give 0 facts'")


def test_the_pattern_of_a_conversation_is_that_of_its_question() -> None:
    talks = tuple(
        Prompt(
            f"t{i}", "en", LengthBucket.SHORT, ("a",), messages=(Message("system", "Be kind now"), Message("user", q))
        )
        for i, q in enumerate(UNALIKE)
    )
    assert faults(PromptSet("tiny", "", talks, digest="0")) == []


@pytest.mark.parametrize(
    ("length", "told"),
    [
        (LengthBucket.MEDIUM, "p: length is medium, but about 11 tokens are short"),
        (LengthBucket.LONG, "p: length is long, but about 11 tokens are short"),
    ],
)
def test_a_wrong_length_is_found_with_the_right_one(length: LengthBucket, told: str) -> None:
    one = PromptSet("tiny", "", (prompt("p", UNALIKE[0], length),), digest="0", mode=ProbeMode.ONE_TOKEN)
    assert faults(one) == [told]


def numbered(start: int, count: int) -> str:
    """Words that never repeat within one text."""
    return " ".join(f"{i:x}q".translate(str.maketrans("0123456789", "ghijklmnop")) for i in range(start, start + count))


def test_filler_in_a_long_prompt_is_found() -> None:
    filler = f"{numbered(0, 60)} {numbered(1000, 900)} {numbered(0, 60)}"
    assert faults(pool(filler)) == ["p0: a run of 50 words stands twice"]


def test_a_long_prompt_without_filler_has_no_faults() -> None:
    assert faults(pool(numbered(0, 1100))) == []


def test_a_long_prompt_in_a_set_that_is_scored_in_one_request_is_found() -> None:
    found = faults(pool(numbered(0, 1100), mode=ProbeMode.PROMPT_SCORING))
    assert found == ["p0: long prompts need a set with mode: one_token"]


def test_a_short_run_may_stand_twice_in_a_long_prompt() -> None:
    assert faults(pool(f"{numbered(0, 49)} {numbered(1000, 1000)} {numbered(0, 49)}")) == []


def test_words_are_lower_case_words_numbers_marks_and_characters() -> None:
    assert words("Don't SELECT id_2 = 17; 海水!") == ["don't", "select", "id_", "2", "=", "17", ";", "海", "水", "!"]


def test_grams_are_runs_of_words_in_order() -> None:
    assert grams("a b c d", 3) == [("a", "b", "c"), ("b", "c", "d")]


def test_a_text_shorter_than_a_run_has_no_grams() -> None:
    assert grams("a b", 3) == []


ESTIMATES = [
    ("", 0),
    ("a", 1),
    ("abcd", 1),
    ("abcde", 2),
    ("海", 1),
    ("海水", 2),
    ("海水ab", 3),
    ("，。", 2),
    ("x" * 400, 100),
]


@pytest.mark.parametrize(("text", "tokens"), ESTIMATES)
def test_a_token_is_four_characters_or_one_wide_one(text: str, tokens: int) -> None:
    assert estimated_tokens(text) == tokens


BUCKETS = [
    ("x" * 252, LengthBucket.SHORT),
    ("x" * 253, LengthBucket.MEDIUM),
    ("海" * 63, LengthBucket.SHORT),
    ("海" * 64, LengthBucket.MEDIUM),
    ("x" * 3996, LengthBucket.MEDIUM),
    ("x" * 3997, LengthBucket.LONG),
    ("海" * 999, LengthBucket.MEDIUM),
    ("海" * 1000, LengthBucket.LONG),
]


@pytest.mark.parametrize(("text", "bucket"), BUCKETS)
def test_buckets_change_at_64_and_1000_tokens(text: str, bucket: LengthBucket) -> None:
    assert bucket_of(text) is bucket
