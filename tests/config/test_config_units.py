"""Durations, sizes and shares: what can be written, and what it means."""

from typing import Any

import pytest

from quantwatch.config.schedule import check_cron, runs_a_day
from quantwatch.config.units import seconds, share, size

DURATIONS = [
    ("250ms", 0.25),
    ("90s", 90.0),
    ("5m", 300.0),
    ("2h", 7200.0),
    ("30d", 2_592_000.0),
    ("1h30m", 5400.0),
    ("1d2h3m4s5ms", 93_784.005),
    ("1.5h", 5400.0),
    ("5 m", 300.0),
    (" 5m ", 300.0),
    ("0s", 0.0),
]


@pytest.mark.parametrize(("text", "value"), DURATIONS)
def test_a_duration_is_seconds(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("value", [5, 5.0, "5", "", "m", "5x", "-5m", "5m!", "1w", "5M", None, True, ["5m"], "1h 30"])
def test_what_is_no_duration_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="a duration with its unit, such as 30s, 5m"):
        seconds(value)


SIZES = [
    ("500B", 500),
    ("1KiB", 1024),
    ("64MiB", 67_108_864),
    ("2GiB", 2_147_483_648),
    ("1kB", 1000),
    ("500MB", 500_000_000),
    ("1GB", 1_000_000_000),
    ("1.5 KiB", 1536),
    (" 1B ", 1),
]


@pytest.mark.parametrize(("text", "value"), SIZES)
def test_a_size_is_bytes(text: str, value: int) -> None:
    assert size(text) == value


@pytest.mark.parametrize("value", [64, 1.5, "64", "64M", "64mib", "64kb", "-1MiB", "1KiB2B", "", None, True])
def test_what_is_no_size_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="a size with its unit, such as 64MiB or"):
        size(value)


SHARES = [("50%", 0.5), ("0%", 0.0), ("100%", 1.0), ("12.5 %", 0.125), (0, 0.0), (1, 1.0), (0.34, 0.34), (" 5% ", 0.05)]


@pytest.mark.parametrize(("given", "value"), SHARES)
def test_a_share_lies_between_nothing_and_all(given: Any, value: float) -> None:
    assert share(given) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("value", [-0.1, 1.1, 50, "101%", "-1%", "0.5", "half", "", None, True, False, float("nan")])
def test_what_is_no_share_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"a share such as 50% or 0\.5 is wanted"):
        share(value)


@pytest.mark.parametrize(("value", "hint"), [(5, "write 5s"), (2.5, "write 2.5s")])
def test_a_bare_number_is_answered_with_the_way_to_write_it(value: float, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        seconds(value)


def test_a_word_is_not_answered_with_a_way_to_write_it() -> None:
    with pytest.raises(ValueError, match=r"is wanted$"):
        seconds("soon")


CRONS = [
    ("* * * * *", 1440.0),
    ("*/15 * * * *", 96.0),
    ("0 * * * *", 24.0),
    ("20 3 * * *", 1.0),
    ("0 0,12 * * *", 2.0),
    ("0 6 * * mon", 1 / 7),
    ("0 6 * * mon-fri", 5 / 7),
    ("0 9-17/2 * * *", 5.0),
    ("30 0 1 * *", 1 / 28),
    ("0 0 31 12 *", 0.0),
]


@pytest.mark.parametrize(("expression", "runs"), CRONS)
def test_runs_a_day_are_averaged_over_four_weeks(expression: str, runs: float) -> None:
    assert runs_a_day(expression) == pytest.approx(runs, abs=1e-12)


def test_a_date_that_never_comes_is_never_run() -> None:
    assert runs_a_day("0 0 31 2 *") == 0.0


@pytest.mark.parametrize("expression", ["", "often", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *"])
def test_what_is_no_crontab_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="not a crontab expression"):
        check_cron(expression)
