"""The door: a token for a session, a cookie that leaves no room for others, and the way out."""

import re
from http.cookies import SimpleCookie
from pathlib import Path

import httpx
import pytest

from quantwatch.expose.access import PageRules
from quantwatch.expose.sessions import IDLE_SECONDS
from quantwatch.expose.slowing import FREE
from quantwatch.pages.asset import FOLDER
from quantwatch.pages.login import inside
from support.desks import HERE, Place, token

PROXY = PageRules(open=False, origin="https://q.test")


def cookies(reply: httpx.Response) -> SimpleCookie:
    found = SimpleCookie()
    for one in reply.headers.get_list("set-cookie"):
        found.load(one)
    return found


async def test_a_token_gives_a_session_that_only_our_own_pages_can_send(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        reply = await browser.log_in("otto")
        (morsel,) = cookies(reply).values()
        assert (reply.status_code, reply.headers["location"], morsel.key) == (303, "/", "quantwatch")
        assert (morsel["httponly"], morsel["samesite"].lower(), morsel["path"]) == (True, "strict", "/")
        assert (morsel["secure"], morsel["domain"], morsel["max-age"], morsel["expires"]) == ("", "", "", "")
        shown = await browser.get("/")
        assert "otto (operator)" in shown.text
        assert morsel.value not in shown.text
        assert token("otto") not in shown.text


async def test_behind_a_proxy_with_tls_the_cookie_is_secure_and_the_address_is_the_configured_one(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path, rules=PROXY)
    async with place.browser(base="https://q.test") as browser:
        reply = await browser.log_in("otto")
        (morsel,) = cookies(reply).values()
        assert (reply.status_code, morsel.key, morsel["secure"]) == (303, "__Host-quantwatch", True)
        assert (await browser.get("/")).status_code == 200
        assert (await browser.post("/logout", {}, Origin=HERE)).status_code == 403


async def test_nobody_is_believed_about_https_but_the_configuration(tmp_path: Path) -> None:
    place = Place(tmp_path, rules=PageRules(local=False))
    async with place.browser() as browser:
        headers = {"X-Forwarded-Proto": "https"}
        reply = await browser.post("/login", {"token": token("otto")}, **headers)
        (morsel,) = cookies(reply).values()
        assert morsel["secure"] == ""


async def test_each_login_is_another_session_and_ends_the_one_before(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        ids = [next(iter(cookies(await browser.log_in(one)).values())).value for one in ("otto", "otto", "vera")]
        assert len(set(ids)) == 3
        assert len(place.access.sessions) == 1
        planted = "planted-by-somebody-else"
        browser.asked.cookies.set("quantwatch", planted, domain="127.0.0.1")
        assert next(iter(cookies(await browser.log_in("otto")).values())).value != planted


@pytest.mark.parametrize("given", ["", " ", "wrong", "é" * 20, "x" * 5000])
async def test_a_wrong_token_gives_nothing(tmp_path: Path, given: str) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        reply = await browser.post("/login", {"token": given})
        assert (reply.status_code, reply.headers.get_list("set-cookie"), len(place.access.sessions)) == (401, [], 0)
        assert "This token opens nothing here" in reply.text
        assert "www-authenticate" not in reply.headers
        assert place.refused == ["unauthorized"]


async def test_who_guesses_waits_by_form_and_header_alike_and_sessions_go_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser, place.browser() as guesser:
        await browser.log_in("otto")
        for i in range(FREE + 3):
            reply = await guesser.post("/login", {"token": f"wrong-{i}"})
            place.clock.time += place.access.slowing.wait("127.0.0.1") if i < FREE + 2 else 0
            assert reply.status_code == 401
        reply = await guesser.log_in("otto")
        assert (reply.status_code, reply.headers["retry-after"], reply.headers.get_list("set-cookie")) == (429, "4", [])
        assert "The next one is looked at in 4 s" in reply.text
        script = await guesser.get("/api/v1/status", Authorization=f"Bearer {token('otto')}")
        assert script.status_code == 429
        assert (await browser.get("/actions/hold")).status_code == 200
        place.clock.time += 4
        assert (await guesser.log_in("otto")).status_code == 303


@pytest.mark.parametrize("origin", ["null", "https://evil.test", "http://127.0.0.1:9471"])
async def test_another_page_cannot_log_anybody_in(tmp_path: Path, origin: str) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        reply = await browser.post("/login", {"token": token("otto")}, Origin=origin)
        assert (reply.status_code, place.refused, len(place.access.sessions)) == (403, ["origin"], 0)


async def test_a_page_with_a_rebound_name_slows_nobody_down(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser(base="http://evil.test") as page, place.browser() as browser:
        for i in range(3 * FREE):
            assert (await page.post("/login", {"token": f"wrong-{i}"})).status_code == 403
            sent = {"Authorization": f"Bearer wrong-{i}"}
            assert (await page.get("/api/v1/status", **sent)).status_code == (401 if i < FREE + 1 else 429)
        assert (await page.log_in("otto")).status_code == 403
        assert (await browser.log_in("otto")).status_code == 303
        script = await browser.get("/api/v1/status", Authorization=f"Bearer {token('otto')}")
        assert script.status_code == 200


async def test_a_proxy_without_page_url_is_told_what_is_missing(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        reply = await browser.post("/login", {"token": token("otto")}, **{"X-Forwarded-For": "10.0.0.9"})
        assert (reply.status_code, len(place.access.sessions)) == (403, 0)
        assert "set server.page_url" in reply.text


@pytest.mark.parametrize("origin", ["", "null", "https://evil.test"])
async def test_another_page_cannot_log_anybody_out(tmp_path: Path, origin: str) -> None:
    """A browser keeps the session's cookie to itself there, and would take the word that deletes it all the same."""
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("otto")
        browser.asked.cookies.clear()
        reply = await browser.post("/logout", {}, Origin=origin)
        assert (reply.status_code, reply.headers.get_list("set-cookie")) == (403, [])
        assert (place.refused, len(place.access.sessions)) == (["origin"], 1)


async def test_logging_out_ends_the_session_here_and_in_the_browser(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        id_ = next(iter(cookies(await browser.log_in("otto")).values())).value
        csrf = (await browser.get("/")).text.partition('name="csrf" value="')[2].partition('"')[0]
        assert (await browser.post("/logout", {"csrf": "x"})).status_code == 403
        assert len(place.access.sessions) == 1
        reply = await browser.post("/logout", {"csrf": csrf})
        assert (reply.status_code, reply.headers["location"], len(place.access.sessions)) == (303, "/", 0)
        assert "max-age=0" in reply.headers["set-cookie"].lower()
        browser.asked.cookies.set("quantwatch", id_, domain="127.0.0.1")
        assert "otto" not in (await browser.get("/")).text.partition("<main")[0]


@pytest.mark.parametrize(
    ("path", "status", "location"),
    [
        ("/", 303, "/login?next=/"),
        ("/nodes/a%20b", 303, "/login?next=/nodes/a%20b"),
        ("/api/v1/status", 401, None),
        ("/-/reload", 401, None),
        ("/assets/page.css", 200, None),
        ("/login", 200, None),
    ],
)
async def test_pages_that_are_not_open_lead_to_the_door(
    tmp_path: Path, path: str, status: int, location: str | None
) -> None:
    place = Place(tmp_path, rules=PageRules(open=False))
    async with place.browser() as browser:
        reply = await browser.get(path)
        assert (reply.status_code, reply.headers.get("location")) == (status, location)
        assert "node-a" not in reply.text


async def test_a_page_that_asks_by_itself_is_led_to_the_door_when_its_session_has_ended(tmp_path: Path) -> None:
    place = Place(tmp_path, rules=PageRules(open=False))
    async with place.browser() as browser:
        await browser.log_in("otto")
        asked = {"HX-Request": "true", "Accept": "*/*"}
        for _ in range(4):
            place.clock.time += IDLE_SECONDS / 3.5
            reply = await browser.get("/?part=fleet", **asked)
        assert (reply.status_code, reply.headers["hx-redirect"]) == (401, "/login?ended=1")
        assert "hx-redirect" not in (await browser.get("/api/v1/status", **asked)).headers


async def test_charts_that_go_on_by_themselves_keep_no_session(tmp_path: Path) -> None:
    script = (FOLDER / "charts.js").read_text(encoding="utf-8")
    sent = re.search(r"const headers = \{ (.*?) \};\s+const reply = await fetch\(said\.source, \{ headers, ", script)
    assert sent is not None
    headers = dict(re.findall(r'"?([\w-]+)"?: "([^"]*)"', sent[1]))
    assert headers.keys() == {"Accept", "HX-Request"}
    place = Place(tmp_path, rules=PageRules(open=False))
    async with place.browser() as browser:
        await browser.log_in("otto")
        replies = []
        for _ in range(4):
            place.clock.time += IDLE_SECONDS / 3.5
            replies.append(await browser.asked.get("/nodes/node-a/series.json?set=math", headers=headers))
    assert [one.status_code == 401 for one in replies] == [False, False, False, True]


async def test_after_the_door_one_is_where_one_wanted_to_be(tmp_path: Path) -> None:
    place = Place(tmp_path, rules=PageRules(open=False))
    async with place.browser() as browser:
        reply = await browser.post("/login", {"token": token("otto"), "next": "/nodes/node-a?set=math"})
        assert reply.headers["location"] == "/nodes/node-a?set=math"


ELSEWHERE = [
    "",
    "//evil.test",
    "https://evil.test",
    "/\\evil.test",
    "javascript:alert(1)",
    "/\n/evil.test",
    "/é",
    "/login",
]


@pytest.mark.parametrize("path", ELSEWHERE)
def test_the_door_leads_nowhere_else(path: str) -> None:
    assert inside(path) == "/"
