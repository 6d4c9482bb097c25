import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from quantwatch.errors import InputError, NeedsForce, QuantwatchError, StoreError
from quantwatch.expose.access import Access
from quantwatch.expose.admin import admin_app
from quantwatch.expose.as_json import board_json
from quantwatch.expose.body import LARGEST_BODY
from quantwatch.expose.calls import Admin, Reloaded
from quantwatch.expose.guard import is_loopback
from quantwatch.expose.sessions import key
from quantwatch.flow.access import ADMIN_TOKEN, Caller, Role
from quantwatch.flow.board import Board
from quantwatch.flow.load import Load
from quantwatch.flow.word import Word
from quantwatch.log import configure
from support.asking import ask
from support.boards import board, isolated, measured, numbers, rich_board, target_board
from support.builders import FakeClock
from support.desks import Desk as Daemon


async def call(
    path: str,
    *,
    method: str = "POST",
    daemon: Daemon | None = None,
    whole: Board | None = None,
    token: str | None = None,
    **options: Any,
) -> httpx.Response:
    admin: Admin = daemon or Daemon()
    shown = whole or rich_board()
    keys = [] if token is None else [key(Caller(ADMIN_TOKEN, Role.ADMIN), token)]
    return await ask(admin_app(lambda: shown, admin, access=Access(keys)), path, method=method, **options)


PAUSE = {"scope": "pool:chat", "reason": "rollout", "author": "ada", "seconds": 60}


async def test_status_is_the_board() -> None:
    reply = await call("/api/v1/status", method="GET")
    assert reply.json() == board_json(rich_board())
    assert reply.json()["ready"] is True
    assert [one["target"] for one in reply.json()["targets"]] == ["node-a", "node-b"]


async def test_status_holds_no_number_that_json_has_no_word_for() -> None:
    odd = measured(numbers=numbers(kl_mean=float("nan"), kl_interval=[0.1, float("inf")]), period=float("inf"))
    whole = board(target_board("node-a", odd), isolated(), lag=float("nan"))
    shown = (await call("/api/v1/status", method="GET", whole=whole)).json()
    told = shown["targets"][0]["task_sets"][0]
    assert (told["numbers"]["kl_mean"], told["numbers"]["kl_interval"]) == (None, [0.1, None])
    assert (told["period_seconds"], shown["own"]["loop_lag_seconds"]) == (None, None)
    assert told["limits"]["kl_mean"] == {"warn": 0.01, "critical": 0.05}


async def test_status_shows_the_load_before_and_after_the_latest_run() -> None:
    before = Load(waiting=3, kv_usage=0.5, started=1.7e9, running=2, prompt_tokens=10, generated_tokens=float("inf"))
    whole = board(target_board("node-a", measured(loads=(before, None))))
    told = (await call("/api/v1/status", method="GET", whole=whole)).json()["targets"][0]["task_sets"][0]
    shown = {"waiting": 3, "kv_usage": 0.5, "started": 1.7e9, "running": 2, "prompt_tokens": 10}
    assert told["load_before"] == {**shown, "generated_tokens": None}
    assert told["load_after"] is None


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_a_reload_tells_what_changed(method: str) -> None:
    reply = await call("/-/reload", method=method)
    assert reply.status_code == 200
    assert reply.json() == {
        "ok": True,
        "message": "the configuration was loaded",
        "changes": ["draw: 24 -> 32"],
    }


async def test_a_reload_that_failed_says_why() -> None:
    daemon = Daemon(reloaded=Reloaded(ok=False, message="quantwatch.yaml:3: targets: is missing"))
    reply = await call("/-/reload", daemon=daemon)
    assert reply.status_code == 500
    assert reply.json()["message"] == "quantwatch.yaml:3: targets: is missing"


async def test_a_pause_is_made_listed_and_ended() -> None:
    daemon = Daemon()
    made = await call("/api/v1/pauses", daemon=daemon, json=PAUSE)
    assert (made.status_code, made.json()["id"], made.json()["until"]) == (201, "p-1", "2026-01-02T03:05:05+00:00")
    listed = await call("/api/v1/pauses", method="GET", daemon=daemon)
    assert [one["scope"] for one in listed.json()["pauses"]] == ["pool:chat"]
    ended = await call("/api/v1/pauses/p-1?author=bob", method="DELETE", daemon=daemon)
    assert ended.json() == {"resumed": "p-1"}
    assert daemon.asked == [("pause", "pool:chat", "rollout", "ada", 60.0), ("resume", "p-1", "bob", "")]


async def test_a_pause_without_an_end_is_one() -> None:
    daemon = Daemon()
    reply = await call("/api/v1/pauses", daemon=daemon, json={**PAUSE, "scope": "all", "seconds": None})
    assert reply.json()["until"] is None
    assert daemon.asked == [("pause", "all", "rollout", "ada", None)]


async def test_a_pause_that_is_not_there_cannot_end() -> None:
    reply = await call("/api/v1/pauses/p-9?author=bob", method="DELETE")
    assert (reply.status_code, reply.json()) == (404, {"error": "there is no pause of this id"})


async def test_a_baseline_is_accepted_by_somebody_for_a_reason() -> None:
    daemon = Daemon()
    reply = await call("/api/v1/baseline/accept", daemon=daemon, json={"author": " ada ", "reason": "new weights"})
    assert reply.json() == {"accepted": "b-1"}
    assert daemon.asked == [("accept", "ada", "new weights")]


async def test_the_status_tells_since_when_and_how_surely_a_target_is_out() -> None:
    told = (await call("/api/v1/status", method="GET", whole=board(isolated("node-b", measured("node-b"))))).json()
    (target,) = told["targets"]
    assert (target["verified"], target["hold_until"]) == (True, "2026-01-02T03:04:05+00:00")
    assert target["task_sets"][0]["since"] == "2026-01-02T03:04:05+00:00"


async def test_a_target_is_released_by_somebody_for_a_reason() -> None:
    daemon = Daemon()
    body = {"target": "node-b", "author": "ada", "reason": "gone for good"}
    reply = await call("/api/v1/releases", daemon=daemon, json=body)
    assert (reply.status_code, reply.json()) == (202, {"decision": "d-1", "told": []})
    assert daemon.asked == [("release", Word("node-b", "ada", "gone for good"))]


@pytest.mark.parametrize(
    ("path", "extra", "asked"),
    [
        ("isolations", {"seconds": 60, "force": True}, ("isolate", Word("node-b", "ada", "x", 60.0, force=True))),
        ("isolations", {}, ("isolate", Word("node-b", "ada", "x"))),
        ("holds", {"seconds": 60}, ("hold", Word("node-b", "ada", "x", 60.0))),
        ("confirmations", {}, ("confirm_healthy", Word("node-b", "ada", "x"))),
    ],
)
async def test_a_persons_word_reaches_the_daemon_whole(
    path: str, extra: dict[str, Any], asked: tuple[Any, ...]
) -> None:
    daemon = Daemon()
    body = {"target": "node-b", "author": "ada", "reason": "x", **extra}
    reply = await call(f"/api/v1/{path}", daemon=daemon, json=body)
    assert daemon.asked == [asked]
    assert reply.status_code == (202 if path == "isolations" else 200)
    assert set(reply.json()) == {"decision", "told"}


async def test_a_proposal_is_shown_approved_and_rejected() -> None:
    daemon = Daemon()
    (shown,) = (await call("/api/v1/proposals", method="GET")).json()["proposals"]
    assert (shown["decision"], shown["action"], shown["target"]) == ("d-9", "isolate", "node-a")
    reply = await call("/api/v1/proposals/d-9/approve", daemon=daemon, json={"author": "ada"})
    assert (reply.status_code, reply.json()) == (202, {"decision": "d-9", "told": []})
    await call("/api/v1/proposals/d-9/reject", daemon=daemon, json={"author": "bob", "reason": "we know"})
    assert daemon.asked == [("approve", "d-9", "ada", ""), ("reject", "d-9", "bob", "we know")]


async def test_a_release_that_cannot_be_is_refused_with_its_reason() -> None:
    daemon = Daemon(trouble=InputError("node-a is not isolated by quantwatch"))
    body = {"target": "node-a", "author": "ada", "reason": "x"}
    reply = await call("/api/v1/releases", daemon=daemon, json=body)
    assert (reply.status_code, reply.json()["error"]) == (400, "node-a is not isolated by quantwatch")


@pytest.mark.parametrize(("task_set", "queued"), [(None, 2), ("code", 1)])
async def test_a_run_is_queued(task_set: str | None, queued: int) -> None:
    daemon = Daemon()
    body = {"target": "node-a", **({} if task_set is None else {"task_set": task_set})}
    reply = await call("/api/v1/runs", daemon=daemon, json=body)
    assert (reply.status_code, reply.json()) == (202, {"queued": queued})
    assert [one[:3] for one in daemon.asked] == [("run", "node-a", task_set)]


async def test_the_reason_of_a_call_is_handed_on() -> None:
    daemon, why = Daemon(), {"author": "ada", "reason": "seen & checked"}
    await call("/api/v1/pauses/p-1?author=ada&reason=seen+%26+checked", method="DELETE", daemon=daemon)
    await call("/api/v1/proposals/d-9/approve", daemon=daemon, json=why)
    await call("/api/v1/runs", daemon=daemon, json={"target": "node-a", **why})
    assert daemon.asked == [
        ("resume", "p-1", "ada", "seen & checked"),
        ("approve", "d-9", "ada", "seen & checked"),
        ("run", "node-a", None, "ada", "seen & checked"),
    ]


WRONG_FIELDS = [
    ("/api/v1/pauses", {**PAUSE, "scope": "pool:other"}, "scope"),
    ("/api/v1/pauses", {**PAUSE, "scope": "node-a"}, "scope"),
    ("/api/v1/pauses", {**PAUSE, "scope": None}, "scope"),
    ("/api/v1/pauses", {**PAUSE, "scope": "rollout:pool:other"}, "scope"),
    ("/api/v1/pauses", {**PAUSE, "scope": "rollout:rollout:all"}, "scope"),
    ("/api/v1/pauses", {**PAUSE, "scope": "rollout:all", "seconds": None}, "seconds"),
    ("/api/v1/pauses", {**PAUSE, "reason": "  "}, "reason"),
    ("/api/v1/pauses", {**PAUSE, "reason": "a\nb"}, "reason"),
    ("/api/v1/pauses", {**PAUSE, "author": 7}, "author"),
    ("/api/v1/pauses", {**PAUSE, "author": "x" * 501}, "author"),
    ("/api/v1/pauses", {**PAUSE, "seconds": 0}, "seconds"),
    ("/api/v1/pauses", {**PAUSE, "seconds": -1}, "seconds"),
    ("/api/v1/pauses", {**PAUSE, "seconds": True}, "seconds"),
    ("/api/v1/pauses", {**PAUSE, "seconds": "60"}, "seconds"),
    ("/api/v1/pauses", {**PAUSE, "seconds": 10**400}, "seconds"),
    ("/api/v1/baseline/accept", {"author": "ada"}, "reason"),
    ("/api/v1/releases", {"author": "ada", "reason": "x"}, "target"),
    ("/api/v1/releases", {"target": "node-b", "reason": "x"}, "author"),
    ("/api/v1/releases", {"target": "node-b", "author": "ada"}, "reason"),
    ("/api/v1/isolations", {"target": "node-b", "author": "ada", "reason": "x", "force": 1}, "force"),
    ("/api/v1/holds", {"target": "node-b", "author": "ada", "reason": "x", "seconds": 0}, "seconds"),
    ("/api/v1/proposals/d-9/approve", {}, "author"),
    ("/api/v1/proposals/d-9/reject", {"author": "ada"}, "reason"),
    ("/api/v1/runs", {}, "target"),
    ("/api/v1/runs", {"target": "stranger"}, "target"),
    ("/api/v1/runs", {"target": "node-a", "task_set": "stranger"}, "task_set"),
]


@pytest.mark.parametrize(("path", "body", "name"), WRONG_FIELDS)
async def test_a_wrong_field_is_named_and_nothing_is_done(path: str, body: dict[str, Any], name: str) -> None:
    daemon = Daemon()
    reply = await call(path, daemon=daemon, json=body)
    assert (reply.status_code, reply.json()["field"]) == (400, name)
    assert reply.json()["error"].startswith(f"{name}: ")
    assert daemon.asked == []


WRONG_BODIES = [b"", b"{", b"[]", b"null", b"\xff", b'{"seconds": NaN', b"[" * 30_000, b'{"other": 1}']


@pytest.mark.parametrize("body", WRONG_BODIES, ids=range(len(WRONG_BODIES)))
async def test_a_body_that_is_no_object_of_known_fields_is_refused(body: bytes) -> None:
    reply = await call("/api/v1/pauses", content=body)
    assert reply.status_code == 400
    assert "field" in reply.json()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_a_number_that_is_none_is_refused(number: str) -> None:
    body = json.dumps({**PAUSE, "seconds": 0}).replace("0}", number + "}")
    assert (await call("/api/v1/pauses", content=body)).json()["field"] == "seconds"


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b" " * 10_000


async def test_a_body_that_is_too_large_is_refused_before_its_end() -> None:
    reply = await call("/api/v1/pauses", content=endless())
    assert reply.status_code == 413


async def test_a_body_of_the_largest_size_is_read() -> None:
    body = json.dumps(PAUSE).encode().ljust(LARGEST_BODY)
    assert (await call("/api/v1/pauses", content=body)).status_code == 201


async def test_who_ends_a_pause_is_asked_for() -> None:
    daemon = Daemon()
    reply = await call("/api/v1/pauses/p-1", method="DELETE", daemon=daemon)
    assert (reply.status_code, reply.json()["field"], daemon.asked) == (400, "author", [])


@pytest.mark.parametrize(
    ("trouble", "status"),
    [(InputError("no such target"), 400), (StoreError("disk full"), 503), (QuantwatchError("not now"), 500)],
)
async def test_what_the_daemon_cannot_do_is_told(trouble: Exception, status: int) -> None:
    reply = await call("/api/v1/pauses", daemon=Daemon(trouble=trouble), json=PAUSE)
    assert (reply.status_code, reply.json()["error"]) == (status, str(trouble))


async def test_what_is_done_where_it_is_forced_is_told_apart() -> None:
    body = {"target": "node-b", "author": "ada", "reason": "x"}
    answers = [
        (await call("/api/v1/isolations", daemon=Daemon(trouble=trouble), json=body)).json()
        for trouble in (NeedsForce("the last backend"), InputError("no such target"))
    ]
    assert answers == [{"error": "the last backend", "forcible": True}, {"error": "no such target"}]


async def test_a_fault_of_our_own_is_not_explained_to_the_caller() -> None:
    reply = await call("/-/reload", daemon=Daemon(trouble=RuntimeError("hunter2")))
    assert reply.status_code == 500
    assert "hunter2" not in reply.text


PATHS = ["/", "/api/v1/status", "/api/v1/pauses", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer ", "Bearer other", "Basic s3cret", "s3cret", "Bearer s3cret2", "Bearer \xff"],
)
async def test_without_the_right_token_nothing_is_shown(path: str, given: str) -> None:
    headers = {"Authorization": given.encode("latin-1")}
    reply = await call(path, method="GET", token="s3cret", headers=headers)  # noqa: S106, a test's token
    assert (reply.status_code, reply.headers["www-authenticate"]) == (401, 'Bearer realm="quantwatch"')
    assert "node-a" not in reply.text


async def test_without_the_right_token_nothing_is_done() -> None:
    daemon = Daemon()
    reply = await call("/-/reload", daemon=daemon, token="s3cret")  # noqa: S106, a test's token
    assert (reply.status_code, daemon.asked) == (401, [])


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_the_right_token_opens_from_anywhere(scheme: str) -> None:
    headers = {"Authorization": f"{scheme} s3cret", "Host": "quantwatch.example", "Origin": "https://console.example"}
    reply = await call("/api/v1/status", method="GET", token="s3cret", headers=headers)  # noqa: S106, a test's token
    assert reply.status_code == 200


async def test_an_empty_token_opens_to_nobody() -> None:
    reply = await call("/", method="GET", token="", headers={"Authorization": "Bearer "})
    assert reply.status_code == 401


async def test_two_tokens_are_none() -> None:
    headers = [("Authorization", "Bearer s3cret"), ("Authorization", "Bearer other")]
    reply = await call("/", method="GET", token="s3cret", headers=headers)  # noqa: S106, a test's token
    assert reply.status_code == 401


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9470"])
async def test_without_a_token_no_web_page_gets_through(origin: str) -> None:
    daemon = Daemon()
    reply = await call("/-/reload", daemon=daemon, headers={"Origin": origin})
    assert (reply.status_code, daemon.asked) == (403, [])


@pytest.mark.parametrize("host", ["evil.example:9470", "10.0.0.7:9470", "0.0.0.0", ""])  # noqa: S104, a name in a header
async def test_without_a_token_no_other_host_name_is_answered(host: str) -> None:
    reply = await call("/api/v1/status", method="GET", headers={"Host": host})
    assert reply.status_code == 403
    assert "node-a" not in reply.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9470", "127.0.0.1", "127.8.9.1:1", "[::1]", "[::1]:9470"])
def test_a_loopback_host_is_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["localhost.evil.example", "evil-localhost", "127.0.0.1.evil.example", "[::2]:1", "[x"]
)
def test_another_host_is_no_loopback(host: str) -> None:
    assert not is_loopback(host)


async def test_the_page_links_to_the_api() -> None:
    reply = await call("/", method="GET")
    assert "/api/v1/status" in reply.text
    assert "script" not in reply.text
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("GET", "/-/reload", 405)])
async def test_what_is_not_there_is_refused_in_json(method: str, path: str, status: int) -> None:
    reply = await call(path, method=method)
    assert (reply.status_code, set(reply.json())) == (status, {"error"})


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """The log of the process while the test runs."""
    root, stream = logging.getLogger(), io.StringIO()
    level, handler = root.level, configure("json", stream=stream, now=FakeClock().now)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(capture=False)


async def test_every_call_that_changes_something_is_on_record(logged: io.StringIO) -> None:
    await call("/-/reload")
    await call("/api/v1/pauses", json=PAUSE)
    await call("/api/v1/pauses/p-1?author=bob", method="DELETE")
    await call("/api/v1/baseline/accept", json={"author": "ada", "reason": "new weights"})
    await call("/api/v1/runs", json={"target": "node-a"})
    await call("/api/v1/status", method="GET")
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    told = [line for line in lines if line["event"] == "admin call"]
    assert [line["call"] for line in told] == ["reload", "pause", "resume", "accept_baseline", "run"]
    assert {line["client"] for line in told} == {"127.0.0.1"}
    assert [line.get("author") for line in told] == [None, "ada", "bob", "ada", None]
