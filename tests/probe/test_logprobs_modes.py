"""vLLM's four logprobs modes, told apart from two lists of one prompt."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantwatch.probe.modes import WARM, LogprobsMode, are_logits, changed, tell_mode

MEASURED = {17.37: 8.69, 16.1: 8.05, 14.0: 7.0}
"""Logits of a real vLLM 0.32 at temperature 0 and 2; the first pair was recorded, the others have its form."""

LOGITS = st.lists(st.floats(-8, 8), min_size=3, max_size=20, unique=True).filter(lambda one: max(one) - min(one) > 3)


def softened(logits: list[float], temperature: float) -> dict[int, float]:
    scaled = [one / temperature for one in logits]
    total = math.log(math.fsum(map(math.exp, scaled)))
    return {token: one - total for token, one in enumerate(scaled)}


def listed(logits: list[float], temperature: float) -> dict[int, float]:
    return {token: one / temperature for token, one in enumerate(logits)}


@given(LOGITS)
def test_raw_logprobs_are_told_by_staying_what_they_are(logits: list[float]) -> None:
    assert tell_mode(softened(logits, 1), softened(logits, 1)) is LogprobsMode.RAW_LOGPROBS


@given(LOGITS)
def test_processed_logprobs_are_told_by_the_temperature(logits: list[float]) -> None:
    assert tell_mode(softened(logits, 1), softened(logits, WARM)) is LogprobsMode.PROCESSED_LOGPROBS


@given(LOGITS)
def test_both_kinds_of_logits_are_told(logits: list[float]) -> None:
    over = [one - max(logits) + 12 for one in logits]

    assert tell_mode(listed(over, 1), listed(over, 1)) is LogprobsMode.RAW_LOGITS
    assert tell_mode(listed(over, 1), listed(over, WARM)) is LogprobsMode.PROCESSED_LOGITS


def test_the_recorded_logits_are_told() -> None:
    cold, warm = dict(enumerate(MEASURED)), dict(enumerate(MEASURED.values()))

    assert tell_mode(cold, cold) is LogprobsMode.RAW_LOGITS
    assert tell_mode(cold, warm) is LogprobsMode.PROCESSED_LOGITS


def test_the_recorded_values_of_one_token_are_told() -> None:
    """With k = 1 there is no spread, so the value itself decides: -0.258 stays, or becomes -2.953."""
    assert tell_mode({5: -0.258}, {5: -0.258}) is LogprobsMode.RAW_LOGPROBS
    assert tell_mode({5: -0.258}, {5: -2.953}) is LogprobsMode.PROCESSED_LOGPROBS


@given(LOGITS, st.lists(st.floats(-0.1, 0.1), min_size=20, max_size=20))
def test_the_noise_of_batching_is_no_change(logits: list[float], noise: list[float]) -> None:
    cold = softened(logits, 1)
    warm = {token: value + noise[token] for token, value in cold.items()}

    assert not changed(cold, warm)


def test_negative_values_whose_probabilities_sum_over_one_are_logits() -> None:
    assert are_logits({1: -0.1, 2: -0.2})
    assert not are_logits({1: -0.7, 2: -0.8})


@pytest.mark.parametrize("value", [1.7e308, -1.7e308])
def test_numbers_at_the_end_of_the_scale_are_no_fault_of_ours(value: float) -> None:
    row = dict.fromkeys(range(5), value)

    tell_mode(row, row)
    tell_mode({1: -0.3, 2: -4.0}, {1: value, 2: value})


@pytest.mark.parametrize("warm", [{}, {9: -0.1}])
def test_lists_without_a_common_token_say_nothing(warm: dict[int, float]) -> None:
    assert not changed({1: -0.3, 2: -4.0}, warm)
