"""What still counts of what was measured."""

from datetime import UTC, datetime, timedelta

import pytest

from quantwatch.flow.state import SetState
from quantwatch.flow.verdict import Quality
from quantwatch.judge.standing import fresh, proven, target_quality

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PERIOD = 600.0


def measured(
    quality: Quality = Quality.OK, *, task_set: str = "chat", ago: float | None = 0, undecided: int = 0
) -> SetState:
    at = None if ago is None else NOW - timedelta(seconds=ago)
    return SetState("node", task_set, quality, undecided=undecided, at=at, reason=f"{quality} for a reason")


@pytest.mark.parametrize(
    ("ago", "counts"), [(0, True), (1500, True), (1501, False), (-60, True), (-61, False), (None, False)]
)
def test_a_result_counts_for_two_and_a_half_periods(ago: float | None, *, counts: bool) -> None:
    assert fresh(measured(ago=ago), now=NOW, period_seconds=PERIOD) is counts
    assert proven(measured(ago=ago), now=NOW, period_seconds=PERIOD) is counts


@pytest.mark.parametrize(
    ("undecided", "ago", "counts"), [(1, 900, True), (1, 901, False), (2, 300, True), (2, 301, False), (3, 0, False)]
)
def test_every_run_that_cannot_tell_makes_the_proof_a_period_older(undecided: int, ago: float, *, counts: bool) -> None:
    state = measured(Quality.DEGRADED, undecided=undecided, ago=ago)
    assert proven(state, now=NOW, period_seconds=PERIOD) is counts
    assert fresh(state, now=NOW, period_seconds=PERIOD)


def quality_of(*states: SetState, periods: dict[str, float] | None = None) -> tuple[Quality, str]:
    chosen = {one.task_set: PERIOD for one in states} if periods is None else periods
    return target_quality(states, now=NOW, periods=chosen)


def test_the_worst_fresh_task_set_stands_for_the_target_and_is_named() -> None:
    states = [measured(), measured(Quality.DEGRADED, task_set="math"), measured(Quality.WARN, task_set="code")]
    assert quality_of(*states) == (Quality.DEGRADED, "math: degraded for a reason")


def test_a_stale_breach_does_not_stand_for_the_target_but_is_told() -> None:
    states = [measured(), measured(Quality.CORRUPTED, task_set="math", ago=9999)]
    assert quality_of(*states) == (Quality.OK, "chat: ok for a reason (without a fresh result: math)")


def test_a_task_set_that_was_never_measured_is_told() -> None:
    told = quality_of(measured(), periods={"chat": PERIOD, "math": PERIOD})
    assert told == (Quality.OK, "chat: ok for a reason (without a fresh result: math)")


def test_each_task_set_has_its_own_period() -> None:
    states = [measured(), measured(Quality.DEGRADED, task_set="nightly", ago=9999)]
    assert quality_of(*states, periods={"chat": PERIOD, "nightly": 86_400.0})[0] is Quality.DEGRADED


def test_a_task_set_that_left_the_configuration_does_not_count() -> None:
    states = [measured(), measured(Quality.CORRUPTED, task_set="math")]
    assert quality_of(*states, periods={"chat": PERIOD}) == (Quality.OK, "chat: ok for a reason")


def test_without_any_result_nothing_is_known() -> None:
    assert quality_of() == (Quality.UNKNOWN, "no task set has a fresh result")
    assert quality_of(measured(ago=None)) == (Quality.UNKNOWN, "no task set has a fresh result")


def test_when_everything_is_stale_the_latest_is_told() -> None:
    told = quality_of(measured(ago=7200), measured(Quality.CORRUPTED, task_set="math", ago=9000))
    assert told == (Quality.UNKNOWN, "no task set has a fresh result; the latest is chat of 2025-12-31 22:00:00 UTC")
