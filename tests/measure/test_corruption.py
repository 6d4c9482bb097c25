"""Loops and repeated ids, on their own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantwatch.measure.corruption import (
    LONGEST_PERIOD,
    MIN_RUN,
    Loop,
    degenerate,
    loop_at_end,
    mostly_id_zero,
    one_id,
    one_id_to_the_limit,
    repetition,
)


@pytest.mark.parametrize(
    ("ids", "limit", "broken"),
    [
        ([0] * 32, 32, True),
        ([0] * 31, 32, False),
        ([0] * 31 + [5], 32, False),
        ([0] * (MIN_RUN - 1), MIN_RUN - 1, False),
        ([], 32, False),
    ],
)
def test_only_one_id_repeated_to_the_limit_is_a_sign(ids: list[int], limit: int, broken: bool) -> None:
    assert one_id_to_the_limit(ids, limit) is broken


@pytest.mark.parametrize(
    ("items", "loop"),
    [
        ([], Loop(1, 0)),
        ([7], Loop(1, 1)),
        ([1, 2, 3], Loop(1, 1)),
        ([9, 4, 4, 4], Loop(1, 3)),
        ([9, 1, 2, 1, 2, 1], Loop(2, 5)),
        ([1, 2, 3, 1, 2, 3], Loop(3, 6)),
        ([4, 4, 4, 9], Loop(1, 1)),
        ("abcabcab", Loop(3, 8)),
    ],
)
def test_the_end_of_a_sequence_has_a_period_and_a_length(items: list[int], loop: Loop) -> None:
    assert loop_at_end(items) == loop


@given(
    st.lists(st.integers(0, 3), max_size=12),
    st.lists(st.integers(0, 3), min_size=1, max_size=LONGEST_PERIOD),
    st.integers(2, 6),
)
def test_a_loop_is_found_whatever_stands_before_it(before: list[int], turn: list[int], turns: int) -> None:
    found = loop_at_end(before + turn * turns)

    assert found.length >= len(turn) * turns
    whole = before + turn * turns
    tail = whole[len(whole) - found.length :]
    assert all(tail[i] == tail[i - found.period] for i in range(found.period, len(tail)))


def test_a_period_that_is_too_long_is_no_loop() -> None:
    assert loop_at_end([*range(LONGEST_PERIOD + 1)] * 4) == Loop(1, 1)


@pytest.mark.parametrize(
    ("loop", "whole", "broken"),
    [
        (Loop(4, 24), 32, True),
        (Loop(4, 23), 32, False),
        (Loop(5, 32), 32, True),
        (Loop(6, 32), 32, False),
        (Loop(1, 15), 15, False),
        (Loop(16, 96), 128, True),
    ],
)
def test_a_loop_is_degenerate_by_its_share_and_its_turns(loop: Loop, whole: int, broken: bool) -> None:
    assert degenerate(loop, whole) is broken


@pytest.mark.parametrize(
    ("loop", "whole", "one"),
    [(Loop(1, 32), 32, True), (Loop(1, 30), 32, True), (Loop(1, 29), 32, False), (Loop(2, 32), 32, False)],
)
def test_one_id_fills_the_answer_but_for_its_opening(loop: Loop, whole: int, one: bool) -> None:
    assert one_id(loop, whole) is one


@pytest.mark.parametrize(("zeros", "mostly"), [(16, True), (15, False)])
def test_id_zero_takes_up_half_of_the_answer(zeros: int, mostly: bool) -> None:
    assert mostly_id_zero([0] * zeros + [*range(1, 33 - zeros)]) is mostly


def test_a_few_ids_are_not_mostly_anything() -> None:
    assert not mostly_id_zero([0] * (MIN_RUN - 1))


def test_repetition_counts_four_grams_that_came_before() -> None:
    assert repetition([1, 2, 3]) == 0.0
    assert repetition([1, 2, 3, 4, 5, 6]) == 0.0
    assert repetition([1, 1, 1, 1, 1, 1]) == pytest.approx(2 / 3)
    assert repetition([*range(8)] * 4) == pytest.approx(1 - 8 / 29)
