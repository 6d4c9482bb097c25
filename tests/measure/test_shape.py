"""How peaked distributions are."""

import dataclasses
import math
from array import array

import pytest

from quantwatch.flow.canary import Seen, Sign
from quantwatch.flow.distribution import NO_ID, Distribution, Mark, MarkKind
from quantwatch.flow.prompt import ProbeMode
from quantwatch.measure.compare import Pair
from quantwatch.measure.shape import POSITIONS, flat, shape, signatures
from support.recordings import distributions

VOCABULARY = 1000


def told(top: list[float], *, rows: int = 4, prompt_id: str = "p", prompt_length: int = 1) -> Distribution:
    """The same top-k list at every position."""
    k = len(top)
    return Distribution(
        prompt_id=prompt_id,
        mode=ProbeMode.PROMPT_SCORING,
        k=k,
        prompt_length=prompt_length,
        positions=array("q", range(1, rows + 1)),
        ids=array("q", [*range(k), NO_ID] * rows),
        logprobs=array("d", [*top, 0.0] * rows),
        actual=array("d", [top[0]] * rows),
        floor=array("d", [top[-1]] * rows),
    )


UNIFORM = [-math.log(VOCABULARY)] * 3
HALVES = [math.log(0.5), math.log(0.25), math.log(0.125)]


def test_entropy_of_a_uniform_row_is_that_of_its_whole_vocabulary() -> None:
    assert shape([told(UNIFORM)]).entropy == pytest.approx(math.log(VOCABULARY))


def test_entropy_and_top1_by_hand() -> None:
    got = shape([told(HALVES)])

    listed = 0.5 * math.log(2) + 0.25 * math.log(4) + 0.125 * math.log(8)
    assert got.entropy == pytest.approx(listed + 0.125 * math.log(8))
    assert got.top1 == pytest.approx(0.5)
    assert got.positions == 4


def test_entropy_is_never_above_the_truth() -> None:
    """The rest is spread over as few tokens as may be, where in truth it is spread over 875."""
    rest = [0.125 / 875] * 875
    truth = -sum(p * math.log(p) for p in [0.5, 0.25, 0.125, *rest])

    assert shape([told(HALVES)]).entropy <= truth


def test_prompt_positions_and_marked_rows_are_left_out() -> None:
    marked = dataclasses.replace(
        told(HALVES, prompt_length=3), marks=(Mark(row=3, kind=MarkKind.NON_FINITE, detail="x"),)
    )

    assert shape([marked]).positions == 1


def test_no_usable_position_is_no_shape_and_no_sign() -> None:
    nothing = told(HALVES, prompt_length=9)

    assert shape([nothing]).positions == 0
    assert not flat(nothing, nothing)


def test_a_flat_node_beside_a_flat_baseline_is_not_called_flat() -> None:
    assert flat(told(HALVES), told(UNIFORM))
    assert not flat(told(UNIFORM), told(UNIFORM))


def signs(ours: Distribution, theirs: Distribution, *, prompts: int = 5) -> list[Sign]:
    names = [f"p{i}" for i in range(prompts)]
    pairs = [Pair(dataclasses.replace(ours, prompt_id=n), dataclasses.replace(theirs, prompt_id=n)) for n in names]
    return [one.sign for one in signatures(pairs)]


def test_a_flat_set_has_a_high_entropy_and_a_low_top1() -> None:
    assert signs(told(HALVES), told(UNIFORM)) == [Sign.ENTROPY_HIGH, Sign.TOP1_LOW]


def test_a_certain_set_has_a_collapsed_entropy() -> None:
    assert signs(told(HALVES), told([-1e-4, -10.0, -11.0])) == [Sign.ENTROPY_LOW]


def test_a_baseline_that_is_certain_has_nothing_to_collapse() -> None:
    assert signs(told([-0.01, -5.0, -6.0]), told([-1e-4, -10.0, -11.0])) == []


def test_four_prompts_are_too_few_for_a_statement_about_a_set() -> None:
    assert signs(told(HALVES), told(UNIFORM), prompts=4) == []


def test_nothing_measured_shows_nothing() -> None:
    assert list(signatures([])) == []


def test_one_value_that_differs_ends_the_suspicion_of_zero_drift() -> None:
    ours = distributions("fp32")
    other = dataclasses.replace(ours[0], actual=array("d", [*ours[0].actual[:-1], ours[0].actual[-1] - 1e-6]))

    same = [Pair(one, one) for one in ours]
    moved = [Pair(ours[0], other), *same[1:]]

    assert [one.sign for one in signatures(same)] == [Sign.ZERO_DRIFT]
    assert list(signatures(moved)) == []


@pytest.mark.parametrize(("rows", "noted"), [(POSITIONS, True), (POSITIONS - 1, False)])
def test_zero_drift_takes_enough_positions(rows: int, noted: bool) -> None:
    one = told(HALVES, rows=rows)

    assert bool([*signatures([Pair(one, one)] * 3)]) is noted


def test_certain_tokens_say_nothing_about_zero_drift() -> None:
    one = told([0.0, -20.0, -21.0], rows=40)

    assert list(signatures([Pair(one, one)])) == []


def test_a_sign_about_a_whole_set_names_no_prompt() -> None:
    one = told(HALVES, rows=40)

    (seen,) = signatures([Pair(one, one)])

    assert isinstance(seen, Seen)
    assert seen.prompt_id is None
