"""Whether the baseline still gives its stored answers, and whose verdicts it can bear."""

import math
from datetime import UTC, datetime, timedelta

import pytest

from quantwatch.flow.check import Check
from quantwatch.flow.verdict import Limit, Metric
from quantwatch.judge.yardstick import FLOOR, SHARE_OF_WARNING, drifted, soundness, unproven

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FRESH = 1500.0
GUILTY = ("node", "chat")
OTHER = ("node", "math")
SAME_SET = ("elsewhere", "chat")

GOOD = Check(NOW, sound=True, drift=1e-6)
SILENT = Check(NOW, sound=None)
NEW = Check(NOW, sound=None, new=True)
MOVED = Check(NOW, sound=False, drift=0.3, trouble="other weights since 10:00")

COULD_NOT = "the latest run of chat could not hold it against its stored answers"
NOT_YET = "no clean run has proven its answers on chat yet; `quantwatch accept-baseline` if they are right"
NOT_SINCE = "it has not been checked on chat since the start"
TOO_OLD = "its last self-check on chat is too old"
NEVER = "no self-check has proven it since the start"


def moved(drift: float, limits: dict[Metric, Limit] | None = None) -> bool:
    return drifted(drift, {} if limits is None else limits, since=NOW) is not None


def warning_at(warn: float | None) -> dict[Metric, Limit]:
    """The limits of a task set, those of other metrics much wider."""
    return {Metric.KL_MEAN: Limit(warn, 0.9), Metric.KL_P99: Limit(8.0, 9.0)}


def test_the_allowances_are_those_that_the_manual_tells() -> None:
    assert (FLOOR, SHARE_OF_WARNING) == (0.002, 0.5)


@pytest.mark.parametrize(
    "limits",
    [{}, {Metric.KL_P99: Limit(0.5, 1.0)}, warning_at(None), warning_at(0.0), warning_at(0.001), warning_at(0.004)],
)
def test_what_kernels_alone_may_cause_is_no_drift_however_strict_the_limits(limits: dict[Metric, Limit]) -> None:
    assert not moved(0.002, limits)
    assert moved(0.0020001, limits)


@pytest.mark.parametrize(("warn", "most"), [(0.005, 0.0025), (0.01, 0.005), (0.1, 0.05)])
def test_half_of_the_warning_limit_is_allowed_where_that_is_more(warn: float, most: float) -> None:
    assert not moved(most, warning_at(warn))
    assert moved(most * 1.0001, warning_at(warn))


@pytest.mark.parametrize("drift", [0.0, -1e-9])
def test_the_same_answers_are_no_drift(drift: float) -> None:
    assert not moved(drift)


@pytest.mark.parametrize("drift", [math.nan, math.inf])
@pytest.mark.parametrize("limits", [{}, warning_at(0.1)])
def test_a_drift_that_is_no_number_is_one(drift: float, limits: dict[Metric, Limit]) -> None:
    assert moved(drift, limits)


def test_a_drift_is_told_with_its_numbers_and_what_to_do() -> None:
    assert drifted(0.0321987, warning_at(0.01), since=datetime(2025, 12, 31, 23, 5, tzinfo=UTC)) == (
        "the baseline no longer gives the answers it gave on 2025-12-31 23:05: mean KL 0.0322 between then and now, "
        "over 0.005. Is it the same model? If it is meant to be so, `quantwatch accept-baseline`"
    )


@pytest.mark.parametrize(
    ("checks", "sound"),
    [
        ([], None),
        ([SILENT], None),
        ([NEW, SILENT], None),
        ([GOOD], True),
        ([SILENT, GOOD, NEW], True),
        ([MOVED], False),
        ([GOOD, MOVED], False),
        ([MOVED, GOOD, SILENT], False),
    ],
)
def test_the_baseline_is_sound_where_something_proves_it_and_nothing_speaks_against_it(
    checks: list[Check], sound: bool | None
) -> None:
    assert soundness(checks) is sound


def doubt(guilty: tuple[str, str] | None, checks: dict[tuple[str, str], Check]) -> str | None:
    return unproven(guilty, checks, now=NOW, fresh_seconds=FRESH)


def test_a_sound_check_of_the_guilty_pair_bears_its_verdict() -> None:
    assert doubt(GUILTY, {GUILTY: GOOD}) is None


@pytest.mark.parametrize("others", [SILENT, NEW])
def test_what_could_not_be_told_elsewhere_does_not_matter(others: Check) -> None:
    assert doubt(GUILTY, {OTHER: others, GUILTY: GOOD, SAME_SET: others}) is None


@pytest.mark.parametrize("guilty", [GUILTY, None])
@pytest.mark.parametrize("pair", [GUILTY, OTHER, ("elsewhere", "code")])
def test_a_drift_anywhere_objects_to_everything(guilty: tuple[str, str] | None, pair: tuple[str, str]) -> None:
    assert doubt(guilty, {GUILTY: GOOD, OTHER: GOOD, pair: MOVED}) == "other weights since 10:00"


def test_an_old_drift_objects_until_a_later_check_takes_its_place() -> None:
    old = Check(NOW - timedelta(days=30), sound=False, drift=0.3, trouble="other weights")
    assert doubt(GUILTY, {GUILTY: GOOD, OTHER: old}) == "other weights"


@pytest.mark.parametrize("checks", [{}, {OTHER: GOOD}, {SAME_SET: GOOD}])
def test_a_check_of_another_pair_does_not_stand_in_for_the_guilty_one(checks: dict[tuple[str, str], Check]) -> None:
    assert doubt(GUILTY, checks) == NOT_SINCE


def test_a_check_that_gave_nothing_bears_no_isolation() -> None:
    assert doubt(GUILTY, {GUILTY: SILENT, OTHER: GOOD, SAME_SET: GOOD}) == COULD_NOT


def test_new_answers_bear_no_isolation_until_they_are_proven() -> None:
    assert doubt(GUILTY, {GUILTY: NEW, OTHER: GOOD}) == NOT_YET


def test_answers_that_were_proven_bear_it_whether_or_not_they_are_new() -> None:
    assert doubt(GUILTY, {GUILTY: Check(NOW, sound=True, new=True)}) is None


@pytest.mark.parametrize(
    ("ago", "expected"),
    [(1500, None), (1500.001, TOO_OLD), (-1500, None), (-1500.001, TOO_OLD), (86_400, TOO_OLD), (-86_400, TOO_OLD)],
)
def test_a_check_is_too_old_in_both_directions(ago: float, expected: str | None) -> None:
    """One from the future is older than the clock's last step back."""
    check = Check(NOW - timedelta(seconds=ago), sound=True)
    assert doubt(GUILTY, {GUILTY: check, OTHER: GOOD}) == expected


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ({}, NEVER),
        ({GUILTY: SILENT}, NEVER),
        ({GUILTY: SILENT, OTHER: NEW}, NEVER),
        ({GUILTY: GOOD}, None),
        ({GUILTY: SILENT, OTHER: GOOD, SAME_SET: NEW}, None),
    ],
)
def test_a_release_needs_any_sound_check(checks: dict[tuple[str, str], Check], expected: str | None) -> None:
    assert doubt(None, checks) == expected
