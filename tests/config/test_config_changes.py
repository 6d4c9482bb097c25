"""What a reload tells of two configurations, and the longest time between two fires of a crontab expression."""

from pathlib import Path
from typing import Any

import pytest

from quantwatch.config.changes import changes, needing_restart
from quantwatch.config.schedule import longest_gap
from quantwatch.config.schema import Settings

DAY = 86_400.0


def settings(**sections: Any) -> Settings:
    """A configuration of one target; `sections` replace those of the file."""
    content: dict[str, Any] = {
        "schema": 1,
        "baseline": {"url": "http://fp16:8000"},
        "targets": [target("a")],
        "pools": {"chat": {}},
        "task_sets": {"math": {}},
    }
    return Settings.model_validate(content | sections)


def target(name: str, **given: Any) -> dict[str, Any]:
    return {"name": name, "url": f"http://{name}:8000", "scheme": "int8", "pool": "chat", **given}


def test_equal_configurations_have_no_changes() -> None:
    assert changes(settings(), settings()) == []


def test_a_change_is_the_key_with_the_old_and_the_new_value() -> None:
    new = settings(task_sets={"math": {"draw": 12, "schedule": {"every": "5m"}}})

    assert changes(settings(), new) == [
        "task_sets.math.schedule.every: 900.0 -> 300.0",
        "task_sets.math.draw: 24 -> 12",
    ]


def test_a_target_that_is_put_first_changes_nothing_of_the_others() -> None:
    lines = changes(settings(), settings(targets=[target("b"), target("a")]))

    assert lines == [
        "targets.b.url: new, http://b:8000",
        "targets.b.name: new, b",
        "targets.b.scheme: new, int8",
        "targets.b.pool: new, chat",
        "targets.b.data_parallel_size: new, 1",
    ]


def test_another_order_of_targets_is_no_change() -> None:
    old, new = [target("a"), target("b")], [target("b"), target("a")]

    assert changes(settings(targets=old), settings(targets=new)) == []


def test_a_target_that_left_is_told_with_what_it_was() -> None:
    lines = changes(settings(targets=[target("a"), target("b")]), settings())

    assert "targets.b.url: gone, was http://b:8000" in lines
    assert all(line.startswith("targets.b.") for line in lines)


def test_a_secret_is_told_by_its_place_and_never_by_its_value(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret-value")
    old = settings(targets=[target("a", api_key="env:OLD_KEY")])
    new = settings(targets=[target("a", api_key=f"file:{key}", headers={"X-Token": "env:TOKEN", "X-Team": "ml"})])

    lines = changes(old, new)

    assert lines == [
        f"targets.a.api_key: env:OLD_KEY -> file:{key}",
        "targets.a.headers.X-Token: new, env:TOKEN",
        "targets.a.headers.X-Team: new, ml",
    ]
    assert "s3cret-value" not in "".join(lines)


def test_a_secret_that_is_new_or_gone_is_one_line() -> None:
    with_key = settings(targets=[target("a", api_key="env:KEY")])

    assert changes(settings(), with_key) == ["targets.a.api_key: new, env:KEY"]
    assert changes(with_key, settings()) == ["targets.a.api_key: gone, was env:KEY"]


def test_a_key_in_the_query_of_a_url_is_masked() -> None:
    hook = {"driver": "webhook", "url": "http://gateway/act?token=s3cret-value"}

    (line,) = [one for one in changes(settings(), settings(gateway=hook)) if one.startswith("gateway.url")]

    assert "s3cret-value" not in line
    assert "http://gateway/act" in line


@pytest.mark.parametrize(
    ("sections", "waits"),
    [
        ({"server": {"listen": "0.0.0.0:9999"}}, True),
        ({"server": {"admin_listen": "127.0.0.1:9999"}}, True),
        ({"server": {"admin_token": "env:TOKEN"}}, False),
        ({"store": {"path": "/elsewhere/q.db"}}, True),
        ({"logging": {"level": "debug"}}, True),
        ({"server": {"drain": "1s"}}, False),
        ({"store": {"keep": "1d"}}, False),
        ({"probe": {"in_flight": 2}}, False),
    ],
)
def test_only_what_a_running_daemon_cannot_change_waits_for_a_restart(sections: dict[str, Any], waits: bool) -> None:
    lines = changes(settings(), settings(**sections))

    assert len(lines) == 1
    assert needing_restart(lines) == (lines if waits else [])


@pytest.mark.parametrize(
    ("expression", "seconds"),
    [
        ("*/15 * * * *", 900),
        ("0 * * * *", 3600),
        ("0 3 * * *", DAY),
        ("0 9-17 * * *", 16 * 3600),  # over the night
        ("0 3 * * 1-5", 3 * DAY),  # over the weekend
        ("0 0,12 * * *", DAY / 2),
        ("0 3 * * 0", 7 * DAY),
        ("0 3 1 * *", 31 * DAY),
        ("0 3 1 1 *", 366 * DAY),  # 2024 was a leap year
    ],
)
def test_the_longest_gap_of_a_crontab_expression_counts_nights_and_weekends(expression: str, seconds: float) -> None:
    assert longest_gap(expression) == seconds


def test_an_expression_that_never_fires_has_a_gap_all_the_same() -> None:
    assert longest_gap("0 0 31 2 *") == 28 * DAY
