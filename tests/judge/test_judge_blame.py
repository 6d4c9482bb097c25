"""Whose trouble an error is: one row an error."""

import pytest

from quantwatch import errors
from quantwatch.errors import (
    Misconfigured,
    NodeBusy,
    NodeFailed,
    NodeRestarted,
    NodeTimeout,
    NodeUnreachable,
    OverBudget,
    OverCap,
    ProbeError,
    ReplyCorrupted,
    ReplyInvalid,
)
from quantwatch.flow.verdict import Quality
from quantwatch.judge.blame import hopeless, quality_of

ROWS: list[tuple[ProbeError, Quality]] = [
    (NodeUnreachable("refused", node="n"), Quality.UNKNOWN),
    (NodeTimeout("no answer in 120 s", node="n"), Quality.UNKNOWN),
    (NodeFailed("HTTP 500", node="n"), Quality.UNKNOWN),
    (NodeRestarted("restarted", node="n"), Quality.UNKNOWN),
    (ProbeError("anything else", node="n"), Quality.UNKNOWN),
    (NodeBusy("HTTP 429", node="n"), Quality.SKIPPED),
    (OverBudget("too long", node="n"), Quality.SKIPPED),
    (Misconfigured("HTTP 401", node="n"), Quality.INVALID),
    (OverCap("k is over 20", node="n", allowed=20), Quality.INVALID),
    (ReplyInvalid("text keys", node="n"), Quality.INVALID),
    (ReplyCorrupted("NaN", node="n"), Quality.CORRUPTED),
]
EACH_ROW = pytest.mark.parametrize(("error", "quality"), ROWS, ids=[type(error).__name__ for error, _ in ROWS])


def own_errors() -> set[type[ProbeError]]:
    """Every probe error that the house declares."""
    return {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ProbeError)}


@EACH_ROW
def test_an_error_stands_for_one_quality(error: ProbeError, quality: Quality) -> None:
    assert quality_of(error) is quality


@EACH_ROW
def test_only_what_a_person_must_correct_is_hopeless(error: ProbeError, quality: Quality) -> None:
    assert hopeless(error) is isinstance(error, Misconfigured), quality


def test_every_error_of_the_house_has_its_row() -> None:
    assert {type(error) for error, _ in ROWS} == own_errors()


def test_a_subclass_takes_the_row_of_its_parent() -> None:
    class LoadGateClosed(NodeBusy):
        """A refinement of a known error."""

    assert quality_of(LoadGateClosed("3 requests wait", node="n")) is Quality.SKIPPED


def test_no_error_is_good_news() -> None:
    assert {quality_of(error) for error, _ in ROWS} & {Quality.OK, Quality.WARN, Quality.DEGRADED} == set()
