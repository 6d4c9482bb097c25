"""Paired differences of a candidate and the running node, by prompt."""

import math
import random
from array import array

import pytest
from scipy.stats import t as student

from quantwatch.flow.acceptance import Paired
from quantwatch.flow.distribution import Distribution, Mark, MarkKind
from quantwatch.flow.divergence import Evidence
from quantwatch.flow.prompt import ProbeMode
from quantwatch.measure.compare import Pair, Scope, measure
from quantwatch.measure.paired import paired

N = 6
"""Positions a prompt."""


def side(prompt: str, *, shift: float = 0.0, marked: bool = False) -> Distribution:
    """Two tokens at every position; the actual one has probability 0.6, made smaller by shift in the logarithm."""
    first = math.log(0.6) - shift
    second = math.log1p(-math.exp(first))
    rows = range(N)
    return Distribution(
        prompt,
        ProbeMode.PROMPT_SCORING,
        2,
        1,
        positions=array("q", [1 + i for i in rows]),
        ids=array("q", [x for _ in rows for x in (5, 6, -1)]),
        logprobs=array("d", [x for _ in rows for x in (first, second, 0.0)]),
        actual=array("d", [first for _ in rows]),
        floor=array("d", [min(first, second) for _ in rows]),
        marks=(Mark(0, MarkKind.NON_FINITE, "NaN"),) if marked else (),
    )


def pairs(shifts: dict[str, float], *, marked: str = "") -> list[Pair]:
    return [Pair(side(name), side(name, shift=shift, marked=name == marked)) for name, shift in shifts.items()]


def difference(candidate: list[Pair], running: list[Pair], comparisons: int = 1) -> Paired:
    found = paired(candidate, running, scope=Scope.CONTINUATION, drawn=len(candidate), comparisons=comparisons)
    assert found is not None
    return found


DICE = random.Random(3)
SHIFTS = {f"p{i}": 0.1 + DICE.random() * 0.3 for i in range(12)}


def test_two_equal_nodes_do_not_differ_at_all() -> None:
    found = difference(pairs(SHIFTS), pairs(SHIFTS))
    for one in (found.kl_mean, found.log_perplexity, found.top1):
        assert (one.value, one.low, one.high) == (0, 0, 0)
    assert (found.prompts, found.distinct_prompts, found.positions) == (12, 12, 12 * N)


def test_the_difference_is_that_of_the_two_means_and_larger_is_worse() -> None:
    worse = {name: shift + 0.2 for name, shift in SHIFTS.items()}
    ours, theirs = pairs(worse), pairs(SHIFTS)
    found = difference(ours, theirs)
    a, b = (measure(one, scope=Scope.CONTINUATION, evidence=Evidence.DRAW) for one in (ours, theirs))
    assert found.kl_mean.value == pytest.approx(a.kl_mean.value - b.kl_mean.value)
    assert found.kl_mean.value > 0
    assert found.log_perplexity.value == pytest.approx(0.2)
    assert found.top1.value == pytest.approx(b.top1_agreement.value - a.top1_agreement.value)
    assert found.top1.value > 0


def test_the_bounds_are_one_sided_and_the_lower_is_corrected_for_the_comparisons() -> None:
    """All positions of a prompt are equal here, so the difference over prompts is a plain mean with a plain t."""
    added = {name: DICE.random() for name in SHIFTS}
    worse = {name: shift + added[name] for name, shift in SHIFTS.items()}
    found = difference(pairs(worse), pairs(SHIFTS), comparisons=9).log_perplexity
    m = len(added)
    mean = sum(added.values()) / m
    error = math.sqrt(sum((one - mean) ** 2 for one in added.values()) / (m - 1) / m)
    assert found.value == pytest.approx(mean)
    assert found.high == pytest.approx(mean + student.ppf(0.95, m - 1) * error)
    assert found.low == pytest.approx(mean - student.ppf(1 - 0.05 / 9, m - 1) * error)


def test_what_a_prompt_makes_hard_for_both_costs_no_certainty() -> None:
    harder = {name: shift + 0.01 for name, shift in SHIFTS.items()}
    found = difference(pairs(harder), pairs(SHIFTS))
    assert found.log_perplexity.high - found.log_perplexity.low < 1e-9


def test_only_prompts_that_both_answered_soundly_count() -> None:
    running = {name: shift for name, shift in SHIFTS.items() if name != "p0"}
    found = difference(pairs(SHIFTS, marked="p1"), pairs(running, marked="p2"))
    assert found.prompts == 9
    assert found.drawn == 12


def test_a_prompt_that_was_drawn_twice_counts_twice() -> None:
    ours, theirs = pairs(SHIFTS), pairs(SHIFTS)
    found = difference([*ours, ours[0]], [*theirs, theirs[0]])
    assert (found.prompts, found.distinct_prompts) == (13, 12)


def test_without_a_common_prompt_there_is_no_difference() -> None:
    assert paired(pairs({"a": 0.1}), pairs({"b": 0.1}), scope=Scope.CONTINUATION, drawn=1, comparisons=1) is None


def test_one_prompt_has_no_bounds() -> None:
    found = difference(pairs({"a": 0.3}), pairs({"a": 0.1})).kl_mean
    assert found.value > 0
    assert (found.low, found.high) == (-math.inf, math.inf)
