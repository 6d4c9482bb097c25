"""Who may do what at the admin listener: every role against every path, sessions, guesses, and other people's pages."""

import hmac
import inspect
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers
from starlette.routing import Route

from quantwatch.expose.access import MOST_TOLD, QUIET_SECONDS, Access, PageRules
from quantwatch.expose.admin import admin_app, api_routes
from quantwatch.expose.calls import LEAST, Calls
from quantwatch.expose.guard import cookie
from quantwatch.expose.sessions import IDLE_SECONDS, LONGEST_SECONDS, MOST, Sessions, digest_of, key
from quantwatch.expose.slowing import FORGOTTEN_SECONDS, FREE, LONGEST_WAIT, MOST_CLIENTS, Slowing
from quantwatch.flow.access import Caller, Role
from support.asking import ask
from support.boards import rich_board
from support.builders import FakeClock
from support.desks import TOKENS, Desk, Place, bearer, keys, token

BODIES: dict[str, dict[str, Any]] = {
    "/api/v1/pauses": {"scope": "all", "reason": "x"},
    "/api/v1/baseline/accept": {"reason": "x"},
    "/api/v1/proposals/{id}/approve": {},
    "/api/v1/proposals/{id}/reject": {"reason": "x"},
    "/api/v1/runs": {"target": "node-a"},
}
WORD = {"target": "node-a", "reason": "x"}


def paths() -> list[tuple[str, str, Role]]:
    """Every method and path of the API with the least role for it."""
    routes = api_routes(Calls(rich_board, Desk()), Access())
    found = []
    for one in routes:
        assert isinstance(one, Route)
        least = Role.VIEWER if one.name == "read" else LEAST[one.name]
        found += [(method, one.path, least) for method in sorted(one.methods or ())]
    return found


async def asked(
    method: str, path: str, *, access: Access, desk: Desk | None = None, headers: dict[str, str] | None = None
) -> httpx.Response:
    body = None if method in ("GET", "HEAD", "DELETE") or path == "/-/reload" else BODIES.get(path, WORD)
    app = admin_app(rich_board, desk or Desk(), access=access)
    return await ask(app, path.replace("{id}", "p-1"), method=method, json=body, headers=headers)


def test_every_call_has_its_least_role_and_every_path_its_call() -> None:
    told = {(method, path): least for method, path, least in paths()}
    assert len(told) == 18
    assert (
        told["POST", "/-/reload"] is told["PUT", "/-/reload"] is told["POST", "/api/v1/baseline/accept"] is Role.ADMIN
    )
    assert {least for (method, _), least in told.items() if method in ("GET", "HEAD")} == {Role.VIEWER}
    others = {path: least for (_, path), least in told.items() if least is Role.OPERATOR}
    assert len(others) == 9


@pytest.mark.parametrize("name", TOKENS)
@pytest.mark.parametrize(("method", "path", "least"), paths())
async def test_a_role_opens_what_it_is_for_and_nothing_else(method: str, path: str, least: Role, name: str) -> None:
    desk, told = Desk(), list[str]()
    reply = await asked(method, path, access=Access(keys(), refused=told.append), desk=desk, headers=bearer(name))
    if TOKENS[name].may(least):
        assert reply.is_success
        assert told == []
    else:
        assert (reply.status_code, desk.asked, told) == (403, [], ["forbidden"])
        said = reply.json()
        assert said["needs"] == least.value
        assert f"needs the role {least.value}; {name} has the role {TOKENS[name].value}" in said["error"]


@pytest.mark.parametrize(("method", "path", "least"), paths())
async def test_nobody_without_a_token_gets_anything_of_the_api(method: str, path: str, least: Role) -> None:
    desk, told = Desk(), list[str]()
    reply = await asked(method, path, access=Access(keys(), refused=told.append), desk=desk)
    assert (reply.status_code, desk.asked, told) == (401, [], ["unauthorized"]), least


@pytest.mark.parametrize(("method", "path", "least"), paths())
async def test_without_any_token_this_machine_may_do_everything_as_before(method: str, path: str, least: Role) -> None:
    reply = await ask(
        admin_app(rich_board, Desk(), access=Access()),
        path.replace("{id}", "p-1") + ("?author=ada" if method == "DELETE" else ""),
        method=method,
        json=None if method in ("GET", "HEAD", "DELETE") or path == "/-/reload" else _by_ada(path),
    )
    assert reply.is_success, least


def _by_ada(path: str) -> dict[str, Any]:
    return {**BODIES.get(path, WORD), "author": "ada"}


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Forwarded", "Via"]
)
async def test_what_a_proxy_brings_is_not_from_this_machine(header: str) -> None:
    reply = await ask(admin_app(rich_board, Desk()), "/api/v1/status", headers={header: "10.0.0.9"})
    assert reply.status_code == 403


async def test_a_token_of_ones_own_is_the_author_and_another_name_stands_behind_it() -> None:
    desk = Desk()
    app = admin_app(rich_board, desk, access=Access(keys()))
    for given in ({}, {"author": "otto"}, {"author": "cron"}):
        sent = {"target": "node-a", "reason": "x", **given}
        await ask(app, "/api/v1/holds", method="POST", headers=bearer("otto"), json=sent)
    assert [word.author for _, word in desk.asked] == ["otto", "otto", "otto (as cron)"]


async def test_the_shared_admin_token_still_asks_who_it_is() -> None:
    app = admin_app(rich_board, Desk(), access=Access(keys()))
    reply = await ask(app, "/api/v1/holds", method="POST", headers=bearer("admin"), json=WORD)
    assert (reply.status_code, reply.json()["field"]) == (400, "author")
    reply = await ask(app, "/api/v1/holds", method="POST", headers=bearer("admin"), json={**WORD, "author": "ada"})
    assert reply.is_success


async def test_every_call_is_on_record_with_caller_role_and_client(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[tuple[str, str]] = []
    app = admin_app(rich_board, Desk(), access=Access(keys()), counted=lambda *one: counted.append(one))
    await ask(app, "/api/v1/holds", method="POST", headers=bearer("otto"), json={**WORD, "author": "cron"})
    await ask(app, "/-/reload", method="POST", headers=bearer("root"))
    sent = {"target": "node-a", "reason": "after the fix"}
    await ask(app, "/api/v1/runs", method="POST", headers=bearer("otto"), json=sent)
    lines = [one.msg for one in caplog.records if isinstance(one.msg, dict) and one.msg["event"] == "admin call"]
    assert [(one["call"], one["caller"], one["role"], one["client"]) for one in lines] == [
        ("hold", "otto", "operator", "127.0.0.1"),
        ("reload", "root", "admin", "127.0.0.1"),
        ("run", "otto", "operator", "127.0.0.1"),
    ]
    assert (lines[0]["author"], lines[2]["reason"]) == ("otto (as cron)", "after the fix")
    assert counted == [("hold", "operator"), ("reload", "admin"), ("run", "operator")]


def test_a_token_is_compared_with_every_key_in_constant_time() -> None:
    compared: list[tuple[bytes, bytes]] = []

    def same(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    access = Access(keys(), same=same)
    for name in (*TOKENS, "admin", "nobody"):
        compared.clear()
        found = access.key_of(token(name).encode())
        assert (found.caller.name if found is not None else None) == (None if name == "nobody" else name)
        assert [one for one, _ in compared] == [one.digest for one in access.keys]
        assert {len(other) for _, other in compared} == {32}
    assert inspect.signature(Access).parameters["same"].default is hmac.compare_digest


def test_what_is_kept_of_a_token_does_not_show_it() -> None:
    one = key(Caller("ada", Role.VIEWER, named=True), token("ada"))
    assert token("ada") not in repr(one)
    assert one.digest not in (b"", token("ada").encode())
    assert repr(one.digest) not in repr(one)


@pytest.mark.parametrize("empty", [b"", b" "])
def test_nothing_is_no_token(empty: bytes) -> None:
    assert Access([key(Caller("ada", Role.VIEWER), "")]).key_of(empty) is None


# Guesses


def guess(slowing: Slowing, client: str, *tokens: str) -> None:
    for one in tokens:
        slowing.failed(client, one.encode())


def test_a_few_wrong_tokens_cost_nothing_and_each_further_one_doubles_the_wait() -> None:
    clock = FakeClock()
    slowing = Slowing(clock)
    guess(slowing, "10.0.0.1", *(f"wrong-{i}" for i in range(FREE)))
    assert slowing.wait("10.0.0.1") == 0
    waits = []
    for i in range(9):
        guess(slowing, "10.0.0.1", f"another-{i}")
        waits.append(slowing.wait("10.0.0.1"))
        clock.time += waits[-1]
        assert slowing.wait("10.0.0.1") == 0
    assert waits == [1, 2, 4, 8, 16, 32, LONGEST_WAIT, LONGEST_WAIT, LONGEST_WAIT]
    assert slowing.wait("10.0.0.2") == 0


def test_the_same_wrong_token_again_is_no_guess() -> None:
    slowing = Slowing(FakeClock())
    guess(slowing, "127.0.0.1", *["the token of yesterday"] * 1000)
    assert slowing.wait("127.0.0.1") == 0


def test_guesses_are_forgotten_after_a_quiet_time() -> None:
    clock = FakeClock()
    slowing = Slowing(clock)
    guess(slowing, "10.0.0.1", *(f"wrong-{i}" for i in range(20)))
    clock.time += FORGOTTEN_SECONDS + 1
    guess(slowing, "10.0.0.1", "one more")
    assert slowing.wait("10.0.0.1") == 0


def test_a_whole_network_of_ipv6_is_one_client() -> None:
    slowing = Slowing(FakeClock())
    for i in range(FREE + 1):
        guess(slowing, f"2001:db8:1:2::{i:x}", f"wrong-{i}")
    assert slowing.wait("2001:db8:1:2:ffff::1") == 1
    assert slowing.wait("2001:db8:1:3::1") == 0


def test_little_is_remembered_of_many_clients() -> None:
    slowing = Slowing(FakeClock())
    for i in range(3 * MOST_CLIENTS):
        guess(slowing, f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}", *(f"{i}-{j}" for j in range(3)))
    assert len(slowing._clients) == MOST_CLIENTS
    guess(slowing, "10.9.9.9", *(f"wrong-{i}" for i in range(500)))
    assert len(slowing._clients["10.9.9.9"].known) <= 16
    assert slowing.wait("10.9.9.9") == LONGEST_WAIT


async def test_who_guesses_by_the_header_waits_and_not_even_the_right_one_is_looked_at() -> None:
    clock, told = FakeClock(), list[str]()
    access = Access(keys(), clock=clock, refused=told.append)
    app = admin_app(rich_board, Desk(), access=access)
    for i in range(FREE + 1):
        reply = await ask(app, "/api/v1/status", headers={"Authorization": f"Bearer wrong-{i}"})
        assert reply.status_code == 401
    reply = await ask(app, "/api/v1/status", headers=bearer("otto"))
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "1")
    clock.time += 1
    assert (await ask(app, "/api/v1/status", headers=bearer("otto"))).status_code == 200
    assert told == ["unauthorized"] * (FREE + 1) + ["slowed"]


# Sessions


def a_key(name: str = "otto") -> Any:
    return key(Caller(name, Role.OPERATOR, named=True), token(name))


def test_a_session_ends_when_it_is_idle_and_at_the_latest_after_a_shift() -> None:
    clock = FakeClock()
    sessions = Sessions(clock)
    id_, session = sessions.begin(a_key())
    clock.time += IDLE_SECONDS
    assert sessions.find(id_) is session
    clock.time += IDLE_SECONDS + 1
    assert sessions.find(id_) is None
    id_, _ = sessions.begin(a_key())
    alive = 0
    while sessions.find(id_) is not None:
        clock.time += IDLE_SECONDS
        alive += 1
    assert (alive - 1) * IDLE_SECONDS == LONGEST_SECONDS
    assert len(sessions) == 0


@pytest.mark.parametrize(("role", "alive"), [(Role.VIEWER, True), (Role.OPERATOR, False), (Role.ADMIN, False)])
def test_a_page_that_asks_by_itself_keeps_the_session_of_who_only_looks(role: Role, *, alive: bool) -> None:
    clock = FakeClock()
    sessions = Sessions(clock)
    id_, _ = sessions.begin(key(Caller("ada", role, named=True), token("ada")))
    for _ in range(40):
        clock.time += IDLE_SECONDS / 20
        sessions.find(id_, by_itself=True)
    assert (sessions.find(id_) is not None) is alive


def test_sessions_are_few_and_the_idlest_ends_first() -> None:
    sessions = Sessions(FakeClock())
    ids = [sessions.begin(a_key())[0] for _ in range(MOST)]
    assert sessions.find(ids[0]) is not None
    sessions.begin(a_key())
    assert (len(sessions), sessions.find(ids[0]) is None, sessions.find(ids[1])) == (MOST, False, None)


def test_nobody_ends_the_sessions_of_others_by_beginning_many() -> None:
    sessions = Sessions(FakeClock())
    theirs = [sessions.begin(a_key("otto"))[0] for _ in range(MOST)]
    for _ in range(1000):
        sessions.begin(key(Caller("vera", Role.VIEWER, named=True), token("vera")))
    assert [one for one in theirs if sessions.find(one) is None] == []
    assert len(sessions) == 2 * MOST


def test_no_two_sessions_share_an_id_or_a_forms_token_and_no_id_is_kept() -> None:
    sessions = Sessions(FakeClock())
    made = [sessions.begin(a_key()) for _ in range(50)]
    assert len({id_ for id_, _ in made} | {one.csrf for _, one in made}) == 100
    assert set(sessions._open) == {digest_of(id_.encode()) for id_, _ in made[-MOST:]}


@pytest.mark.parametrize("id_", ["", "x", "é", "\udcff", "0" * 10_000])
def test_an_id_from_elsewhere_is_no_session(id_: str) -> None:
    sessions = Sessions(FakeClock())
    sessions.begin(a_key())
    assert sessions.find(id_) is None


def test_renewed_tokens_end_the_sessions_of_those_that_changed_and_of_no_other() -> None:
    access = Access(keys(), clock=FakeClock())
    ids = {one.caller.name: access.sessions.begin(one)[0] for one in access.keys}
    raised = key(Caller("vera", Role.ADMIN, named=True), token("vera"))
    rotated = key(Caller("otto", Role.OPERATOR, named=True), token("another otto"))
    access.renew([raised, rotated, *(one for one in access.keys if one.caller.name == "root")], PageRules())
    assert [name for name, id_ in ids.items() if access.sessions.find(id_) is not None] == ["root"]
    assert access.key_of(token("otto").encode()) is None


# Other people's pages, and who may read ours


RULES = {"here": PageRules(), "proxy": PageRules(open=False, origin="https://q.test")}
ORIGINS = [
    ("here", "http://127.0.0.1:9470", "127.0.0.1:9470", True),
    ("here", "https://127.0.0.1:9470", "127.0.0.1:9470", True),
    ("here", "HTTP://LOCALHOST:9470", "localhost:9470", True),
    ("here", "http://127.0.0.1:9471", "127.0.0.1:9470", False),
    ("here", "http://evil.test", "127.0.0.1:9470", False),
    ("here", "http://127.0.0.1:9470.evil.test", "127.0.0.1:9470", False),
    ("here", "null", "127.0.0.1:9470", False),
    ("proxy", "https://q.test", "127.0.0.1:9470", True),
    ("proxy", "http://q.test", "q.test", False),
    ("proxy", "https://q.test.evil.test", "127.0.0.1:9470", False),
    ("proxy", "http://127.0.0.1:9470", "127.0.0.1:9470", False),
]


@pytest.mark.parametrize(("rules", "origin", "host", "fine"), ORIGINS)
def test_only_our_own_origin_counts(rules: str, origin: str, host: str, *, fine: bool) -> None:
    assert RULES[rules].same_origin(Headers({"origin": origin, "host": host})) is fine


@pytest.mark.parametrize("given", [[], ["http://127.0.0.1:9470"] * 2])
def test_no_origin_or_two_do_not_count(given: list[str]) -> None:
    raw = [(b"origin", one.encode()) for one in given] + [(b"host", b"127.0.0.1:9470")]
    assert not PageRules().same_origin(Headers(raw=raw))


READERS = [
    # rules, host, header of a proxy, read
    (PageRules(), "127.0.0.1:9470", "", 200),
    (PageRules(), "localhost:9470", "", 200),
    (PageRules(), "evil.test", "", 401),
    (PageRules(), "127.0.0.1:9470", "X-Forwarded-For", 401),
    (PageRules(open=False), "127.0.0.1:9470", "", 401),
    (PageRules(open=True, local=False), "q.test", "X-Forwarded-For", 200),
    (PageRules(open=False, local=False), "q.test", "", 401),
]


@pytest.mark.parametrize(("rules", "host", "proxy", "status"), READERS)
async def test_pages_are_read_without_a_token_where_they_are_open_and_nothing_else_is(
    rules: PageRules, host: str, proxy: str, status: int
) -> None:
    app = admin_app(rich_board, Desk(), access=Access(keys(), rules=rules))
    headers = {"Host": host, **({proxy: "10.0.0.9"} if proxy else {})}
    assert (await ask(app, "/", headers=headers)).status_code == status
    assert (await ask(app, "/api/v1/status", headers=headers)).status_code == 401
    assert (await ask(app, "/-/reload", method="POST", headers=headers)).status_code == 401


async def test_a_browsers_session_reads_the_api_and_changes_nothing_there(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("root")
        assert (await browser.get("/api/v1/status")).status_code == 200
        reply = await browser.asked.post("/-/reload", headers={"Origin": browser.origin})
        assert (reply.status_code, place.desk.asked, place.refused) == (403, [], ["session"])


@pytest.mark.parametrize("origin", ["", "null", "https://evil.test", "http://127.0.0.1:1"])
async def test_a_session_is_no_use_to_other_pages(tmp_path: Path, origin: str) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        await browser.log_in("root")
        for path in ("/actions/hold", "/logout", "/-/reload", "/login"):
            assert (await browser.post(path, {"about": "node-a"}, Origin=origin)).status_code == 403
        assert place.refused == ["origin"] * 4
        assert (await browser.get("/actions/hold")).status_code == 200  # the session lives on


FOREIGN = ['theme={"dark":true}', "a b=c", "=x", "bare", "x=é", 'q="open', "other[0]=1,2", "quantwatch2=no"]


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_cookie_is_found_beside_foreign_ones(foreign: str) -> None:
    for sent in ([f"{foreign}; quantwatch=SID"], [f"quantwatch=SID; {foreign}"], [foreign, "quantwatch=SID"]):
        headers = Headers(raw=[(b"cookie", one.encode("latin-1")) for one in sent])
        assert cookie(headers, "quantwatch") == "SID"
    assert cookie(Headers(raw=[(b"cookie", foreign.encode("latin-1"))]), "quantwatch") == ""


async def test_a_foreign_cookie_keeps_nobody_from_logging_in(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with place.browser() as browser:
        (sent,) = (await browser.log_in("otto")).headers.get_list("set-cookie")
        browser.asked.cookies.clear()
        reply = await browser.get("/", Cookie=f'theme={{"dark":true}}; {sent.partition(";")[0]}')
        assert "otto (operator)" in reply.text


# Refusals are told, but not each of them


def test_a_flood_of_refusals_is_counted_whole_and_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock, counted = FakeClock(), list[str]()
    access = Access(keys(), clock=clock, refused=counted.append)
    for _ in range(100):
        access.refused("unauthorized", "10.0.0.1", path="/x" * 500)
    access.refused("unauthorized", "10.0.0.2", path="/")
    clock.time += QUIET_SECONDS
    access.refused("unauthorized", "10.0.0.1", path="/")
    lines = [one.msg for one in caplog.records if isinstance(one.msg, dict)]
    assert [(one["client"], one["unsaid"], len(one["path"])) for one in lines] == [
        ("10.0.0.1", 0, 200),
        ("10.0.0.2", 0, 1),
        ("10.0.0.1", 99, 1),
    ]
    assert len(counted) == 102
    for i in range(3 * MOST_TOLD):
        access.refused("unauthorized", f"10.1.{i >> 8}.{i & 255}", path="/")
    assert len(access._told) == MOST_TOLD
