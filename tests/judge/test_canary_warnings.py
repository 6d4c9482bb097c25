"""Which oddities become warnings."""

import pytest

from quantwatch.flow.canary import STRUCTURE, Canary, Seen, Sign, Weight, weight_of
from quantwatch.flow.observation import Observation
from quantwatch.flow.verdict import Quality
from quantwatch.judge.canary import warnings
from quantwatch.judge.conclude import conclude
from support.stored import divergence


def canary(*seen: tuple[Sign, str | None]) -> Canary:
    return Canary(9, 2, tuple(Seen(sign, f"{sign} of {prompt}", prompt) for sign, prompt in seen))


def test_one_kind_on_three_prompts_is_one_warning() -> None:
    three = canary((Sign.EMPTY, "a"), (Sign.EMPTY, "b"), (Sign.EMPTY, "c"))

    assert warnings(three) == ("empty of a (3 prompts)",)


def test_different_kinds_and_equal_prompts_are_no_pattern() -> None:
    mixed = canary((Sign.EMPTY, "a"), (Sign.LENGTH, "b"), (Sign.REPETITION, "c"), (Sign.EMPTY, "a"), (Sign.EMPTY, "a"))

    assert warnings(mixed) == ()


@pytest.mark.parametrize("sign", sorted(STRUCTURE))
def test_broken_structure_takes_two_prompts(sign: Sign) -> None:
    assert warnings(canary((sign, "a"))) == ()
    assert warnings(canary((sign, "a"), (sign, "b"))) == (f"{sign} of a (2 prompts)",)


def test_what_a_whole_set_shows_is_a_warning_at_once() -> None:
    assert warnings(canary((Sign.ENTROPY_LOW, None))) == ("entropy_low of None",)


def test_a_note_is_never_a_warning() -> None:
    assert warnings(canary((Sign.ZERO_DRIFT, None))) == ()


@pytest.mark.parametrize("sign", Sign)
def test_every_sign_has_a_weight_and_only_four_are_proofs(sign: Sign) -> None:
    proofs = {Sign.ONE_ID, Sign.ID_ZERO, Sign.REPLACEMENT_FLOOD, Sign.SCRIPT_SALAD}

    assert (weight_of(sign) is Weight.PROOF) == (sign in proofs)


@pytest.mark.parametrize("sign", sorted(set(Sign) - {Sign.ZERO_DRIFT}))
def test_no_oddity_makes_a_verdict_worse_than_a_warning(sign: Sign) -> None:
    """Corruption reaches a verdict by its own field alone, once a second prompt has confirmed it."""
    odd = canary(*((sign, name) for name in "abcdef"))

    verdict = conclude(Observation(drawn=8, measured=8, canary=odd), divergence(), {})

    assert verdict.quality in (Quality.OK, Quality.WARN)
