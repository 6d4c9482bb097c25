"""Whole columns at once and row by row: the same numbers, marks and errors, whatever the rows."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantwatch.errors import ProbeError
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.prompt import GoldenSequence
from quantwatch.probe import bulk, reply
from quantwatch.probe.wire import Choice, Entry, Odd
from support.wellformed import check_distribution, check_error, same_numbers

OWN = 7

near = st.sampled_from([0.0, -0.0, 1e-4, 9e-5, 1.1e-4, -9.0, -9.0005, -9.01, -10.4, -9997.9, -9998.0, -9999.0, -1e308])
"""Values on both sides of every limit of a row."""

values = st.one_of(near, st.floats(-12.0, 0.0), st.floats(-9.5, -8.9), st.floats(allow_nan=False, allow_infinity=False))


@st.composite
def rows(draw: st.DrawFn, k: int) -> dict[str, Any]:
    """A position that lists token 7 somewhere, of the right length more often than not."""
    size = draw(st.sampled_from([k, k, k + 1, k + 1, k + 1, k - 1, k + 2]))
    ids = draw(st.lists(st.integers(0, 50).filter(lambda one: one != OWN), min_size=max(size - 1, 0), unique=True))
    ids = ids[: max(size - 1, 0)]
    ids.insert(draw(st.sampled_from([0, 0, 0, len(ids)])), OWN)
    numbers = draw(row_values(len(ids)))
    rank = draw(st.sampled_from([1, 1, 1, 1, 0, None]))
    return {str(one): {"logprob": value, "rank": rank} for one, value in zip(ids, numbers, strict=True)}


@st.composite
def row_values(draw: st.DrawFn, count: int) -> list[float]:
    """Values of one position: mostly of a distribution, its sum now and then close to what is allowed."""
    if draw(st.integers(0, 2)) == 0:
        return draw(st.lists(values, min_size=count, max_size=count))
    weights = draw(st.lists(st.floats(1e-6, 1.0), min_size=count, max_size=count))
    total = sum(weights) / draw(st.sampled_from([0.5, 0.9, 1.0, 1.0004, 1.0006, 1.000999, 1.001001, 1.1]))
    numbers = sorted((math.log(weight / total) for weight in weights), reverse=True)
    return [numbers[-1], *numbers[:-1]]


@st.composite
def replies(draw: st.DrawFn) -> tuple[int, list[dict[str, Any]]]:
    k = draw(st.integers(1, 7))
    return k, draw(st.lists(rows(k), min_size=1, max_size=4))


def outcome(choice: Choice, k: int, length: int, raw_proven: bool) -> Distribution | str:
    sequence = GoldenSequence("s", (1, *[OWN] * length), 1)
    try:
        return reply.prompt_scoring(choice, sequence, reply.Asked("n", k, raw_proven), seconds=0.0)
    except ProbeError as exc:
        check_error(exc)
        return str(exc)


@given(replies(), st.booleans())
def test_both_ways_agree(drawn: tuple[int, list[dict[str, Any]]], raw_proven: bool) -> None:
    k, listed = drawn
    raw = {"index": 0, "prompt_token_ids": [1, *[OWN] * len(listed)], "prompt_logprobs": [None, *listed]}
    choice = reply.read(json.dumps({"choices": [raw]}).encode(), reply.Asked("n", k), choices=1)[0]

    whole = outcome(choice, k, len(listed), raw_proven)
    one_by_one = outcome(Odd(**msgspec.structs.asdict(choice)), k, len(listed), raw_proven)

    if isinstance(whole, str) or isinstance(one_by_one, str):
        assert whole == one_by_one
        return
    assert all(same_numbers(whole, one_by_one))
    check_distribution(whole, listed, [OWN] * len(listed))


HEALTHY = {OWN: Entry(-0.5), 5: Entry(-1.5), 6: Entry(-2.5)}


def test_healthy_rows_go_the_fast_way() -> None:
    found = bulk.columns([HEALTHY, {5: Entry(-0.7), OWN: Entry(-1.4)}], [OWN, OWN], k=2)

    assert found is None  # the own token of the first row is beyond rank 2 by its place, and likelier than the others
    beyond = {OWN: Entry(-3.5), 5: Entry(-0.5), 6: Entry(-2.5)}
    found = bulk.columns([beyond, {5: Entry(-0.7), OWN: Entry(-1.4)}], [OWN, OWN], k=2)

    assert found is not None
    assert list(found.ids) == [5, 6, OWN, 5, OWN, -1]
    assert list(found.logprobs) == [-0.5, -2.5, -3.5, -0.7, -1.4, 0.0]
    assert list(found.actual) == [-3.5, -1.4]
    assert list(found.floor) == [-2.5, -1.4]
    assert found.marks == []


@pytest.mark.parametrize(
    "row",
    [
        None,
        {5: Entry(-1.0), 6: Entry(-2.0)},
        {OWN: Entry(-1.0)},
        {5: Entry(-1.0), OWN: Entry(-2.0), 6: Entry(-1.5)},
        {OWN: Entry(-1.0), 5: Entry(-2.0), 6: Entry(-2.5), 8: Entry(-3.0)},
        {OWN: Entry(-0.1), 5: Entry(-0.2)},
        {OWN: Entry(0.0), 5: Entry(0.0)},
        {OWN: Entry(-10.4), 5: Entry(-10.4)},
    ],
)
def test_rows_that_look_odd_are_left_to_the_careful_way(row: dict[int, Entry] | None) -> None:
    assert bulk.columns([row], [OWN], k=2) is None


def test_no_rows_are_no_columns() -> None:
    found = bulk.columns([], [], k=3)

    assert found is not None
    assert (len(found.ids), len(found.logprobs), len(found.actual), len(found.floor)) == (0, 0, 0, 0)
