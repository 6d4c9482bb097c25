"""The door to the network: limits, mapping, secrets. Real sockets where the wire matters."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from quantwatch.errors import Misconfigured, NodeFailed, NodeTimeout, NodeUnreachable
from quantwatch.net import Endpoint, Limits, Link, _tls, base_url
from support.builders import QUICK, answering, doing, link

Writer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(serve: Writer) -> AsyncIterator[str]:
    """A server that speaks whatever bytes it likes."""

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await serve(reader, writer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def real(url: str, limits: Limits = QUICK) -> Link:
    return Link(Endpoint("node", url), limits)


async def test_a_complete_answer_of_any_status_is_returned() -> None:
    async with link(answering(418, b"teapot")) as node:
        answer = await node.get("/health")

    assert (answer.status, answer.body) == (418, b"teapot")


async def test_a_refused_connection_is_unreachable_and_tried_again() -> None:
    tries = []

    def refuse(request: httpx.Request) -> httpx.Response:
        tries.append(request.url.path)
        raise httpx.ConnectError("refused", request=request)

    async with link(doing(refuse)) as node:
        with pytest.raises(NodeUnreachable, match=r"node: cannot connect.*Is the server up"):
            await node.get("/x")

    assert tries == ["/x", "/x"]


async def test_a_connection_that_comes_back_is_used() -> None:
    tries = []

    def flaky(request: httpx.Request) -> httpx.Response:
        tries.append(1)
        if len(tries) == 1:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(200, request=request)

    async with link(doing(flaky)) as node:
        assert (await node.get("/x")).status == 200


async def test_a_request_that_was_sent_is_never_repeated() -> None:
    """It may still be running on the node, or may have been what killed it."""
    tries = []

    def break_off(request: httpx.Request) -> httpx.Response:
        tries.append(1)
        raise httpx.ReadError("reset", request=request)

    async with link(doing(break_off)) as node:
        with pytest.raises(NodeFailed, match="broke off"):
            await node.post("/v1/completions", {})

    assert len(tries) == 1


async def test_a_closed_port_is_unreachable() -> None:
    async with real("http://127.0.0.1:9") as node:
        with pytest.raises(NodeUnreachable):
            await node.get("/")


async def test_a_server_that_never_answers_times_out() -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(silent) as url, real(url, Limits(total_seconds=0.2)) as node:
        with pytest.raises(NodeTimeout, match=r"within 0\.2 s"):
            await node.get("/")


async def test_a_server_that_drips_cannot_outlast_the_total_time() -> None:
    """Every byte arrives in time; the whole does not."""

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for byte in b"." * 1000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)

    async with raw_server(drip) as url, real(url, Limits(total_seconds=0.3)) as node:
        with pytest.raises(NodeTimeout):
            await node.get("/")


async def test_an_endless_reply_is_cut_at_the_limit() -> None:
    sent = 0

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n")
        for _chunk in range(1600):
            writer.write(b"x" * 65536)
            sent += 65536
            await writer.drain()

    async with raw_server(flood) as url, real(url, Limits(response_bytes=1024 * 1024)) as node:
        with pytest.raises(NodeFailed, match="over the limit of 1 MiB"):
            await node.get("/")

    assert sent < 100 * 1024 * 1024


async def test_a_reply_cut_short_is_a_failure() -> None:
    async def short(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()

    async with raw_server(short) as url, real(url) as node:
        with pytest.raises(NodeFailed, match="broke off"):
            await node.get("/")


async def test_bytes_that_are_no_http_are_a_failure() -> None:
    async def ssh(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await writer.drain()

    async with raw_server(ssh) as url, real(url) as node:
        with pytest.raises(NodeFailed):
            await node.get("/")


async def test_a_redirect_is_not_followed() -> None:
    async with link(answering(307, b"", location="http://elsewhere/")) as node:
        with pytest.raises(Misconfigured, match="redirects to http://elsewhere/"):
            await node.get("/")


async def test_environment_proxies_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")

    async def hello(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        await writer.drain()

    async with raw_server(hello) as url, real(url) as node:
        assert (await node.get("/")).body == b"hi"


async def test_key_and_headers_are_sent() -> None:
    seen: dict[str, str] = {}

    def remember(request: httpx.Request) -> httpx.Response:
        seen.update(request.headers)
        return httpx.Response(200, request=request)

    async with link(doing(remember), api_key="k-1", headers={"X-Team": "a"}) as node:
        await node.get("/")

    assert seen["authorization"] == "Bearer k-1"
    assert seen["x-team"] == "a"


def test_secrets_stay_out_of_the_representation() -> None:
    endpoint = Endpoint("n", "http://n", api_key="sk-secret", headers={"Cookie": "c-secret"})

    assert "secret" not in repr(endpoint)


@pytest.mark.parametrize("given", ["http://n:8000", "http://n:8000/", "http://n:8000/v1", "http://n:8000/v1/"])
def test_the_v1_of_api_clients_is_taken_off(given: str) -> None:
    assert base_url(given) == "http://n:8000"


def test_a_path_before_v1_stays() -> None:
    assert base_url("http://n/llm/v1/") == "http://n/llm"


def test_missing_certificate_files_are_configuration(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="certificate files cannot be used"):
        Link(Endpoint("n", "https://n", ca_file=str(tmp_path / "no.pem")))


def test_a_file_that_is_no_certificate_is_configuration(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("hello")

    with pytest.raises(Misconfigured, match="certificate files cannot be used") as caught:
        Link(Endpoint("n", "https://n", ca_file=str(bad)))

    assert isinstance(caught.value.__cause__, ssl.SSLError)


def test_the_usual_authorities_are_read_once_and_not_at_all_for_plain_http() -> None:
    contexts = [_tls(Endpoint(name, f"https://{name}")) for name in ("a", "b")]

    assert isinstance(contexts[0], ssl.SSLContext)
    assert contexts[0] is contexts[1]
    assert _tls(Endpoint("c", "http://c")) is False


@pytest.mark.parametrize("url", ["https://n", "HTTPS://n", "Https://n"])
def test_certificates_are_verified_however_the_scheme_is_written(url: str) -> None:
    context = _tls(Endpoint("n", url))

    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


async def test_a_header_that_cannot_be_sent_is_not_repeated_in_the_message() -> None:
    async def hello(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with raw_server(hello) as url, Link(Endpoint("node", url, api_key="sk-hidden\n"), QUICK) as node:
        with pytest.raises(Misconfigured, match="a header holds what HTTP does not allow") as caught:
            await node.get("/")

    assert "sk-hidden" not in str(caught.value)


async def test_tries_are_not_logged_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    async with real("http://127.0.0.1:9") as node:
        with pytest.raises(NodeUnreachable):
            await node.get("/")

    assert caplog.records == []


async def test_an_order_goes_out_once_with_its_parameters_and_its_json() -> None:
    seen = []

    def log(request: httpx.Request) -> httpx.Response:
        seen.append((request.method, str(request.url), request.content))
        return httpx.Response(202, request=request)

    async with Link(Endpoint("router", "http://router/base/v1/"), QUICK, transport=doing(log)) as router:
        answers = [
            await router.order("POST", "/remove_worker", query={"url": "http://a b:1/?x=&y"}),
            await router.order("POST", "/workers", body={"url": "http://a:1"}),
            await router.order("DELETE", "/workers/7"),
        ]

    assert [one.status for one in answers] == [202] * 3
    assert seen == [
        ("POST", "http://router/base/remove_worker?url=http%3A%2F%2Fa+b%3A1%2F%3Fx%3D%26y", b""),
        ("POST", "http://router/base/workers", b'{"url":"http://a:1"}'),
        ("DELETE", "http://router/base/workers/7", b""),
    ]


async def test_an_order_is_not_tried_again_by_the_network() -> None:
    tries = []

    def refuse(request: httpx.Request) -> httpx.Response:
        tries.append(request.method)
        raise httpx.ConnectError("refused", request=request)

    async with link(doing(refuse)) as node:
        with pytest.raises(NodeUnreachable):
            await node.order("DELETE", "/x")

    assert tries == ["DELETE"]
