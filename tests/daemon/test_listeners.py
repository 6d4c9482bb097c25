"""Listeners inside somebody else's loop."""

import asyncio
import signal
import socket

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from quantwatch.daemon.listeners import Listener
from quantwatch.errors import InputError
from support.daemons import free_port, until


def app(wait: asyncio.Event | None = None) -> Starlette:
    """Says hello, where told so only once it may."""

    async def hello(_: Request) -> Response:
        if wait is not None:
            await wait.wait()
        return PlainTextResponse("hello")

    return Starlette(routes=[Route("/", hello)])


async def got(one: Listener) -> str:
    host = f"[{one.host}]" if ":" in one.host else one.host
    async with httpx.AsyncClient() as client:
        return (await client.get(f"http://{host}:{one.port}/")).text


async def test_a_listener_answers_from_its_start_on() -> None:
    one = Listener("127.0.0.1:0", key="server.listen")
    await one.start(app())

    assert await got(one) == "hello"
    await one.stop()


async def test_an_address_of_the_new_internet_stands_in_brackets() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    try:
        one = Listener("[::1]:0", key="server.listen")
    except InputError:
        pytest.skip("this machine has no IPv6 loopback")
    await one.start(app())

    assert one.host == "::1"
    assert await got(one) == "hello"
    await one.stop()


def test_a_port_in_use_is_told_at_once_with_its_key() -> None:
    port = free_port()
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(InputError, match=rf"server\.listen: cannot listen on 127\.0\.0\.1:{port}: Address already in"),
    ):
        Listener(f"127.0.0.1:{port}", key="server.listen")


def test_an_address_that_is_not_ours_is_told_with_its_key() -> None:
    with pytest.raises(InputError, match=r"server\.admin_listen: cannot listen on 192\.0\.2\.1:9470"):
        Listener("192.0.2.1:9470", key="server.admin_listen")


async def test_a_stopped_listener_frees_its_port() -> None:
    one = Listener("127.0.0.1:0", key="server.listen")
    await one.start(app())
    await one.stop()

    again = Listener(f"127.0.0.1:{one.port}", key="server.listen")
    await again.start(app())

    assert await got(again) == "hello"
    await again.stop()


async def test_one_that_was_never_started_can_be_stopped() -> None:
    one = Listener("127.0.0.1:0", key="server.listen")

    await one.stop()

    with socket.create_server(("127.0.0.1", one.port)):
        pass


async def test_an_answer_under_way_is_finished() -> None:
    may = asyncio.Event()
    one = Listener("127.0.0.1:0", key="server.listen")
    await one.start(app(may))
    asked = asyncio.create_task(got(one))
    await until(lambda: one._server is not None and one._server.server_state.connections)
    await asyncio.sleep(0.05)  # the request is read

    stopping = asyncio.create_task(one.stop())
    await asyncio.sleep(0.05)
    may.set()

    assert await asked == "hello"
    await stopping


async def test_signals_stay_with_the_daemon() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    one = Listener("127.0.0.1:0", key="server.listen")
    await one.start(app())

    assert {number: signal.getsignal(number) for number in before} == before
    await one.stop()


async def test_nothing_tells_which_server_it_is() -> None:
    one = Listener("127.0.0.1:0", key="server.listen")
    await one.start(app())
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{one.port}/")

    assert "server" not in answer.headers
    await one.stop()
