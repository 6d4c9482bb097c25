"""`quantwatch support-bundle`: what is in it, what is not, and that a broken part spoils no other."""

import base64
import hashlib
import json
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from quantwatch.cli.bundle_parts import end_of, end_of_lines
from quantwatch.cli.main import main
from quantwatch.config.redaction import Redaction, redaction
from quantwatch.log import MASK
from support.daemons import Site, site, started
from support.served import served
from support.stored import after, decision, intent, leaving, moved, opened, run
from support.tiny_node import TinyNode

IN_ENV = "env-S3cret-value-0001"
IN_FILE = "file-S3cret/value+0002"
IN_URL = "url-S3cret-0003"
IN_HEADER = "header-S3cret-0004"
IN_LOG = "log-S3cret-0005"
IN_COMMENT = "comment-S3cret-0006"
IN_PLACE = "inplace-S3cret-0007"
PROMPT = "Tell me all about the planted prompt"
PLANTED = (IN_ENV, IN_FILE, IN_URL, IN_HEADER, IN_LOG, IN_COMMENT, IN_PLACE, PROMPT)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUANTWATCH_TEST_KEY", IN_ENV)


@pytest.fixture
def place(tmp_path: Path) -> Site:
    """A configuration and a store with secrets in every corner; no daemon runs."""
    (tmp_path / "token").write_text(IN_FILE + "\n")
    where = site(tmp_path, "http://127.0.0.1:9", {"int8-a": "http://127.0.0.1:19"})
    where.content["baseline"]["api_key"] = "env:QUANTWATCH_TEST_KEY"
    where.content["server"]["admin_token"] = f"file:{tmp_path / 'token'}"
    where.content["notifications"] = [
        {
            "name": "ops",
            "kind": "webhook",
            "url": "https://ops.example/hook",
            "headers": {"Authorization": f"file:{tmp_path / 'token'}", "X-Team": IN_HEADER},
        }
    ]
    where.write()
    where.file.write_text(where.file.read_text() + f"# the old one was https://ada:{IN_COMMENT}@ops.example\n")
    with opened(tmp_path, name="quantwatch.db") as store:
        record = replace(run(1), reason=f"cannot connect to https://ada:{IN_URL}@node:8000 with {IN_FILE}")
        store.add_run(record, after(record))
        made = decision()
        store.decide(made, intent=intent(made), state=leaving(made), transitions=[moved("in", "leaving")])
    return where


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "daemon.log"
    lines = [
        json.dumps({"event": "refused", "password": IN_LOG, "prompt": PROMPT, "nested": [{"api_key": IN_LOG}]}),
        f"POST https://ada:{IN_URL}@node/v1 Authorization: Bearer {IN_LOG}",
        f"login password={IN_LOG} token: '{IN_LOG}' key={IN_ENV}",
        f"basic {base64.b64encode(IN_ENV.encode()).decode()}",
        f"Cookie: session={IN_LOG}; other={IN_LOG}",
        "an ordinary line",
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def bundled(where: Site, *more: object) -> tuple[dict[str, str], Any]:
    """The files of a fresh bundle by name, and its manifest."""
    out = where.folder / f"bundle-{len(list(where.folder.glob('bundle-*')))}.tar.gz"
    assert main(["support-bundle", "--config", str(where.file), "--out", str(out), *map(str, more)]) == 0
    return unpacked(out)


def unpacked(path: Path) -> tuple[dict[str, str], Any]:
    with tarfile.open(path) as archive:
        files = {}
        for one in archive.getmembers():
            content = archive.extractfile(one)
            assert content is not None
            files[one.name.partition("/")[2]] = content.read().decode()
    return files, json.loads(files["MANIFEST.json"])


def test_no_planted_secret_is_anywhere_in_the_bundle(place: Site, log: Path) -> None:
    files, manifest = bundled(place, "--log", log)
    whole = "\n".join(files.values())

    assert [one for one in PLANTED if one in whole] == []
    assert base64.b64encode(IN_ENV.encode()).decode() not in whole
    assert "env:QUANTWATCH_TEST_KEY" in files["config/quantwatch.yaml"]
    assert "an ordinary line" in files["logs/1-daemon.log"]
    assert {one["file"] for one in manifest["masked"]} >= {
        "config/quantwatch.yaml",
        "store/runs.json",
        "logs/1-daemon.log",
    }


def test_a_secret_that_stands_in_the_file_itself_is_masked_and_found_elsewhere(place: Site, log: Path) -> None:
    place.content["baseline"]["api_key"] = IN_PLACE
    place.content["gateway"] = {"driver": "webhook", "url": f"https://ada:{IN_PLACE}@gateway"}
    place.write()
    log.write_text(f"the gateway said {IN_PLACE}\n")
    files, manifest = bundled(place, "--log", log)

    assert IN_PLACE not in "\n".join(files.values())
    assert yaml.safe_load(files["config/quantwatch.yaml"])["baseline"]["api_key"] == MASK
    assert "config/check-config.json.failed.txt" in files
    assert any(one["part"] == "config/check-config.json" for one in manifest["failed"])


def test_everything_asked_for_is_in_it(place: Site, log: Path) -> None:
    files, manifest = bundled(place, "--log", log)

    assert {"README.txt", "MANIFEST.json", "config/quantwatch.yaml", "config/check-config.json"} <= set(files)
    versions = json.loads(files["system/versions.json"])
    assert versions["packages"]["pydantic"]
    assert versions["python"]
    assert {"total", "used", "free", "folder"} == set(json.loads(files["system/disk.json"])[0])
    assert [one["id"] for one in json.loads(files["store/runs.json"])] == [run(1).id]
    assert [one["id"] for one in json.loads(files["store/decisions.json"])] == ["d-1"]
    assert json.loads(files["store/intents.json"])[0]["order"]["target"] == decision().wish.target
    assert json.loads(files["store/transitions.json"])[0]["new"] == "leaving"
    check = json.loads(files["store/check.json"])
    assert check["bytes"]["quantwatch.db"] > 0
    for one in manifest["files"]:
        if one["name"] != "MANIFEST.json":
            assert one["sha256"] == hashlib.sha256(files[one["name"]].encode()).hexdigest()
    assert "before you send it" in files["README.txt"]


def test_a_silent_daemon_and_a_missing_log_are_noted(place: Site, tmp_path: Path) -> None:
    files, manifest = bundled(place, "--log", tmp_path / "none.log")

    assert "cannot connect" in files["daemon/status.json.failed.txt"]
    assert "cannot connect" in files["daemon/metrics.txt.failed.txt"]
    assert "FileNotFoundError" in files["logs/1-none.log.failed.txt"]
    assert {one["part"] for one in manifest["failed"]} >= {"daemon/status.json", "daemon/metrics.txt"}
    assert "store/runs.json" in files


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"schema: 1\nbaseline: [\n  api_key: " + IN_PLACE.encode(),
        b"\xff\xfe\x00",
        b"a: " + b"[" * 600,
        b"- just\n- a list\n",
    ],
    ids=["empty", "no YAML", "no text", "deep", "a list"],
)
def test_a_broken_configuration_spoils_nothing_else(place: Site, content: bytes) -> None:
    place.file.write_bytes(content)
    files, _ = bundled(place, "--store", place.store)

    assert IN_PLACE not in "\n".join(files.values())
    assert "config/check-config.json.failed.txt" in files
    assert json.loads(files["store/runs.json"])
    assert "system/versions.json" in files


def test_a_damaged_store_spoils_nothing_else(place: Site) -> None:
    place.store.write_bytes(b"SQLite format 3\0" + os.urandom(20_000))
    files, _ = bundled(place)

    assert "store/runs.json.failed.txt" in files
    assert "config/check-config.json" in files
    assert "store/check.json" in files or "store/check.json.failed.txt" in files


def test_of_a_long_log_only_the_end_is_taken_from_the_start_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    path.write_text("".join(f"line {i}\n" for i in range(100)))

    assert end_of(path, most=23) == "line 98\nline 99\n"
    assert end_of(path, most=10_000).startswith("line 0\n")

    assert end_of_lines(path.read_bytes(), most=23) == b"line 98\nline 99\n"
    assert end_of_lines(b"short\n", most=10) == b"short\n"


def test_what_is_not_known_is_told_everywhere(place: Site, capsys: pytest.CaptureFixture[str]) -> None:
    place.content["targets"][0]["api_key"] = "env:QUANTWATCH_TEST_UNSET"
    place.content["server"]["admin_token"] = f"file:{place.folder / 'no such token'}"
    place.write()
    capsys.readouterr()
    files, manifest = bundled(place)
    missing = ["env:QUANTWATCH_TEST_UNSET", f"file:{place.folder / 'no such token'}"]
    said = [f"NOT known here, so masked only by its look: {one}" for one in missing]
    told = capsys.readouterr().out

    assert sorted(manifest["unknown_secrets"]) == missing
    assert all(one in files["README.txt"].splitlines() for one in said)
    assert all(one in told for one in said)
    assert "QUANTWATCH_TEST_KEY" not in files["README.txt"]


def test_a_webhook_that_is_named_or_written_is_nowhere(place: Site, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    behind = "/workflows/0a1b2c3d4e5f6a7b/run?api-version=1&sig=" + IN_PLACE
    monkeypatch.setenv("QUANTWATCH_TEST_HOOK", f"https://hooks.example/hand{behind}")
    place.content["notifications"] += [
        {"name": "teams", "kind": "webhook", "url": f"https://flow.example{behind}"},
        {"name": "chat", "kind": "slack", "url": "env:QUANTWATCH_TEST_HOOK"},
    ]
    place.content["gateway"] = {"driver": "webhook", "url": "https://gateway.example:8443/out/a-g4teway-secret"}
    place.write()
    said = [f"POST https://flow.example{behind}", f"POST {behind}", f"at /hand{behind}", "POST /out/a-g4teway-secret"]
    log.write_text("\n".join(said))
    with opened(place.folder, name="quantwatch.db") as store:
        record = replace(run(2), reason=f"cannot reach https://flow.example{behind}")
        store.add_run(record, after(record))
    files, _ = bundled(place, "--log", log)
    shown = yaml.safe_load(files["config/quantwatch.yaml"])

    assert [one for one in (IN_PLACE, "0a1b2c3d4e5f6a7b", "g4teway") if one in "\n".join(files.values())] == []
    assert [one["url"] for one in shown["notifications"][1:]] == [
        f"https://flow.example/{MASK}",
        "env:QUANTWATCH_TEST_HOOK",
    ]
    assert shown["gateway"]["url"] == f"https://gateway.example:8443/{MASK}"


def test_a_unit_without_a_journal_is_noted(place: Site) -> None:
    files, _ = bundled(place, "--unit", "no-such-unit-of-quantwatch.service")

    assert {"logs/journal.log", "logs/journal.log.failed.txt"} & set(files)


def test_a_bundle_is_its_owners_alone_and_replaces_nothing(place: Site, capsys: pytest.CaptureFixture[str]) -> None:
    out = place.folder / "b.tar.gz"
    before = os.umask(0)
    try:
        assert main(["support-bundle", "--config", str(place.file), "--out", str(out)]) == 0
    finally:
        os.umask(before)
    told = capsys.readouterr().out
    content = out.read_bytes()

    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert "store/runs.json" in told
    assert "masked in config/quantwatch.yaml" in told
    assert "Look through it before you send it" in told
    assert main(["support-bundle", "--config", str(place.file), "--out", str(out)]) == 3
    assert out.read_bytes() == content
    assert "never replaces a file" in " ".join(capsys.readouterr().err.split())


def test_what_cannot_be_written_or_read_is_a_fault_of_usage(place: Site, tmp_path: Path) -> None:
    assert main(["support-bundle", "--config", str(place.file), "--out", str(tmp_path / "no" / "b.tar.gz")]) == 3
    assert main(["support-bundle", "--config", str(tmp_path / "none"), "--out", str(tmp_path / "b.tar.gz")]) == 3
    assert not (tmp_path / "b.tar.gz").exists()


@pytest.fixture
def running(place: Site) -> Iterator[Site]:
    with served(TinyNode()) as baseline, served(TinyNode()) as node:
        place.content["baseline"]["url"], place.content["targets"][0]["url"] = baseline, node
        with started(place.write()) as daemon:
            daemon.ready()
            yield place


def test_of_a_running_daemon_status_and_metrics_are_in_it(running: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--config", str(running.file), "--once"]) in (0, 2)
    assert "int8-a" in capsys.readouterr().out
    files, _ = bundled(running, "--log", running.folder / "daemon.out")

    assert "quantwatch_build_info" in files["daemon/metrics.txt"]
    assert [one["target"] for one in json.loads(files["daemon/status.json"])["targets"]] == ["int8-a"]
    assert "watching" in files["logs/1-daemon.out"]
    assert [one for one in PLANTED if one in "\n".join(files.values())] == []


# The redaction


def test_short_secrets_are_masked_as_words_alone() -> None:
    assert Redaction(frozenset({"abc"})).text("abc abcd x-abc", "f") == f"{MASK} abcd x-{MASK}"


def test_secrets_of_the_environment_are_known_by_the_names_of_their_variables() -> None:
    assert redaction("", {"MY_API_KEY": "0123456789"}).text("it is 0123456789.", "f") == f"it is {MASK}."


def test_a_secret_of_several_lines_is_found_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("first line of it\nsecond line of it\n")
    made = redaction(f"tls: file:{tmp_path / 'key'}", {})

    assert made.text("a second line of it\nb", "f") == f"a {MASK}\nb"


def test_a_very_long_line_is_not_cut() -> None:
    line = "word " * 20_000

    assert Redaction().text(line, "f") == line


def test_ids_of_prompts_stay_and_prompts_do_not() -> None:
    shown = Redaction().document({"prompt": "math-01", "text": "two words", "prompts": 24}, "f")

    assert shown == {"prompt": "math-01", "prompts": 24}


@pytest.mark.parametrize("key", ["prompt", "prompts", "completion", "text", "content", "generated_text", "messages"])
def test_one_word_that_is_no_id_goes_and_an_id_stays_under_prompt_alone(key: str) -> None:
    assert Redaction().document({key: "Hello", "a": 1}, "f") == {"a": 1}
    assert Redaction().document({key: "Hello.", "a": 1}, "f") == {"a": 1}
    kept = key in ("prompt", "prompts")
    assert Redaction().document({key: "sql-late-parcels"}, "f") == ({key: "sql-late-parcels"} if kept else {})


LINES = [
    '2026-11-30T15:00:00+0000 host quantwatch[7]: {"event": "e", "prompt": "PLANTED it", "n": 1} behind',
    '2026-11-30T15:00:00Z stdout F {"event": "e", "choices": [{"text": "PLANTED"}]}',
    json.dumps({"log": json.dumps({"event": "e", "completion": "PLANTED"}) + "\n", "stream": "stdout"}),
    "node {broken} then " + json.dumps({"event": "e", "content": "PLANTED"}),
    '{"event": "e", "prompt": "PLANTED and cut off',
    '{"event": "e", "messages": [{"role": "user", "con',
    "Received request cmpl-1: prompt: 'PLANTED it\\'s', params: SamplingParams(n=1), prompt_token_ids: [128, 4711",
    "{'event': 'e', 'prompt': \"PLANTED\", 'n': 1}",
    "e prompt=PLANTED whatever follows",
    r"e {\"prompt\": \"PLANTED\"}",
]


@pytest.mark.parametrize("line", LINES)
def test_prompts_are_found_behind_the_beginning_of_a_line(line: str) -> None:
    made = Redaction()
    shown = made.text(line, "f")

    assert not any(one in shown for one in ("PLANTED", "4711", "user"))
    assert made.found["f", "prompt or answer"] > 0
    assert shown.startswith(line[:2])


@pytest.mark.parametrize(
    "line",
    [
        'quantwatch_task_set_info{task_set="math",prompts="24"} 1.0',
        "task_sets.math.prompts: no such prompts file: /etc/quantwatch/math.yaml",
        "drawn prompts=24 of prompt='math-01'",
        'host quantwatch[7]: {"event": "compared", "prompts": 24, "prompt": "math-01"} {x}',
        "{" * 100,
    ],
)
def test_what_is_no_prompt_stays(line: str) -> None:
    assert Redaction().text(line, "f") == line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("POST https://hooks.slack.com/services/T0/B0/xyz 404", f"POST https://hooks.slack.com/services/{MASK} 404"),
        ("'https://discord.com/api/webhooks/1/x-y'", f"'https://discord.com/api/webhooks/{MASK}'"),
        ("GET http://a/b?v=1&sig=ab%2F1&n=2", f"GET http://a/b?v=1&sig={MASK}&n=2"),
        (
            "/b?key=1 /c?token=2 /d?code=3 /e?secret=4",
            f"/b?key={MASK} /c?token={MASK} /d?code={MASK} /e?secret={MASK}",
        ),
        (r"http://a/b?v=1\u0026X-Amz-Signature=0f", rf"http://a/b?v=1\u0026X-Amz-Signature={MASK}"),
    ],
)
def test_addresses_that_let_in_whoever_has_them_are_known_by_their_look(text: str, shown: str) -> None:
    assert Redaction().text(text, "f") == shown


def test_headers_in_the_file_are_known_and_found_elsewhere() -> None:
    made = redaction("notifications:\n- headers: {X-Team: some-value-of-a-header}\n", {})

    assert made.text("sent some-value-of-a-header", "f") == f"sent {MASK}"


def test_secret_parameters_of_any_address_are_known() -> None:
    made = redaction("baseline:\n  url: https://fp16.example/v1?key=abcdef\n", {})

    assert made.text("sent abcdef to /v1", "f") == f"sent {MASK} to /v1"


def test_the_address_of_a_channel_alone_is_no_secret_and_what_is_no_address_is() -> None:
    text = "notifications:\n- url: http://alerts:9093/\n  runbook_url: http://w/a\n- url: hooks/abcdefgh\n- url: http://[b\n"
    made = redaction(text, {})
    shown = yaml.safe_load(made.configuration(text, "f"))["notifications"]

    assert shown == [{"url": "http://alerts:9093/", "runbook_url": "http://w/a"}, {"url": MASK}, {"url": MASK}]
    assert made.text("to hooks/abcdefgh at http://alerts:9093/", "f") == f"to {MASK} at http://alerts:9093/"


def test_a_secret_that_holds_braces_is_masked_whole() -> None:
    assert Redaction(frozenset({'ab{"c":1}d'})).text('x ab{"c":1}d y', "f") == f"x {MASK} y"


@pytest.mark.parametrize("offset", range(-24, 4, 3))
def test_a_secret_in_a_very_long_line_is_found_wherever_it_stands(offset: int) -> None:
    line = "word " * 1_630 + "x" * (42 + offset) + " password=abcdefghijkl"

    assert "ijkl" not in Redaction().text(line, "f")


@pytest.mark.parametrize("piece", ["a-", "token", "prompt", '{"a":', "?key", "//", 'text:"', "&a.b_"])
def test_no_long_line_takes_for_ever(piece: str) -> None:
    line = piece * (200_000 // len(piece))

    assert len(Redaction(frozenset({"secret"})).text(line, "f")) > 0


def test_what_is_not_to_be_written_as_yaml_keeps_its_keys_alone() -> None:
    text = Redaction().configuration("baseline:\n  api_key: [secret\n  - url: x\nrest of it", "f")

    assert text == f"baseline: {MASK}\n  api_key: {MASK}\n  - url: {MASK}\n{MASK}"
