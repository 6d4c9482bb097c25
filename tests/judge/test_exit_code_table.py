"""What a verdict tells a script: one row a situation."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantwatch.cli.exit_codes import BREACH, CANNOT_SAY, INTERNAL, OK, USAGE, exit_code
from quantwatch.flow.report import Report, TargetReport
from quantwatch.flow.verdict import Quality

Q = Quality


def report(
    *qualities: Quality, complete: bool = True, misconfigured: bool = False, target_misconfigured: bool = False
) -> Report:
    targets = [TargetReport(f"node-{i}", None, quality, (), ()) for i, quality in enumerate(qualities)]
    if target_misconfigured:
        targets.append(TargetReport("wrong-key", None, Q.INVALID, (), (), misconfigured=True))
    return Report(None, tuple(targets), complete=complete, misconfigured=misconfigured)


def test_the_codes_are_those_of_the_manual() -> None:
    assert (OK, BREACH, CANNOT_SAY, USAGE, INTERNAL) == (0, 1, 2, 3, 4)


ALONE = [
    (Q.OK, OK, OK),
    (Q.WARN, OK, BREACH),
    (Q.DEGRADED, BREACH, BREACH),
    (Q.CORRUPTED, BREACH, BREACH),
    (Q.INCONCLUSIVE, CANNOT_SAY, CANNOT_SAY),
    (Q.INVALID, CANNOT_SAY, CANNOT_SAY),
    (Q.UNKNOWN, CANNOT_SAY, CANNOT_SAY),
    (Q.SKIPPED, CANNOT_SAY, CANNOT_SAY),
]


@pytest.mark.parametrize(("quality", "lenient", "strict"), ALONE)
def test_one_target_tells_its_code(quality: Quality, lenient: int, strict: int) -> None:
    assert exit_code(report(quality), strict=False) == lenient
    assert exit_code(report(quality), strict=True) == strict


def test_the_table_has_every_quality() -> None:
    assert {quality for quality, _, _ in ALONE} == set(Quality)


TOGETHER: list[tuple[Sequence[Quality], int, int]] = [
    ((Q.OK, Q.OK), OK, OK),
    ((Q.OK, Q.WARN), OK, BREACH),
    ((Q.OK, Q.DEGRADED), BREACH, BREACH),
    ((Q.UNKNOWN, Q.CORRUPTED), BREACH, BREACH),
    ((Q.OK, Q.SKIPPED), CANNOT_SAY, CANNOT_SAY),
    ((Q.WARN, Q.UNKNOWN), CANNOT_SAY, BREACH),
    ((), CANNOT_SAY, CANNOT_SAY),
]


@pytest.mark.parametrize(("qualities", "lenient", "strict"), TOGETHER)
def test_several_targets_tell_one_code(qualities: Sequence[Quality], lenient: int, strict: int) -> None:
    assert exit_code(report(*qualities), strict=False) == lenient
    assert exit_code(report(*qualities), strict=True) == strict


@pytest.mark.parametrize(
    ("quality", "code"), [(Q.OK, USAGE), (Q.UNKNOWN, USAGE), (Q.WARN, USAGE), (Q.DEGRADED, BREACH)]
)
def test_a_target_that_needs_a_person_goes_between_a_breach_and_cannot_say(quality: Quality, code: int) -> None:
    assert exit_code(report(quality, target_misconfigured=True), strict=False) == code


@pytest.mark.parametrize(
    ("quality", "code"), [(Q.OK, USAGE), (Q.UNKNOWN, USAGE), (Q.WARN, USAGE), (Q.DEGRADED, BREACH)]
)
def test_a_baseline_that_needs_a_person_does_so_too(quality: Quality, code: int) -> None:
    assert exit_code(report(quality, misconfigured=True), strict=False) == code


def test_a_strict_warning_goes_before_what_needs_a_person() -> None:
    assert exit_code(report(Q.WARN, misconfigured=True), strict=True) == BREACH


@pytest.mark.parametrize(("quality", "code"), [(Q.OK, CANNOT_SAY), (Q.WARN, CANNOT_SAY), (Q.CORRUPTED, BREACH)])
def test_an_incomplete_run_cannot_say_that_all_is_well(quality: Quality, code: int) -> None:
    assert exit_code(report(quality, complete=False), strict=False) == code


@given(st.lists(st.sampled_from(list(Quality)), max_size=6), st.booleans(), st.booleans())
def test_strict_changes_nothing_but_warnings(some: list[Quality], complete: bool, misconfigured: bool) -> None:
    given_report = report(*some, complete=complete, misconfigured=misconfigured)
    expected = BREACH if Q.WARN in some else exit_code(given_report, strict=False)
    assert exit_code(given_report, strict=True) == expected
