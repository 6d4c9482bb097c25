"""A real daemon with tokens: who did what is on record, and tokens change while it runs."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from quantwatch.daemon.entrance import Entrance
from quantwatch.daemon.process import Daemon
from quantwatch.errors import InputError
from quantwatch.expose.meters import Meters
from quantwatch.record.archive import Archive
from support.builders import FakeClock
from support.daemons import Site, inside, site, until
from support.desks import Browser
from support.gateway import Gateway, served_gateway
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode

SECRETS = {"vera": "a-viewers-token-000", "otto": "an-operators-token-0", "root": "an-admins-token-0000"}
ROLES = {"vera": "viewer", "otto": "operator", "root": "admin"}


@dataclass(slots=True)
class Guarded:
    """A daemon that watches two nodes, with tokens in files."""

    daemon: Daemon
    site: Site
    caplog: pytest.LogCaptureFixture
    gateway: Gateway
    client: httpx.AsyncClient = field(default_factory=httpx.AsyncClient)
    browsers: list[Browser] = field(default_factory=list)

    def browser(self) -> Browser:
        """A person in front of its pages."""
        self.browsers.append(Browser(httpx.AsyncClient(base_url=self.site.admin), self.site.admin))
        return self.browsers[-1]

    async def close(self) -> None:
        """Close every connection."""
        for one in (self.client, *(browser.asked for browser in self.browsers)):
            await one.aclose()

    async def call(self, name: str, path: str, body: dict[str, Any], *, method: str = "POST") -> httpx.Response:
        """Call the API as somebody."""
        headers = {"Authorization": f"Bearer {SECRETS[name]}"}
        return await self.client.request(method, f"{self.site.admin}{path}", json=body, headers=headers)

    def rotate(self, name: str, secret: str) -> None:
        """Exchange a token on disk."""
        (self.site.folder / name).write_text(secret)

    async def metric(self, name: str) -> list[str]:
        """The lines of one series."""
        page = (await self.client.get(f"{self.site.public}/metrics")).text
        return [line for line in page.splitlines() if line.startswith(f"quantwatch_{name}")]

    async def changes(self) -> list[tuple[str, str, str]]:
        """The record of what people said: target, new state, author."""
        assert await self.daemon.desk._watch().keeper.flush()
        with Archive.open(self.site.store) as archive:
            found = archive.timeline()
        return [(one.target, one.new, one.author) for one in found if one.axis == "human"]


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, ...]]:
    """A baseline and two nodes."""
    with served(TinyNode()) as baseline, served(node()) as a, served(node()) as b:
        yield baseline, a, b


@pytest.fixture
async def guarded(tmp_path: Path, urls: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> AsyncIterator[Guarded]:
    """The daemon, whose gateway can be read back."""
    caplog.set_level("INFO", logger="quantwatch")
    gateway = Gateway()
    with served_gateway(gateway) as server:
        acting: dict[str, Any] = {
            "pools": {"chat": {"mode": "enforce", "max_isolated": "50%", "fallback": "baseline"}},
            "gateway": {"driver": "webhook", "url": f"{server.url}/act", "state_url": f"{server.url}/state"},
        }
        where = site(tmp_path, urls[0], {"a": urls[1], "b": urls[2]}, **acting)
        where.content["server"]["tokens"] = [
            {"name": name, "role": role, "token": f"file:{tmp_path / name}"} for name, role in ROLES.items()
        ]
        for name, secret in SECRETS.items():
            (tmp_path / name).write_text(secret)
            (tmp_path / name).chmod(0o600)
        async with inside(where.write()) as daemon:
            found = Guarded(daemon, where, caplog, gateway)
            try:
                yield found
            finally:
                await found.close()


def hidden(reply: httpx.Response, name: str) -> str:
    return reply.text.partition(f'name="{name}" value="')[2].partition('"')[0]


async def test_the_record_names_the_token_and_the_page_acts_as_the_api_does(guarded: Guarded) -> None:
    held = {"target": "a", "reason": "by script", "author": "cron"}
    assert (await guarded.call("vera", "/api/v1/holds", held)).status_code == 403
    assert (await guarded.call("otto", "/api/v1/holds", held)).is_success
    assert (
        await guarded.call("root", "/api/v1/isolations", {"target": "b", "reason": "x"})
    ).status_code == 400  # brakes
    browser = guarded.browser()
    assert (await browser.post("/login", {"token": SECRETS["otto"]})).status_code == 303
    csrf = hidden(await browser.get("/actions/isolate?about=b"), "csrf")
    fields = {"csrf": csrf, "about": "b", "reason": "by hand"}
    refused = await browser.post("/actions/isolate", fields)
    assert (refused.status_code, "no sound backend left" in refused.text) == (409, True)
    shown = await browser.post("/actions/isolate", {**fields, "force": "yes"})
    assert (shown.status_code, guarded.gateway.calls) == (200, [])
    sent = {"csrf": csrf, "confirmation": hidden(shown, "confirmation")}
    first = await browser.post("/actions/isolate", sent)
    again = await browser.post("/actions/isolate", sent)
    assert (first.status_code, again.status_code) == (200, 409)
    await until(lambda: guarded.gateway.isolated.get(guarded.site.content["targets"][1]["url"]))
    decision = first.text.partition("/decisions/")[2].partition('"')[0]
    assert [one.id for one in guarded.gateway.calls] == [decision]
    assert await guarded.changes() == [("b", "forced_out", "otto"), ("a", "held", "otto (as cron)")]
    with Archive.open(guarded.site.store) as archive:
        assert archive.decision(decision).author == "otto"
    counted = await guarded.metric("admin_calls_total")
    assert 'quantwatch_admin_calls_total{call="isolate",role="operator"} 1.0' in counted
    refusals = await guarded.metric("admin_calls_refused_total")
    assert {'forbidden"} 1.0', 'replay"} 1.0'} <= {one.partition('reason="')[2] for one in refusals}


async def test_tokens_are_read_again_at_a_reload_and_sessions_end_with_theirs(guarded: Guarded) -> None:
    browser, other = guarded.browser(), guarded.browser()
    await browser.post("/login", {"token": SECRETS["otto"]})
    await other.post("/login", {"token": SECRETS["root"]})
    guarded.rotate("otto", "another-operators-token")
    assert (await browser.get("/actions/hold")).status_code == 200  # nothing is read but at a reload
    assert (await guarded.call("root", "/-/reload", {})).is_success
    assert (await browser.get("/actions/hold")).status_code == 303
    assert (await other.get("/actions/hold")).status_code == 200
    held = {"target": "a", "reason": "x"}
    assert (await guarded.call("otto", "/api/v1/holds", held)).status_code == 401
    headers = {"Authorization": "Bearer another-operators-token"}
    assert (await guarded.client.post(f"{guarded.site.admin}/api/v1/holds", json=held, headers=headers)).is_success
    assert await guarded.changes() == [("a", "held", "otto")]


async def test_a_reload_with_a_useless_token_keeps_the_old_ones_and_says_why(guarded: Guarded) -> None:
    guarded.rotate("vera", "short")
    reply = await guarded.call("root", "/-/reload", {})
    assert reply.status_code == 500
    assert "server.tokens[vera]: the token in file:" in reply.json()["message"]
    assert (await guarded.call("vera", "/api/v1/status", {}, method="GET")).is_success


def test_a_listener_that_others_reach_keeps_its_tokens_whatever_the_file_says(tmp_path: Path) -> None:
    where = site(tmp_path, "http://127.0.0.1:9", {"a": "http://127.0.0.1:10"})
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    tokens = {"admin_token": f"file:{token}"}
    where.content["server"] |= {"admin_listen": "0.0.0.0:9470", **tokens}
    wide = where.write().settings().server
    entrance = Entrance(wide, clock=FakeClock(), meters=Meters())
    assert (entrance.access.rules.open, entrance.access.rules.local, len(entrance.access.keys)) == (False, False, 1)
    where.content["server"] |= {"admin_listen": "127.0.0.1:9470"}
    narrow = where.write().settings().server
    entrance.renew(entrance.read(narrow), narrow)
    assert (entrance.access.rules.open, entrance.access.rules.local) == (False, False)
    del where.content["server"]["admin_token"]
    with pytest.raises(InputError, match=r"0\.0\.0\.0:9470 is still bound and can be reached from elsewhere"):
        entrance.read(where.write().settings().server)


async def test_pages_of_a_listener_on_loopback_are_open_unless_the_file_says_otherwise(guarded: Guarded) -> None:
    browser = guarded.browser()
    assert (await browser.get("/")).status_code == 200
    guarded.site.content["server"]["page"] = "token"
    guarded.site.write()
    assert (await guarded.call("root", "/-/reload", {})).is_success
    assert (await browser.get("/")).headers["location"] == "/login?next=/"
