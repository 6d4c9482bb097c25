"""Draws: with replacement, from a recorded seed, the same on every machine."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantwatch.flow.prompt import LengthBucket, Prompt, PromptSet
from quantwatch.prompts.draw import distinct, draw, scored_positions


def prompt(name: str) -> Prompt:
    return Prompt(id=name, language="en", length=LengthBucket.SHORT, tags=("a",), text=f"words of {name}")


POOL = PromptSet("letters", "ten prompts", tuple(prompt(letter) for letter in "abcdefghij"), digest="0")


def ids(pool: PromptSet, *, size: int, seed: int) -> str:
    return "".join(one.id for one in draw(pool, size=size, seed=seed))


def test_a_draw_never_changes_between_releases() -> None:
    assert ids(POOL, size=24, seed=7) == "figgbggcjeajjbicgbbbjegf"


def test_the_same_seed_gives_the_same_draw() -> None:
    assert ids(POOL, size=24, seed=7) == ids(POOL, size=24, seed=7)


def test_another_seed_gives_another_draw() -> None:
    assert len({ids(POOL, size=24, seed=seed) for seed in range(50)}) == 50


def test_another_pool_gives_another_draw() -> None:
    assert ids(PromptSet("other", "", POOL.prompts, digest="0"), size=24, seed=7) != ids(POOL, size=24, seed=7)


def test_the_order_of_the_file_does_not_change_the_draw() -> None:
    shuffled = list(POOL.prompts)
    random.Random(1).shuffle(shuffled)
    assert ids(PromptSet("letters", "", tuple(shuffled), digest="0"), size=24, seed=7) == ids(POOL, size=24, seed=7)


def test_a_draw_is_made_with_replacement() -> None:
    assert max(Counter(ids(POOL, size=24, seed=7)).values()) > 1


def test_a_draw_can_be_larger_than_the_pool() -> None:
    assert len(ids(POOL, size=1000, seed=0)) == 1000


def test_a_draw_begins_like_a_shorter_draw_of_the_same_seed() -> None:
    assert ids(POOL, size=24, seed=7).startswith(ids(POOL, size=10, seed=7))


def test_every_prompt_is_as_likely_as_every_other() -> None:
    counts = Counter("".join(ids(POOL, size=24, seed=seed) for seed in range(1000)))
    chi2 = sum((counts[letter] - 2400) ** 2 / 2400 for letter in "abcdefghij")
    assert chi2 < 27.88  # 99.9 % of chi-squared with 9 degrees of freedom


def test_distinct_prompts_stand_in_the_order_of_their_first_draw() -> None:
    drawn = tuple(prompt(letter) for letter in "cabcac")
    assert [one.id for one in distinct(drawn)] == ["c", "a", "b"]


def test_nothing_drawn_is_nothing_distinct() -> None:
    assert distinct(()) == ()


def test_scored_positions_never_change_between_releases() -> None:
    assert scored_positions(10, 110, limit=5, seed=7, prompt_id="a") == (69, 81, 82, 83, 101)


def test_all_positions_are_scored_when_they_are_few() -> None:
    assert scored_positions(10, 14, limit=4, seed=0, prompt_id="a") == (10, 11, 12, 13)


def test_no_continuation_leaves_no_position() -> None:
    assert scored_positions(10, 10, limit=4, seed=0, prompt_id="a") == ()


def test_another_seed_scores_other_positions() -> None:
    assert len({scored_positions(10, 110, limit=5, seed=seed, prompt_id="a") for seed in range(20)}) == 20


def test_another_prompt_is_scored_at_other_positions() -> None:
    assert len({scored_positions(10, 110, limit=5, seed=0, prompt_id=name) for name in "abcdefghij"}) == 10


@given(st.integers(1, 50), st.integers(0, 200), st.integers(1, 40), st.integers(0, 2**32))
def test_scored_positions_are_ascending_distinct_and_within_the_continuation(
    start: int, answer: int, limit: int, seed: int
) -> None:
    found = scored_positions(start, start + answer, limit=limit, seed=seed, prompt_id="a")
    assert list(found) == sorted(set(found))
    assert len(found) == min(limit, answer)
    assert all(start <= position < start + answer for position in found)


@pytest.mark.parametrize("position", [10, 59, 109])
def test_first_and_last_positions_can_be_scored_too(position: int) -> None:
    seen = {one for seed in range(300) for one in scored_positions(10, 110, limit=5, seed=seed, prompt_id="a")}
    assert position in seen
