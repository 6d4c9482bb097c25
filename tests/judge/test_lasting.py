"""Which earlier runs a new one is counted together with."""

from dataclasses import replace
from datetime import timedelta

import pytest

from quantwatch.flow.state import SetState
from quantwatch.flow.verdict import Quality
from quantwatch.judge.streak import advance, lasting
from support.stored import START, run

CONFIRMED = SetState("int8-a", "math", Quality.DEGRADED, Quality.DEGRADED, breaches=2, basis="b1", at=START)
CLEAN = SetState("int8-a", "math", Quality.OK, Quality.OK, clean=4, basis="b1", at=START)
PERIOD = 600.0


@pytest.mark.parametrize("state", [CONFIRMED, CLEAN])
@pytest.mark.parametrize("periods", [0.0, 1.0, 2.5])
def test_within_two_and_a_half_periods_everything_counts(state: SetState, periods: float) -> None:
    now = START + timedelta(seconds=periods * PERIOD)
    assert lasting(state, now=now, period_seconds=PERIOD) == state


@pytest.mark.parametrize("periods", [2.6, 1000.0, -1.0, -1000.0])
def test_after_a_longer_gap_or_a_step_back_no_row_counts(periods: float) -> None:
    now = START + timedelta(seconds=periods * PERIOD)
    for state in (CONFIRMED, CLEAN):
        kept = lasting(state, now=now, period_seconds=PERIOD)
        assert (kept.quality, kept.breaches, kept.clean) == (Quality.UNKNOWN, 0, 0)
        assert (kept.basis, kept.last, kept.at) == (state.basis, state.last, state.at)


@pytest.mark.parametrize("quality", [Quality.UNKNOWN, Quality.DEGRADED, Quality.OK])
def test_the_proof_of_a_breach_from_before_a_gap_proves_nothing_afterwards(quality: Quality) -> None:
    late = run(600, quality=quality)
    counting = lasting(replace(CONFIRMED, proof="r-0"), now=late.started, period_seconds=PERIOD)
    assert advance(counting, late, confirm_cycles=2).proof is None


def test_a_run_that_cannot_tell_does_not_keep_an_old_breach_alive() -> None:
    late = run(600, quality=Quality.UNKNOWN, basis="")
    counting = lasting(CONFIRMED, now=late.started, period_seconds=PERIOD)
    assert advance(counting, late, confirm_cycles=2).quality is Quality.UNKNOWN
