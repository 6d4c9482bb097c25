"""Text that grows by pieces of characters."""

from pathlib import Path

import pytest

from quantwatch.lab.words import Words
from quantwatch.toolkit.prepare import prepare
from quantwatch.toolkit.recipe import Recipe


@pytest.fixture(scope="module")
def words(tiny: Path) -> Words:
    return Words(prepare(tiny, Recipe(), tell=lambda _: None).tokenizer)


def bytes_of(words: Words, text: str) -> list[int]:
    """Tokens of single bytes, so that characters are cut."""
    ids = words.encode(text, special=False)
    assert len(ids) > len(text)
    return ids


def test_half_characters_wait_for_their_other_half(words: Words) -> None:
    ids, stream = bytes_of(words, "né🦊"), words.stream([])
    grown = []
    for token in ids:
        stream.push(token)
        grown.append(stream.text)

    assert grown[-1] == "né🦊"
    assert set(grown) <= {"n", "né", "né🦊"}


def test_half_a_character_in_the_prompt_comes_out_with_its_other_half(words: Words) -> None:
    ids = bytes_of(words, "🦊")
    stream = words.stream(ids[:-1])

    stream.push(ids[-1])

    assert stream.text == "🦊"


def test_the_prompt_is_no_part_of_the_text(words: Words) -> None:
    stream = words.stream(words.encode("The quick brown", special=False))

    for token in words.encode(" fox jumps", special=False):
        stream.push(token)

    assert stream.text == " fox jumps"


def test_special_tokens_are_left_out(words: Words) -> None:
    stream = words.stream([])
    for token in words.encode("a<|im_end|>b", special=False):
        stream.push(token)

    assert stream.text == "ab"


def test_the_last_piece_of_a_character_is_named_by_the_whole(words: Words) -> None:
    ids = bytes_of(words, "🦊")

    assert [words.within(token, ids[:i]) for i, token in enumerate(ids)] == [""] * (len(ids) - 1) + ["🦊"]


def test_whole_tokens_are_named_alone(words: Words) -> None:
    ids = words.encode("The quick", special=False)

    assert "".join(words.within(token, []) for token in ids) == "The quick"
