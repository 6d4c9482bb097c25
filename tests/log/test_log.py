import io
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from quantwatch.log import DEEPEST, LONGEST_TEXT, LineHandler, configure, is_secret, logger, plain, without_secrets
from support.builders import FakeClock

Configured = Callable[..., LineHandler]


class Terminal(io.StringIO):
    """Text in memory that says it is a terminal."""

    encoding = "ascii"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def configured() -> Iterator[Configured]:
    """configure(), undone afterwards."""
    root, handlers = logging.getLogger(), []
    level = root.level

    def set_up(*arguments: Any, **options: Any) -> LineHandler:
        handlers.append(configure(*arguments, now=FakeClock().now, **options))
        return handlers[-1]

    yield set_up
    for handler in handlers:
        root.removeHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_time_level_event_and_values(configured: Configured) -> None:
    stream = io.StringIO()
    configured("json", stream=stream)
    logger().info("run finished", target="node-a", seconds=1.5, at=datetime(2026, 1, 2, tzinfo=UTC))
    assert lines(stream) == [
        {
            "ts": "2026-01-01T00:00:00.000+00:00",
            "level": "info",
            "event": "run finished",
            "target": "node-a",
            "seconds": 1.5,
            "at": "2026-01-02T00:00:00+00:00",
        }
    ]


def test_auto_is_json_where_nobody_looks_and_columns_on_a_terminal(configured: Configured) -> None:
    pipe, terminal = io.StringIO(), Terminal()
    configured("auto", stream=pipe)
    logger().info("for programs")
    configured("auto", stream=terminal)
    logger().info("for people", target="node-a")
    assert [line["event"] for line in lines(pipe)] == ["for programs"]
    assert re.sub(r"\x1b\[\d*m", "", terminal.getvalue()).endswith("for people                     target=node-a\n")


def test_a_second_set_up_takes_the_place_of_the_first(configured: Configured) -> None:
    first, second = io.StringIO(), io.StringIO()
    configured("json", stream=first)
    configured("json", "error", stream=second)
    logger().warning("too quiet")
    logger().error("heard")
    assert (first.getvalue(), [line["event"] for line in lines(second)]) == ("", ["heard"])


def test_without_a_set_up_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    logger().error("nobody listens")
    assert capsys.readouterr() == ("", "")


def test_bound_values_stand_on_every_line(configured: Configured) -> None:
    stream = io.StringIO()
    configured("json", stream=stream)
    log = logger("quantwatch.worker").bind(target="node-a", run="r-1")
    log.info("asked", run="r-2")
    assert {"logger": "quantwatch.worker", "target": "node-a", "run": "r-2"}.items() <= lines(stream)[0].items()


def test_lines_of_libraries_take_the_same_way(configured: Configured, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uvicorn.error")  # a server of another test may have set it
    stream = io.StringIO()
    configured("json", stream=stream)
    logging.getLogger("uvicorn.error").warning("Started %s with token=%s", "server", "hunter2")
    logging.getLogger("apscheduler.executors").warning("Run of job was missed")
    assert [(line["logger"], line["event"]) for line in lines(stream)] == [
        ("uvicorn.error", "Started server with token=***"),
        ("apscheduler.executors", "Run of job was missed"),
    ]


def test_libraries_that_tell_every_request_are_heard_from_warnings_on(configured: Configured) -> None:
    stream = io.StringIO()
    configured("json", "debug", stream=stream)
    logging.getLogger("httpx").info("HTTP Request: POST http://node")
    logging.getLogger("httpx").warning("something odd")
    assert [line["event"] for line in lines(stream)] == ["something odd"]


def test_an_exception_is_one_line_with_its_traceback_and_without_secrets(configured: Configured) -> None:
    stream = io.StringIO()
    configured("json", stream=stream)
    try:
        int("http://ada:hunter2@node/v1")
    except ValueError:
        logger().exception("run failed")
    line = lines(stream)[0]
    assert line["level"] == "error"
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("'http://***@node/v1'")


def test_an_exception_on_a_terminal_shows_no_local_variables(configured: Configured) -> None:
    terminal = Terminal()
    configured("console", stream=terminal)
    try:
        hidden = "very" + "private"
        int(hidden[:1])
    except ValueError:
        logger().exception("run failed")
    assert "ValueError: invalid literal" in terminal.getvalue()
    assert "veryprivate" not in terminal.getvalue()


SECRET_KEYS = ["authorization", "Authorization", "api_key", "apiKey", "X-API-Key", "token", "admin_token", "authToken"]
SECRET_KEYS += ["signing_secret", "password", "db-password", "cookie", "Set-Cookie", "private_key", "credentials"]
OPEN_KEYS = [
    "max_tokens",
    "tokens_compared",
    "tokenizer",
    "key",
    "cache_key",
    "author",
    "target",
    "monkey",
    "secretary",
]


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_a_secret_key_masks_what_stands_under_it(key: str) -> None:
    assert is_secret(key)
    hidden = {key: "hunter2", "at": [{key: {"deep": "hunter2"}}], "headers": [(key, "hunter2"), (key.encode(), b"x")]}
    assert "hunter2" not in json.dumps(plain(hidden))


@pytest.mark.parametrize("key", OPEN_KEYS)
def test_an_open_key_is_shown(key: str) -> None:
    assert plain({key: "shown"}) == {key: "shown"}


def test_whether_a_secret_is_there_at_all_is_shown() -> None:
    assert plain({"admin_token": None, "password": False}) == {"admin_token": None, "password": False}


TOLD = [
    ("see http://ada:pa@ss@node:8000/v1 now", "see http://***@node:8000/v1 now"),
    ("GET /x?api_key=abc&n=1", "GET /x?api_key=***&n=1"),
    ("{'authorization': 'Basic YWRh', 'n': 1}", "{'authorization': 'Basic ***', 'n': 1}"),
    ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
    ("Authorization: Basic YWRh", "Authorization: Basic ***"),
    ("signed with whsec_MfKQ9r8", "signed with ***"),
    ("set-cookie: a=b; c=d", "set-cookie: ***"),
]


@pytest.mark.parametrize(("text", "told"), TOLD)
def test_a_secret_within_a_text_is_masked(text: str, told: str) -> None:
    assert without_secrets(text) == told
    assert plain([{"deep": (text,)}]) == [{"deep": [told]}]


@pytest.mark.parametrize(
    "text",
    [
        "http://node:8000/v1 and me@home",
        "8 tokens: enough",
        "the secret file:/run/k",
        "c.yaml:3: api_key: use env:K",
    ],
)
def test_an_open_text_is_left_alone(text: str) -> None:
    assert without_secrets(text) == text


def test_prompts_and_completions_are_left_out_at_any_depth() -> None:
    told = {"prompt": "a", "n": 1, "inner": [{"Prompts": ["b"], "completion": "c", "text": "d", "id": "p-1"}]}
    assert plain(told) == {"n": 1, "inner": [{"id": "p-1"}]}


@dataclass
class Golden:
    id: str
    text: str
    hidden: str = field(default="hunter2", repr=False)


def test_a_dataclass_is_told_by_its_fields_without_what_it_hides() -> None:
    assert plain(Golden("p-1", "the prompt")) == {"id": "p-1"}


class Colour(StrEnum):
    RED = "red"


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no name")


class BrokenError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def circle() -> list[Any]:
    inner: list[Any] = []
    inner.extend([inner, {"again": inner}])
    return inner


def deep() -> list[Any]:
    inner: list[Any] = []
    for _ in range(10_000):
        inner = [inner]
    return inner


ODD = {
    "nan": float("nan"),
    "infinite": float("inf"),
    "bytes": b"\x00\xff",
    "lone surrogate": "\ud800",
    "object": object(),
    "broken": Broken(),
    "error": BrokenError(),
    "circle": circle(),
    "deep": deep(),
    "set": {1},
    "keys": {1: "a", None: "b", (1, 2): "c", Broken(): "d"},
    "path": Path("/x"),
    "enum": Colour.RED,
    "huge": 10**5000,
    "long": "x" * 1_000_000,
    "many": list(range(1_000_000)),
    "type": Golden,
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("format_", ["json", "console"])
def test_an_odd_value_is_still_one_line(name: str, format_: str, configured: Configured) -> None:
    stream = io.StringIO()
    handler = configured(format_, stream=stream)
    logger().info("odd", value=ODD[name])
    assert handler.lost == 0
    assert stream.getvalue().count("\n") == 1
    assert len(stream.getvalue()) < 8 * LONGEST_TEXT


def test_an_exception_without_words_is_still_told(configured: Configured) -> None:
    stream = io.StringIO()
    configured("json", stream=stream)
    logger().error("failed", exc_info=BrokenError())
    assert "BrokenError" in lines(stream)[0]["exception"]


def test_nesting_ends_somewhere() -> None:
    text = json.dumps(plain(deep()))
    assert text.count("[") == DEEPEST


@pytest.mark.parametrize("name", ["event", "level", "ts", "logger", "self", "values", "extra", "method_name", "msg"])
def test_a_value_may_have_any_name(name: str, configured: Configured) -> None:
    stream = io.StringIO()
    configured("json", stream=stream)
    logger().info("said", **{name: "mine"})
    line = lines(stream)[0]
    assert (line["event"], line["level"]) == ("said", "info")
    assert "mine" in line.values()


BREAKS = ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"]


@pytest.mark.parametrize("end", BREAKS)
@pytest.mark.parametrize("format_", ["json", "console"])
def test_a_line_break_in_a_value_makes_no_second_line(end: str, format_: str, configured: Configured) -> None:
    stream = io.StringIO()
    configured(format_, stream=stream)
    forged = f'x{end}{{"level": "error", "event": "forged"}}'
    logger().info(forged, value=forged, nested={forged: [forged]}, **{forged: 1})
    assert len(stream.getvalue().splitlines()) == 1


def test_a_value_cannot_steer_a_terminal(configured: Configured) -> None:
    stream = io.StringIO()
    configured("console", stream=stream)
    logger().info("\x1b[2J", value="\x9b2J\x07", nested=["\x1b]0;x"])
    assert all(one.isprintable() for one in stream.getvalue().removesuffix("\n"))


def test_a_terminal_of_few_letters_shows_the_others_by_their_numbers(configured: Configured) -> None:
    terminal = Terminal()
    configured("console", stream=terminal)
    logger().info("灯塔")
    assert "\\u706f\\u5854" in terminal.getvalue()


def test_a_reader_that_went_away_stops_nobody(configured: Configured) -> None:
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w", encoding="utf-8")
    handler = configured("json", stream=stream)
    os.close(reader)
    for _ in range(3):
        logger().info("into nothing")
    assert handler.lost == 3
    with pytest.raises(BrokenPipeError):
        stream.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_stops_nobody(configured: Configured) -> None:
    stream = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115, closing it fails too
    handler = configured("json", stream=stream)
    logger().info("no room")
    assert handler.lost == 1
    with pytest.raises(OSError, match="No space left"):
        stream.close()


def test_a_closed_stream_stops_nobody(configured: Configured) -> None:
    stream = io.StringIO()
    handler = configured("json", stream=stream)
    stream.close()
    logger().info("too late")
    assert handler.lost == 1
