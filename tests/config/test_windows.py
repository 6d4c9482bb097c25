"""Windows in the configuration: when they are open, to the second and in UTC, and which are refused."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from quantwatch.config.load import load_settings
from quantwatch.config.windows import WindowSettings
from quantwatch.errors import ConfigError

NIGHTLY = {"name": "nightly", "cron": "0 2 * * *", "duration": "2h", "reason": "kernels"}
ONCE = {"name": "once", "from": "2026-12-24T22:00:00Z", "until": "2026-12-25T06:00:00Z", "reason": "feast"}


def content(**given: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "baseline": {"url": "http://fp16.test"},
        "targets": [{"name": "a", "url": "http://a.test", "scheme": "int8", "pool": "p"}],
        "pools": {"p": {}},
        "task_sets": {"letters": {"prompts": "letters.yaml"}},
        **given,
    }


def window(**given: Any) -> WindowSettings:
    base = ONCE if {"from", "until"} & given.keys() else NIGHTLY
    return WindowSettings.model_validate({**base, **given})


def at(hour: int, minute: int = 0, second: int = 0, day: int = 10, month: int = 1) -> datetime:
    return datetime(2026, month, day, hour, minute, second, tzinfo=UTC)


OPEN = {
    "a second before": (at(1, 59, 59), False),
    "when it opens": (at(2), True),
    "in it": (at(3, 30), True),
    "a second before it closes": (at(3, 59, 59), True),
    "when it closes": (at(4), False),
}


@pytest.mark.parametrize(("now", "open_"), OPEN.values(), ids=OPEN.keys())
def test_a_repeated_window_opens_and_closes_to_the_second(now: datetime, open_: bool) -> None:
    assert window().open_at(now) == ((at(2), at(4)) if open_ else None)


@pytest.mark.parametrize(("day", "month"), [(29, 3), (25, 10), (8, 3), (1, 11)])
def test_summer_time_moves_nothing(day: int, month: int) -> None:
    """Days on which clocks are changed in Europe and America."""
    found = [hour for hour in range(24) if window().open_at(at(hour, day=day, month=month))]
    assert found == [2, 3]


def test_the_zone_of_the_clock_does_not_matter() -> None:
    there = timezone(timedelta(hours=9))
    assert window().open_at(at(3).astimezone(there)) == (at(2), at(4))


def test_a_window_over_midnight() -> None:
    late = window(cron="30 23 * * *", duration="1h")
    assert late.open_at(at(0, 15)) == (at(23, 30, day=9), at(0, 30))
    assert late.open_at(at(0, 30)) is None


def test_openings_that_overlap_are_one_window() -> None:
    often = window(cron="0 2,3 * * *", duration="90m")
    assert [minute for minute in range(0, 360, 30) if often.open_at(at(0) + timedelta(minutes=minute))] == [
        120,
        150,
        180,
        210,
        240,
    ]


def test_when_it_opens_next() -> None:
    assert window().opens_next(at(2)) == at(2, day=11)
    assert window().opens_next(at(1)) == at(2)
    assert window(**ONCE).opens_next(at(1)) == datetime(2026, 12, 24, 22, tzinfo=UTC)
    assert window(**ONCE).opens_next(datetime(2026, 12, 24, 22, tzinfo=UTC)) is None


def test_a_window_that_is_open_once() -> None:
    once = window(**ONCE)
    opens, closes = datetime(2026, 12, 24, 22, tzinfo=UTC), datetime(2026, 12, 25, 6, tzinfo=UTC)
    assert once.open_at(opens) == once.open_at(closes - timedelta(seconds=1)) == (opens, closes)
    assert once.open_at(closes) is None
    assert once.open_at(opens - timedelta(seconds=1)) is None


def test_other_zones_are_reckoned_into_utc() -> None:
    assert window(**{**ONCE, "from": "2026-12-24T23:00:00+02:00"}).from_ == datetime(2026, 12, 24, 21, tzinfo=UTC)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "both forms": ({**NIGHTLY, "until": "2026-12-25T06:00:00Z"}, "give cron and duration, or from and until"),
    "neither form": ({"name": "x", "reason": "y"}, "give cron and duration, or from and until"),
    "half a form": ({**NIGHTLY, "duration": None}, "give cron and duration, or from and until"),
    "no crontab": ({**NIGHTLY, "cron": "2 o'clock"}, "not a crontab expression"),
    "a day that does not exist": ({**NIGHTLY, "cron": "0 2 30 2 *"}, "so the window never occurs"),
    "an end before the beginning": ({**ONCE, "until": "2026-12-24T21:00:00Z"}, "so the window never occurs"),
    "no time at all": ({**ONCE, "until": ONCE["from"]}, "so the window never occurs"),
    "always open": ({**NIGHTLY, "duration": "24h"}, "so the window never closes"),
    "months": ({**NIGHTLY, "cron": "0 0 1 1 *", "duration": "40d"}, "over 31d"),
    "no zone": ({**ONCE, "from": "2026-12-24T22:00:00"}, "a time with its zone"),
    "no moment": ({**ONCE, "from": "tonight"}, "a time with its zone"),
    "no reason": ({**NIGHTLY, "reason": ""}, "at least 1 character"),
    "an odd scope": ({**NIGHTLY, "scope": "node:a"}, "scope"),
    "an odd kind": ({**NIGHTLY, "kind": "holiday"}, "kind"),
}


@pytest.mark.parametrize(("given", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        WindowSettings.model_validate(given)


def test_a_rare_day_is_no_fault() -> None:
    leap = window(cron="0 2 29 2 *")
    assert leap.opens_next(at(1)) == datetime(2028, 2, 29, 2, tzinfo=UTC)


def problems(folder: Path, *windows: dict[str, Any]) -> str:
    (folder / "letters.yaml").write_text("x")
    file = folder / "q.yaml"
    file.write_text(yaml.safe_dump(content(windows=list(windows))))
    with pytest.raises(ConfigError) as caught:
        load_settings(file, shipped={})
    return str(caught.value)


def test_a_scope_names_what_is_configured_and_names_are_unique(tmp_path: Path) -> None:
    said = problems(
        tmp_path, {**NIGHTLY, "scope": "pool:q"}, {**ONCE, "scope": "target:b"}, {**NIGHTLY, "scope": "target:a"}
    )
    assert "windows[0].scope: no pool q" in said
    assert "windows[1].scope: no target b" in said
    assert "windows[2].name: nightly is the name of windows[0] already" in said


def test_a_moment_may_stand_in_the_file_as_yaml_has_it(tmp_path: Path) -> None:
    (tmp_path / "letters.yaml").write_text("x")
    file = tmp_path / "q.yaml"
    once = "windows: [{name: x, reason: y, from: 2026-12-24T22:00:00Z, until: 2026-12-25T06:00:00Z}]\n"
    file.write_text(yaml.safe_dump(content()) + once)
    assert load_settings(file, shipped={}).windows[0].from_ == datetime(2026, 12, 24, 22, tzinfo=UTC)
