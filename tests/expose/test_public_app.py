import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from quantwatch.expose.app import public_app
from quantwatch.expose.exposition import OPENMETRICS, exposition
from quantwatch.expose.meters import Meters
from quantwatch.flow.board import Board
from quantwatch.flow.decision import PoolMode
from quantwatch.flow.state import Human, Pause, Routing
from quantwatch.flow.verdict import Quality
from support.asking import ask
from support.boards import AT, board, isolated, measured, rich_board, starting, target_board


async def get(whole: Board, path: str, *, meters: Meters | None = None, **options: Any) -> httpx.Response:
    return await ask(public_app(lambda: whole, meters or Meters()), path, **options)


def broken() -> Board:
    raise RuntimeError("no board")


async def test_the_metrics_page_is_the_board_and_the_meters() -> None:
    meters = Meters()
    meters.store_error()
    reply = await get(rich_board(), "/metrics", meters=meters)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "quantwatch_store_errors_total 1.0" in reply.text
    assert 'quantwatch_kl_divergence_mean_nats{target="node-a",task_set="math"}' in reply.text


async def test_metrics_are_openmetrics_where_that_is_asked_for() -> None:
    reply = await get(board(), "/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0,*/*;q=0.1"})
    assert reply.headers["content-type"] == OPENMETRICS
    assert reply.text.endswith("# EOF\n")


async def test_each_scrape_sees_the_board_of_its_moment() -> None:
    boards = iter([board(target_board("node-a"), target_board("node-b")), board(target_board("node-a"))])
    app = public_app(lambda: next(boards), Meters())
    pages = [(await ask(app, "/metrics")).text for _ in range(2)]
    assert ['target="node-b"' in page for page in pages] == [True, False]


@pytest.mark.parametrize("trouble", [{"restored": False}, {"store_trouble": "full"}, {"gateway_trouble": "down"}])
async def test_healthy_depends_on_nothing(trouble: dict[str, Any]) -> None:
    assert (await get(board(**trouble), "/-/healthy")).status_code == 200
    assert (await ask(public_app(broken, Meters()), "/-/healthy")).status_code == 200


async def test_ready_says_what_is_missing() -> None:
    fine, missing = (await get(board(), "/-/ready")), await get(board(restored=False, store_trouble="full"), "/-/ready")
    assert (fine.status_code, fine.json()) == (200, {"ready": True, "reasons": []})
    assert missing.status_code == 503
    assert missing.json()["reasons"] == [
        "the recorded state has not been read yet",
        "the store cannot be written: full",
    ]


@pytest.mark.parametrize("routing", [Routing.OUT, Routing.LEAVING])
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_a_target_that_we_took_out_is_refused(routing: Routing, method: str) -> None:
    reply = await get(board(isolated("node-b", routing=routing)), "/verdict/node-b", method=method)
    assert reply.status_code == 503
    assert reply.headers["cache-control"] == "no-store"
    if method == "HEAD":
        assert reply.content == b""


async def test_a_verdict_tells_what_decided() -> None:
    reply = await get(board(isolated("node-b", measured("node-b", quality=Quality.DEGRADED))), "/verdict/node-b")
    assert reply.json() == {
        "target": "node-b",
        "known": True,
        "isolated": True,
        "quality": "degraded",
        "routing": "out",
        "reason": "mean KL 0.2 is over 0.05",
        "decision": "d-1",
        "since": "2026-01-02T03:04:05+00:00",
        "task_sets": {
            "math": {
                "quality": "degraded",
                "last": "ok",
                "reason": "fine",
                "fresh": True,
                "run": "r-1",
                "at": "2026-01-02T03:04:05+00:00",
            }
        },
    }


LEFT_ALONE = {
    "in traffic": board(target_board("node-b")),
    "degraded but in traffic": board(target_board("node-b", quality=Quality.DEGRADED)),
    "returning": board(isolated("node-b", routing=Routing.RETURNING)),
    "contradicted": board(isolated("node-b", routing=Routing.CONTRADICTED)),
    "taken out by somebody else": board(isolated("node-b", owner=None)),
    "only observed": board(isolated("node-b"), mode=PoolMode.OBSERVE),
    "starting": starting(board(isolated("node-b"))),
    "forced in": board(isolated("node-b", human=Human.FORCED_IN)),
    "unknown": board(target_board("node-a")),
}


@pytest.mark.parametrize("why", LEFT_ALONE)
async def test_any_other_target_is_not_refused(why: str) -> None:
    reply = await get(LEFT_ALONE[why], "/verdict/node-b")
    assert (reply.status_code, reply.json()["isolated"]) == (200, False)
    assert reply.json()["known"] is (why != "unknown")


async def test_a_target_that_left_the_configuration_stays_refused() -> None:
    whole = board(isolated("node-b", left=True, pool="gone"))
    assert (await get(whole, "/verdict/node-b")).status_code == 503


async def test_a_store_that_fails_later_brings_no_isolated_target_back() -> None:
    assert (await get(board(isolated("node-b"), store_trouble="full"), "/verdict/node-b")).status_code == 503


@pytest.mark.parametrize("path", ["/verdict/node-b/", "/verdict/node%2Db"])
async def test_a_target_is_found_by_another_spelling_of_its_path(path: str) -> None:
    assert (await get(board(isolated("node-b")), path)).status_code == 503


@pytest.mark.parametrize(
    "path", ["/verdict/a/b", "/verdict/%00%0a", "/verdict/%ff", "/verdict/", "/verdict/" + "x" * 9999]
)
async def test_an_odd_name_is_an_unknown_target(path: str) -> None:
    reply = await get(board(), path)
    assert (reply.status_code, reply.json()["known"]) == (200, False)


async def test_our_own_trouble_speaks_against_no_target() -> None:
    app = public_app(broken, Meters())
    reply = await ask(app, "/verdict/node-b")
    assert (reply.status_code, reply.json()["known"], reply.json()["isolated"]) == (200, False, False)
    assert (await ask(app, "/metrics")).status_code == 500
    assert (await ask(app, "/-/ready")).status_code == 500


async def test_questions_are_counted_by_known_targets_only() -> None:
    meters = Meters()
    for name in ("node-a", "node-a", "stranger"):
        await get(board(), f"/verdict/{name}", meters=meters)
    page = exposition(board(), meters)[0].decode()
    assert 'quantwatch_verdict_requests_total{target="node-a"} 2.0' in page
    assert "quantwatch_verdict_unknown_requests_total 1.0" in page
    assert "stranger" not in page


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("POST", "/metrics", 405),
        ("DELETE", "/verdict/node-a", 405),
        ("POST", "/-/reload", 404),
    ],
)
async def test_what_is_not_there_is_refused_in_json(method: str, path: str, status: int) -> None:
    reply = await get(board(), path, method=method)
    assert reply.status_code == status
    assert set(reply.json()) == {"error"}
    assert ("allow" in reply.headers) is (status == 405)


class Reader(HTMLParser):
    """Collects tags and text, and fails on tags that are not closed in order."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str | None] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name == "href"]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


async def test_the_page_shows_each_target_and_where_to_look_further() -> None:
    reader = Reader((await get(rich_board(), "/")).text)
    assert {"/metrics", "/-/healthy", "/-/ready", "/verdict/node-a", "/verdict/node-b"} == set(reader.links)
    assert {"degraded", "out", "mean KL 0.2 is over 0.05", "left the configuration", "Ready"} <= set(reader.texts)
    paused = "Paused (pool:chat) by ada until further notice (review 2026-01-03T03:04:05+00:00): rollout"
    assert {paused, "By the gateway's own list no traffic goes to node-a"} <= set(reader.texts)
    assert {f"on probation until {AT.isoformat()}", f"stays out until {AT.isoformat()} at least"} <= set(reader.texts)


async def test_the_page_tells_troubles() -> None:
    whole = board(restored=False, reload_ok=False, gateway_trouble="refused")
    text = (await get(whole, "/")).text
    assert "Not ready: the recorded state has not been read yet" in text
    assert "an earlier one runs" in text
    assert "Gateway: refused" in text


async def test_the_policy_of_the_page_allows_its_own_style_and_nothing_else() -> None:
    reply = await get(rich_board(), "/")
    style = re.search(r"<style>(.*?)</style>", reply.text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = reply.headers["content-security-policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")
    assert "unsafe" not in policy
    assert " style=" not in reply.text
    assert reply.headers["x-content-type-options"] == "nosniff"


HOSTILE = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</style>",
    "&amp;",
    "javascript:x",
    "\ud800",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
async def test_the_page_holds_hostile_words_as_words(text: str) -> None:
    target = target_board(text, measured(text, text), pool=text, reason=text, human=Human.HELD)
    pause = Pause("p", text, text, text, AT)
    whole = board(target, pauses=(pause,), store_trouble=text, gateway_trouble=text)
    reply = await get(whole, "/")
    reader = Reader(reply.text)
    assert set(reader.tags).isdisjoint({"script", "img"})
    assert all(link is not None and link.startswith("/") for link in reader.links)
    assert text.encode("utf-8", "replace").decode() in reader.texts
