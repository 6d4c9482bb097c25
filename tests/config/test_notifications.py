"""Channels in the configuration: what is taken, what is refused, and that a secret address is never repeated."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from quantwatch.config.advice import advice
from quantwatch.config.changes import changes
from quantwatch.config.load import load_settings
from quantwatch.config.schema import Settings
from quantwatch.config.secrets import secrets_of
from quantwatch.errors import ConfigError, InputError
from quantwatch.flow.notice import Severity

SLACK = {"name": "team", "kind": "slack", "url": "env:SLACK_URL"}
HOOK = {"name": "ops", "kind": "webhook", "url": "https://hook.test/in"}
MANAGER = {"name": "am", "kind": "alertmanager", "url": "http://am.test:9093"}
PLACE = "https://hooks.slack.test/services/T1/B2/abcdefgh"


def content(*channels: Any, **given: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "baseline": {"url": "http://fp16.test"},
        "targets": [{"name": "a", "url": "http://a.test", "scheme": "int8", "pool": "p"}],
        "pools": {"p": {}},
        "task_sets": {"letters": {"prompts": "letters.yaml"}},
        "notifications": list(channels),
        **given,
    }


def loaded(folder: Path, *channels: Any, **given: Any) -> Settings:
    (folder / "letters.yaml").write_text("x")
    file = folder / "q.yaml"
    file.write_text(yaml.safe_dump(content(*channels, **given)))
    return load_settings(file, shipped={})


def refusal(folder: Path, *channels: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, *channels)
    return str(caught.value)


def test_each_kind_with_what_it_takes(tmp_path: Path) -> None:
    whole = {**HOOK, "signing_secret": "env:S", "api_key": "file:/k", "headers": {"X-Team": "ops", "X-Token": "env:T"}}
    named = [SLACK, {**whole, "pools": ["p"], "min_severity": "critical", "give_up_after": "2h"}, MANAGER]
    slack, hook, manager = loaded(tmp_path, *named).notifications
    assert (slack.min_severity, hook.min_severity) == (Severity.WARNING, Severity.CRITICAL)
    assert (hook.pools, hook.give_up_after, hook.timeout) == (["p"], 7200.0, 10.0)
    assert manager.address() == "http://am.test:9093"


def test_every_secret_is_found_and_a_missing_one_is_named_by_its_place(tmp_path: Path) -> None:
    settings = loaded(tmp_path, {**SLACK, "headers": {"X-Token": "env:T"}})
    assert [(path, str(one)) for path, one in secrets_of(settings)] == [
        ("notifications[0].url", "env:SLACK_URL"),
        ("notifications[0].headers.X-Token", "env:T"),
    ]
    with pytest.raises(InputError, match="SLACK_URL"):
        settings.notifications[0].address()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "slack in the clear": ({**SLACK, "url": PLACE}, "the URL of an incoming webhook is a secret"),
    "no url": ({**HOOK, "url": "hooks.slack.test/services/T1/B2/abcdefgh"}, "a URL of http or https"),
    "a password": ({**HOOK, "url": "https://ada:abcdefgh@hook.test"}, "without a password"),
    "no kind": ({**HOOK, "kind": "pager"}, "allowed"),
    "slack signs nothing": ({**SLACK, "signing_secret": "env:S"}, "signing_secret has no meaning for kind slack"),
    "slack has no key": ({**SLACK, "api_key": "env:S"}, "api_key has no meaning for kind slack"),
    "alerts are not signed": ({**MANAGER, "signing_secret": "env:S"}, "has no meaning for kind alertmanager"),
    "a header that is a secret": ({**HOOK, "headers": {"X-Token": "abcdefgh"}}, "the header X-Token looks like"),
    "a pool that is not there": ({**HOOK, "pools": ["q"]}, "no pool q"),
    "no pool": ({**HOOK, "pools": []}, "pools is empty"),
    "an odd severity": ({**HOOK, "min_severity": "loud"}, "allowed"),
    "a typing error": ({**HOOK, "min_severty": "info"}, "did you mean min_severity"),
}


@pytest.mark.parametrize(("channel", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_refused(tmp_path: Path, channel: dict[str, Any], said: str) -> None:
    told = refusal(tmp_path, channel)
    assert said in told
    assert "notifications[0]" in told
    assert "abcdefgh" not in told


def test_names_are_unique(tmp_path: Path) -> None:
    told = refusal(tmp_path, HOOK, {**MANAGER, "name": "ops"})
    assert "notifications[1].name: ops is the name of notifications[0] already" in told


def test_a_change_is_told_by_name_and_without_secrets(tmp_path: Path) -> None:
    before, after = loaded(tmp_path, HOOK), loaded(tmp_path, SLACK, {**HOOK, "min_severity": "info"})
    lines = changes(before, after)
    assert "notifications.ops.min_severity: warning -> info" in lines
    assert "notifications.team.url: new, env:SLACK_URL" in lines


ADVICE: dict[str, tuple[list[dict[str, Any]], dict[str, Any], list[str]]] = {
    "nobody is told of what is only watched": ([], {}, []),
    "nobody is told of what may act": ([], {"mode": "enforce", "fallback": "baseline"}, ["notifications"]),
    "nobody is told of what waits for them": ([], {"mode": "approve", "fallback": "baseline"}, ["notifications"]),
    "somebody is": ([SLACK], {"mode": "enforce", "fallback": "baseline"}, []),
    "a token in the clear": ([{**MANAGER, "api_key": "env:K"}], {}, ["notifications[0].url"]),
    "a receiver that trusts anybody": ([HOOK], {}, ["notifications[0].signing_secret"]),
}


@pytest.mark.parametrize(("channels", "pool", "keys"), ADVICE.values(), ids=ADVICE.keys())
def test_advice(channels: list[dict[str, Any]], pool: dict[str, Any], keys: list[str]) -> None:
    settings = Settings.model_validate(content(*channels, pools={"p": pool}, gateway={"driver": "verdict"}))
    assert [line.partition(": ")[0] for line in advice(settings)] == keys
