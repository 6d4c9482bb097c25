"""What no real router does when asked: odd lists, silence, refusals. None of it is ever taken for success."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from quantwatch.act.contract import MemoryNotes, Seen, Unanswered
from quantwatch.act.router import Note, Router, note_of
from quantwatch.act.sglang_router import SglangRouter
from quantwatch.act.vllm_router import VllmRouter
from quantwatch.act.workers import entries_of, spelled_otherwise, workers_of
from quantwatch.clock import SystemClock
from quantwatch.errors import GatewayError, GatewayRefused
from quantwatch.flow.decision import Action
from quantwatch.net import Answer, Endpoint, Link
from support.builders import QUICK
from support.fake_router import OTHER, FakeRouter, entry
from support.gateway import order

NODE = order().node
KEY = "sk-router-key"


@pytest.fixture
def fake() -> FakeRouter:
    return FakeRouter(NODE)


@pytest.fixture(params=[VllmRouter, SglangRouter], ids=["vllm", "sglang"])
async def driver(request: pytest.FixtureRequest, fake: FakeRouter) -> AsyncIterator[Router]:
    async with Link(Endpoint("router", "http://router/v1/", KEY), QUICK, transport=fake.transport()) as link:
        yield request.param(link, clock=SystemClock(), notes=MemoryNotes())


def listing(*entries: Any) -> bytes:
    return json.dumps({"workers": entries}).encode()


UNREADABLE = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b'{"workers": null}',
    b'{"workers": {"url": "http://node-a:8000"}}',
    b'{"workers": [',
    b"[" * 50_000,
    b"\xff\xfe\x00",
    b"<html>busy</html>",
    listing("http://node-a:8000"),
    listing(entry(NODE), None),
    listing({**entry(NODE), "url": 7}),
    listing({**entry(NODE), "url": ""}),
    listing({**entry(NODE), "is_healthy": "true"}),
    listing({**entry(NODE), "is_healthy": 1}),
    listing({**entry(NODE), "worker_type": None}),
    listing({**entry(NODE), "model_id": ["a"]}),
    listing({**entry(NODE), "id": 5}),
    listing({"url": NODE}),
]


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("body", UNREADABLE)
async def test_a_list_that_cannot_be_read_whole_is_unknown_and_nothing_is_called(
    body: bytes, action: Action, fake: FakeRouter, driver: Router
) -> None:
    fake.reply = lambda: httpx.Response(200, content=body)

    assert await driver.observe(order(action)) is Seen.UNKNOWN
    with pytest.raises(GatewayRefused, match=r"what is no list of workers\. Look at gateway\.url"):
        await driver.call(order(action))
    assert fake.gateway.calls == []


@pytest.mark.parametrize(
    ("status", "arrives_later"), [(500, True), (503, True), (429, True), (404, False), (401, False)]
)
async def test_a_list_that_is_refused_sends_no_call(
    status: int, arrives_later: bool, fake: FakeRouter, driver: Router
) -> None:
    fake.reply = lambda: httpx.Response(status, content=listing(entry(OTHER)), headers={"Retry-After": "9"})

    assert await driver.observe(order()) is Seen.UNKNOWN
    with pytest.raises(GatewayError) as caught:
        await driver.call(order())
    assert fake.gateway.calls == []
    assert isinstance(caught.value, Unanswered) is arrives_later
    if isinstance(caught.value, Unanswered):
        assert (caught.value.arrived, caught.value.retry_after) == (False, 9)


async def test_silence_before_the_call_is_certain_to_have_done_nothing(fake: FakeRouter, driver: Router) -> None:
    def silent() -> httpx.Response:
        raise httpx.ReadTimeout("")

    fake.reply = silent
    with pytest.raises(Unanswered) as caught:
        await driver.call(order())

    assert caught.value.arrived is False
    assert fake.gateway.calls == []


@pytest.mark.parametrize("action", Action)
async def test_a_call_whose_reply_is_lost_may_have_been_done(action: Action, fake: FakeRouter, driver: Router) -> None:
    def cut() -> httpx.Response:
        raise httpx.ReadError("reset")

    fake.gateway.isolated[NODE] = action is Action.RELEASE
    fake.answer = cut
    with pytest.raises(Unanswered) as caught:
        await driver.call(order(action))

    assert caught.value.arrived is True
    assert await driver.observe(order(action)) is (Seen.ISOLATED if action is Action.ISOLATE else Seen.ROUTABLE)


@pytest.mark.parametrize("status", [400, 403, 405, 422])
async def test_a_no_is_for_a_person(status: int, fake: FakeRouter, driver: Router) -> None:
    fake.answer = lambda: httpx.Response(status, text="no")
    with pytest.raises(GatewayRefused, match=f"router answered {status}"):
        await driver.call(order())


async def test_no_error_tells_the_key(fake: FakeRouter, driver: Router) -> None:
    fake.reply = lambda: httpx.Response(307, headers={"Location": f"/elsewhere?key={KEY}"})
    with pytest.raises(GatewayRefused, match="redirects to") as caught:
        await driver.call(order())

    assert KEY not in str(caught.value)


async def test_an_empty_list_says_nothing(fake: FakeRouter, driver: Router) -> None:
    """A router that has just started lists nobody yet."""
    await driver.call(order())
    fake.reply = lambda: httpx.Response(200, content=listing())

    assert await driver.observe(order()) is Seen.UNKNOWN
    with pytest.raises(GatewayRefused, match="It lists: nobody"):
        await driver.call(order())


async def test_a_question_by_nobody_in_particular_hears_what_the_list_says(fake: FakeRouter, driver: Router) -> None:
    """As the daemon's look asks about a target that it did not take out."""
    asked = order(decision="")
    assert await driver.observe(asked) is Seen.ROUTABLE
    fake.gateway.isolated[NODE] = True
    assert await driver.observe(asked) is Seen.ISOLATED


@pytest.mark.parametrize("healthy", [True, False])
async def test_a_listed_node_that_is_ill_is_neither_out_nor_back(
    healthy: bool, fake: FakeRouter, driver: Router
) -> None:
    fake.reply = lambda: httpx.Response(200, content=listing(entry(NODE, is_healthy=healthy), entry(OTHER)))

    assert await driver.observe(order(Action.ISOLATE)) is Seen.ROUTABLE
    assert await driver.observe(order(Action.RELEASE)) is (Seen.ROUTABLE if healthy else Seen.UNKNOWN)


async def test_odd_fields_of_an_entry_are_not_sent_back() -> None:
    odd = {"priority": True, "cost": float("nan"), "metadata": {"tier": 5, "a": "b", "cost": "1.0"}, "api_key": "x"}
    answer = Answer(200, json.dumps({"workers": [entry(NODE, **odd)]}).encode(), 0.0)
    (worker,) = workers_of(answer) or ()
    link = Link(Endpoint("router", "http://router"), QUICK)
    async with link:
        kept = SglangRouter(link, clock=SystemClock(), notes=MemoryNotes())._to_restore(worker)

    assert kept == {"labels": {"a": "b"}}


async def test_two_entries_of_one_node_are_left_alone_by_sglang(fake: FakeRouter) -> None:
    ranks = listing(entry(f"{NODE}@0"), entry(f"{NODE}@1"), entry(OTHER))
    fake.reply = lambda: httpx.Response(200, content=ranks)
    async with Link(Endpoint("router", "http://router"), QUICK, transport=fake.transport()) as link:
        with pytest.raises(GatewayRefused, match="once for each of its data-parallel ranks"):
            await SglangRouter(link, clock=SystemClock(), notes=MemoryNotes()).call(order())

    assert fake.gateway.calls == []


NOTES: list[tuple[str | None, Note | None]] = [
    (Note("d-1", {"priority": 5}).text(), Note("d-1", {"priority": 5})),
    (None, None),
    ("", None),
    ("{}", None),
    ("[]", None),
    ('{"decision": "d-1", "fields": 5}', None),
    ('{"decision": "d-1"}', None),
    ("[" * 50_000, None),
]


@pytest.mark.parametrize(("text", "note"), NOTES)
def test_a_note_is_read_or_is_none(text: str | None, note: Note | None) -> None:
    assert note_of(text) == note


SPELLINGS: list[tuple[str, str | None]] = [
    ("http://node-a:8000", None),
    ("http://node-a:8000/", "http://node-a:8000"),
    ("http://node-a:8000/v1", "http://node-a:8000"),
    ("HTTP://Node-A:8000", "http://node-a:8000"),
    ("http://node-a:800", None),
    ("http://node-a:80001", None),
    ("http://node-b:8000", "http://node-b:8000/"),
]


@pytest.mark.parametrize(("node", "other"), SPELLINGS)
def test_one_node_under_two_spellings_is_noticed(node: str, other: str | None) -> None:
    listed = workers_of(Answer(200, listing(entry(NODE), entry(f"{OTHER}/")), 0.0)) or ()

    assert spelled_otherwise(node, listed) == other
    assert len(entries_of(node, listed)) == (node == NODE)


@pytest.mark.parametrize(("listed", "count"), [("@0", 1), ("@12", 1), ("@", 0), ("@x", 0), ("0", 0), ("/@0", 0)])
def test_ranks_belong_to_their_node(listed: str, count: int) -> None:
    found = workers_of(Answer(200, listing(entry(NODE + listed)), 0.0)) or ()

    assert len(entries_of(NODE, found)) == count


async def test_who_is_there_is_listed_letter_for_letter_and_healthy(fake: FakeRouter, driver: Router) -> None:
    ranks = [entry(f"http://ranks:8000@{i}", is_healthy=i == 1) for i in range(2)]
    body = listing(entry(NODE), entry(OTHER, is_healthy=False), *ranks)
    fake.reply = lambda: httpx.Response(200, content=body)
    asked = [NODE, f"{NODE}/", OTHER, "http://ranks:8000", "http://nobody:8000"]
    assert await driver.present(asked) == {NODE, "http://ranks:8000"}


@pytest.mark.parametrize("body", UNREADABLE[:4])
async def test_a_list_that_cannot_be_read_tells_nobody_s_presence(
    fake: FakeRouter, driver: Router, body: bytes
) -> None:
    fake.reply = lambda: httpx.Response(200, content=body)
    with pytest.raises(GatewayError):
        await driver.present([NODE])


class SlowRouter(httpx.AsyncBaseTransport):
    """Three workers behind a router that takes its time. queued: its list does not show a removal yet."""

    def __init__(self, *, queued: bool) -> None:
        self.workers = [entry(f"http://node-{name}:8000") for name in "abc"]
        self.removed: list[str] = []
        self.queued = queued

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """List after a while, and remove whoever is named."""
        await asyncio.sleep(0.001)
        path = request.url.path
        if request.method == "GET":
            listed = [one for one in self.workers if self.queued or one["url"] not in self.removed]
            return httpx.Response(200, json={"workers": listed})
        self.removed.append(request.url.params.get("url") or path.partition("id of ")[2])
        return httpx.Response(202)


class SlowNotes(MemoryNotes):
    """Notes in a store that others write to as well."""

    async def keep(self, key: str, text: str) -> None:
        """Let the others write first."""
        await asyncio.sleep(0.001)
        await super().keep(key, text)


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("kind", [VllmRouter, SglangRouter])
async def test_orders_that_begin_together_leave_one(kind: Callable[..., Router], queued: bool) -> None:
    router = SlowRouter(queued=queued)
    orders = [order(node=one["url"], decision=f"d-{i}") for i, one in enumerate(router.workers)]
    async with Link(Endpoint("router", "http://router"), QUICK, transport=router) as link:
        driver = kind(link, clock=SystemClock(), notes=SlowNotes())
        ends = await asyncio.gather(*(driver.call(one) for one in orders), return_exceptions=True)

    assert len(router.removed) == 2
    (last,) = [one for one in ends if isinstance(one, Exception)]
    assert "is the last healthy worker of its model" in str(last)


async def test_who_was_not_removed_or_came_back_is_no_longer_leaving(fake: FakeRouter, driver: Router) -> None:
    other = order(node=OTHER, target="b", decision="d-2")
    fake.answer = lambda: httpx.Response(403, text="no")
    with pytest.raises(GatewayRefused, match="answered 403"):
        await driver.call(order())
    fake.answer, fake.gateway.isolated[NODE] = None, False
    await driver.call(order())
    await driver.call(order(Action.RELEASE))
    await driver.call(other)
