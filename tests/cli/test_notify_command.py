"""`quantwatch notify test`: each channel is tried, and what came back is said without a secret."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from quantwatch.cli.main import main
from support.receiver import Receiver, received

PLACE = "/services/T1/B2/abcdefghijkl"
KEY = "sk-very-secret-key"


def written(folder: Path, *channels: dict[str, Any]) -> str:
    (folder / "letters.yaml").write_text("x")
    file = folder / "q.yaml"
    content = {
        "schema": 1,
        "baseline": {"url": "http://fp16.test"},
        "targets": [{"name": "a", "url": "http://a.test", "scheme": "int8", "pool": "p"}],
        "pools": {"p": {}},
        "task_sets": {"letters": {"prompts": "letters.yaml"}},
        "notifications": list(channels),
    }
    file.write_text(yaml.safe_dump(content))
    return str(file)


def secret(folder: Path, name: str, value: str) -> str:
    (folder / name).write_text(value)
    return f"file:{folder / name}"


def three(folder: Path, url: str) -> str:
    """One channel of each kind, all at one address."""
    slack = secret(folder, "slack", url + PLACE)
    hook = {"name": "audit", "kind": "webhook", "url": f"{url}/in", "api_key": secret(folder, "key", KEY)}
    return written(
        folder,
        {"name": "team", "kind": "slack", "url": slack, "min_severity": "critical", "pools": ["p"]},
        {"name": "am", "kind": "alertmanager", "url": f"{url}/am/"},
        hook,
    )


def test_every_channel_is_tried_whatever_it_wants_to_hear(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    receiver = Receiver()
    with received(receiver) as url:
        assert main(["notify", "test", "--config", three(tmp_path, url)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "team (slack): taken: answered 200",
        "am (alertmanager): taken: answered 200",
        "audit (webhook): taken: answered 200",
    ]
    posts = {one.path: one.body for one in receiver.posts}
    assert set(posts) == {PLACE, "/am/api/v2/alerts", "/in"}
    assert posts[PLACE]["text"] == "[INFO] a test of this channel; nothing is wrong"
    assert posts["/am/api/v2/alerts"][0]["labels"]["alertname"] == "QuantwatchTest"
    assert posts["/in"]["topic"] == "test"


def test_a_channel_that_refuses_is_told_without_its_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with received(Receiver(always=403, said=f"no {KEY} at {PLACE}")) as url:
        assert main(["notify", "test", "--config", three(tmp_path, url), "--json", "-"]) == 2
    said = capsys.readouterr()
    rows = json.loads(said.out)["channels"]
    assert [(one["channel"], one["ok"]) for one in rows] == [("team", False), ("am", False), ("audit", False)]
    assert "team (slack): not taken: answered 403" in said.err
    assert KEY not in rows[2]["said"]
    assert "abcdefghijkl" not in rows[0]["said"]


def test_one_channel_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    receiver = Receiver()
    with received(receiver) as url:
        assert main(["notify", "test", "--config", three(tmp_path, url), "--channel", "audit"]) == 0
    assert [one.path for one in receiver.posts] == ["/in"]
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_nobody_there_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with received(Receiver()) as url:
        file = written(tmp_path, {"name": "ops", "kind": "webhook", "url": f"{url}/in"})
    assert main(["notify", "test", "--config", file]) == 2
    assert "ops (webhook): not taken: cannot connect" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("channels", "more", "said"),
    [
        ([], [], "no channel is configured under notifications"),
        ([{"name": "ops", "kind": "webhook", "url": "http://x.test"}], ["--channel", "pager"], "known: ops"),
        ([{"name": "ops", "kind": "slack", "url": "env:QUANTWATCH_TEST_NOT_SET"}], [], "QUANTWATCH_TEST_NOT_SET"),
    ],
)
def test_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], channels: list[Any], more: list[str], said: str
) -> None:
    assert main(["notify", "test", "--config", written(tmp_path, *channels), *more]) == 3
    assert said in capsys.readouterr().err


def test_a_secret_that_is_no_address_is_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, {"name": "team", "kind": "slack", "url": secret(tmp_path, "slack", "hooks.test" + PLACE)})
    assert main(["notify", "test", "--config", file]) == 3
    said = capsys.readouterr().err
    assert "notifications team" in said
    assert "abcdefghijkl" not in said
