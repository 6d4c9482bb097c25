"""Mean KL over time as a drawing: everything within its frame, limits and actions where they belong."""

from datetime import timedelta

import pytest

from quantwatch.flow.verdict import Quality
from quantwatch.pages.course import Chart, chart_of
from quantwatch.pages.incident import Event, Kind
from quantwatch.record.cases import Point
from support.stored import at


def point(minutes: float, kl: float | None, quality: Quality = Quality.OK, **more: float | None) -> Point:
    given: dict[str, float | None] = {"warn": 0.01, "critical": 0.05, **more}
    return Point(f"r-{minutes:g}", "a", "math", at(minutes), quality, "why", kl, **given)


COURSE = [point(0, 0.001), point(10, 0.2, Quality.DEGRADED, low=0.15, high=0.3), point(20, None), point(30, 0.002)]
ISOLATED = Event(at(40), Kind.OUTCOME, "verified", decision="d-1")


def drawn(*, actions: tuple[Event, ...] = (ISOLATED,)) -> Chart:
    found = chart_of(COURSE, COURSE[1], actions)
    assert found is not None
    return found


def test_everything_is_within_the_frame() -> None:
    chart = drawn()
    for one in chart.dots:
        assert chart.left <= one.x <= chart.right
        assert all(chart.top <= y <= chart.bottom for y in (one.y, one.low, one.high))
    assert all(chart.top <= one.at <= chart.bottom for one in chart.up)
    assert all(chart.top <= one.y <= chart.bottom for one in chart.lines)
    assert all(chart.left <= one.at <= chart.right + 0.01 for one in chart.across)


def test_larger_is_higher_and_later_is_farther_right() -> None:
    first, breach, last = drawn().dots
    assert first.x < breach.x < last.x
    assert breach.y < last.y < first.y
    assert breach.high < breach.y < breach.low  # the drawing counts downwards


def test_a_run_without_a_number_is_counted_and_not_drawn() -> None:
    assert (len(drawn().dots), drawn().silent) == (3, 1)


def test_shapes_tell_what_colours_tell() -> None:
    assert [one.shape for one in drawn().dots] == ["good", "breach", "good"]
    unsure = chart_of([point(0, 0.1, Quality.INCONCLUSIVE)], None, [])
    assert unsure is not None
    assert unsure.dots[0].shape == "other"


def test_the_limits_of_the_run_in_question_are_drawn() -> None:
    assert [(one.level, one.label) for one in drawn().lines] == [("warn", "0.0100"), ("critical", "0.0500")]
    bare = chart_of([point(0, 0.1, warn=None, critical=None)], None, [])
    assert bare is not None
    assert bare.lines == ()


def test_an_action_after_the_last_run_has_its_place() -> None:
    (mark,) = drawn().marks
    assert (mark.number, mark.event) == (1, ISOLATED)
    assert mark.x > drawn().dots[-1].x


def test_the_run_in_question_is_marked() -> None:
    assert [one.subject for one in drawn().dots] == [False, True, False]


def test_what_is_zero_stands_at_the_lower_end() -> None:
    chart = chart_of([point(0, 0.0, warn=None, critical=None), point(1, 0.1)], None, [])
    assert chart is not None
    assert chart.dots[0].y <= chart.bottom
    assert chart.lowest == 0.0


def test_one_run_alone_is_drawn_in_the_middle() -> None:
    chart = chart_of(COURSE[:1], COURSE[0], [])
    assert chart is not None
    assert chart.left < chart.dots[0].x < chart.right


@pytest.mark.parametrize("course", [[], [point(0, None)]])
def test_nothing_is_drawn_without_a_number(course: list[Point]) -> None:
    assert chart_of(course, None, []) is None


SPANS = [
    (timedelta(minutes=5), "00:00:00"),
    (timedelta(hours=2), "00:00"),
    (timedelta(days=2), "01-01 00:00"),
    (timedelta(days=30), "01-01"),
]


@pytest.mark.parametrize(("whole", "first"), SPANS)
def test_days_are_told_where_the_time_alone_says_too_little(whole: timedelta, first: str) -> None:
    chart = chart_of([point(0, 0.1), point(whole.total_seconds() / 60, 0.1)], None, [])
    assert chart is not None
    assert chart.across[0].label == first
