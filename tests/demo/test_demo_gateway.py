"""The demo's gateway: it forwards for real, does what it is told about a node, and counts every call."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from quantwatch.demo.client import QUESTIONS, Client
from quantwatch.demo.gateway import ANSWERED_BY, ATTEMPTS, Gateway

NODES = {"baseline": "http://fp32", "int8": "http://int8"}


class Nodes(httpx.AsyncBaseTransport):
    """Two nodes that answer with their host's name. breaks: how many of the next requests lose their connection."""

    def __init__(self, *, breaks: int = 0, fault: Callable[[str], Exception] = httpx.ReadError) -> None:
        self.breaks = breaks
        self.fault = fault
        self.asked: list[tuple[str, str, bytes, str | None]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer, or break."""
        where = request.url
        self.asked.append((where.host, where.path, request.content, request.headers.get("authorization")))
        if self.breaks:
            self.breaks -= 1
            raise self.fault("broken")
        if where.path == "/v1/missing":
            return httpx.Response(404, json={"error": "no such path"})
        return httpx.Response(200, json={"choices": [{"text": f" from {where.host}"}]})


@asynccontextmanager
async def asked(nodes: Nodes) -> AsyncIterator[tuple[Gateway, httpx.AsyncClient]]:
    gateway = Gateway(NODES, serving="int8", transport=nodes)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gateway.app()), base_url="http://gateway") as http:
        yield gateway, http
    await gateway.close()


def order(action: str, node: str = "int8", **more: Any) -> dict[str, Any]:
    return {"action": action, "node_endpoint": node, "fallback_target": "baseline", "decision_id": "d-1", **more}


async def test_a_request_goes_to_the_quantized_node_as_it_came() -> None:
    nodes = Nodes()
    async with asked(nodes) as (_, http):
        answer = await http.post("/v1/completions", content=b'{"a": 1}', headers={"Authorization": "Bearer k"})

    assert (answer.status_code, answer.headers[ANSWERED_BY]) == (200, "int8")
    assert answer.json() == {"choices": [{"text": " from int8"}]}
    assert nodes.asked == [("int8", "/v1/completions", b'{"a": 1}', "Bearer k")]


async def test_an_isolated_node_gets_nothing_until_it_is_released() -> None:
    nodes = Nodes()
    async with asked(nodes) as (gateway, http):
        assert (await http.get("/state", params={"node_endpoint": "int8"})).json() == {"isolated": False}
        await http.post("/isolate", json=order("isolate"))
        assert (await http.get("/state", params={"node_endpoint": "int8"})).json() == {"isolated": True}
        away = await http.get("/v1/models")
        await http.post("/release", json=order("release"))
        back = await http.get("/v1/models")

    assert (away.headers[ANSWERED_BY], back.headers[ANSWERED_BY]) == ("baseline", "int8")
    assert [host for host, *_ in nodes.asked] == ["fp32", "int8"]
    assert [(one.action, one.decision) for one in gateway.calls] == [("isolate", "d-1"), ("release", "d-1")]


async def test_a_repeated_call_is_counted_again() -> None:
    async with asked(Nodes()) as (gateway, http):
        for _ in range(2):
            await http.post("/isolate", json=order("isolate"))

    assert len(gateway.calls) == 2
    assert gateway.away == {"int8": "baseline"}


@pytest.mark.parametrize("body", [order("isolate", "other"), order("isolate", fallback_target="other")])
async def test_an_unknown_node_is_refused_and_nothing_changes(body: dict[str, Any]) -> None:
    async with asked(Nodes()) as (gateway, http):
        answer = await http.post("/isolate", json=body)
        state = await http.get("/state", params={"node_endpoint": "other"})

    assert (answer.status_code, state.status_code, gateway.away) == (404, 404, {})


async def test_a_broken_connection_is_tried_again_and_counted() -> None:
    nodes = Nodes(breaks=ATTEMPTS - 1)
    async with asked(nodes) as (gateway, http):
        answer = await http.get("/v1/models")

    assert answer.status_code == 200
    assert gateway.retried == ATTEMPTS - 1


async def test_a_connection_that_breaks_every_time_is_told() -> None:
    nodes = Nodes(breaks=ATTEMPTS)
    async with asked(nodes) as (_, http):
        answer = await http.get("/v1/models")

    assert answer.status_code == 502
    assert "int8 did not answer" in answer.json()["error"]
    assert len(nodes.asked) == ATTEMPTS


async def test_a_node_that_is_slow_is_not_asked_twice() -> None:
    nodes = Nodes(breaks=1, fault=httpx.ReadTimeout)
    async with asked(nodes) as (gateway, http):
        answer = await http.get("/v1/models")

    assert (answer.status_code, len(nodes.asked), gateway.retried) == (502, 1, 0)


async def test_a_refusal_of_the_node_is_passed_on() -> None:
    async with asked(Nodes()) as (_, http):
        assert (await http.get("/v1/missing")).status_code == 404


def client(gateway: Gateway) -> Client:
    return Client("http://gateway", "m", transport=httpx.ASGITransport(gateway.app()), pause_seconds=0.0)


async def replies(client: Client, count: int) -> None:
    running = asyncio.create_task(client.run())
    while len(client.replies) < count:  # noqa: ASYNC110, it tells nobody
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_client_tells_who_answered_what() -> None:
    gateway = Gateway(NODES, serving="int8", transport=Nodes())
    one = client(gateway)
    await replies(one, 2)
    gateway.away["int8"] = "baseline"
    await replies(one, len(one.replies) + 2)

    assert one.failed == []
    assert set(one.by) == {"int8", "baseline"}
    assert [reply.text for reply in one.replies[:2]] == [" from int8"] * 2
    assert [reply.question for reply in one.replies[:2]] == list(QUESTIONS[:2])
    assert one.replies[-1].by == "baseline"
    assert one.after(one.replies[-1].at)[0] is one.replies[-1]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(500, text="broken"), "500"),
        (httpx.Response(200, text="no JSON"), "no completion"),
        (httpx.Response(200, json={"choices": []}), "no completion"),
        (httpx.Response(200, json=[]), "no completion"),
    ],
)
async def test_a_request_that_is_not_answered_as_it_should_has_failed(answer: httpx.Response, error: str) -> None:
    one = Client("http://gateway", "m", transport=httpx.MockTransport(lambda _: answer), pause_seconds=0.0)
    await replies(one, 1)

    assert one.failed
    assert error in str(one.failed[0].error)
    assert one.by == {}


async def test_a_gateway_that_is_away_fails_the_request() -> None:
    def away(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    one = Client("http://gateway", "m", transport=httpx.MockTransport(away), pause_seconds=0.0)
    await replies(one, 1)

    assert (one.failed[0].error, one.failed[0].by) == ("refused", "nobody")
