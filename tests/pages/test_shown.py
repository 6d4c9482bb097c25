"""Numbers, moments and spans as people read them."""

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest

from quantwatch.pages import shown
from quantwatch.pages.manner import Language


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        (0, "0"),
        (0.0123456, "0.0123"),
        (0.000123456, "0.000123"),
        (0.0000041, "4.10e-06"),
        (1.0143, "1.01"),
        (12.34, "12.3"),
        (1234.5, "1234"),
        (-0.5, "-0.500"),
    ],
)
def test_a_number(value: float | None, said: str) -> None:
    assert shown.number(value) == said


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (shown.share(0.975), "97.5 %"),
        (shown.share(None), "–"),
        (shown.ratio(1.01434), "1.0143"),
        (shown.ratio(math.nan), "–"),
        (shown.seconds(0.25), "0.25 s"),
        (shown.seconds(31.4), "31 s"),
        (shown.seconds(None), "–"),
    ],
)
def test_numbers_with_their_units(written: str, said: str) -> None:
    assert written == said


def test_moments_are_in_utc() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=8)))
    assert shown.moment(at) == "2026-01-01 19:04 UTC"
    assert shown.exactly(at) == "2026-01-01 19:04:05 UTC"
    assert shown.iso(at) == "2026-01-01T19:04:05+00:00"
    assert shown.iso(at.astimezone(UTC)) == shown.iso(at)


@pytest.mark.parametrize(
    ("elapsed", "language", "said"),
    [
        (0.4, "en", "0 s"),
        (59.9, "en", "59 s"),
        (60, "en", "1 min"),
        (7200, "en", "2 h"),
        (86_400 * 3, "en", "3 d"),
        (-7200, "en", "2 h"),
        (300, "zh", "5 分钟"),
    ],
)
def test_a_span(elapsed: float, language: Language, said: str) -> None:
    assert shown.span(elapsed, language) == said
