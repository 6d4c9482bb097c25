"""The webhook driver against a real gateway on a socket: signatures, answers, read-back, secrets."""

import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook, WebhookVerificationError
from starlette.responses import Response

from quantwatch.act.answers import seconds_of
from quantwatch.act.contract import Seen, Unanswered
from quantwatch.act.payload import encoded
from quantwatch.act.webhook import WebhookDriver, signer
from quantwatch.clock import SystemClock
from quantwatch.errors import GatewayError, GatewayRefused, InputError
from quantwatch.flow.decision import Action
from quantwatch.net import Endpoint, Limits, Link
from support.builders import QUICK, answering, doing
from support.gateway import Fault, Gateway, GatewayServer, order, served_gateway

KEY = "sk-gateway-key"
RAW = b"twenty-four bytes of key"
WHSEC = "whsec_" + base64.b64encode(RAW).decode()
PLAIN = "correct horse battery staple"
NODE = order().node


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.fixture
def server(gateway: Gateway) -> Iterator[GatewayServer]:
    with served_gateway(gateway) as running:
        yield running


@asynccontextmanager
async def driver_for(
    url: str,
    *,
    transport: httpx.AsyncBaseTransport | None = None,
    limits: Limits = QUICK,
    reads: bool = True,
    signing_secret: str | None = None,
    api_key: str | None = None,
) -> AsyncIterator[WebhookDriver]:
    def link(path: str) -> Link:
        return Link(Endpoint("gateway", url + path, api_key), limits, transport=transport)

    async with link("/act") as act, link("/return") as back, link("/state") as state:
        yield WebhookDriver(
            act, release=back, state=state if reads else None, signing_secret=signing_secret, clock=SystemClock()
        )


async def test_an_order_is_done_and_read_back(gateway: Gateway, server: GatewayServer) -> None:
    async with driver_for(server.url) as driver:
        before = await driver.observe(order())
        said = await driver.call(order())
        after = await driver.observe(order())

    assert (before, said, after) == (Seen.ROUTABLE, "gateway answered 200", Seen.ISOLATED)
    assert gateway.changes == [(NODE, True)]


async def test_the_bytes_sent_are_the_payload(gateway: Gateway, server: GatewayServer) -> None:
    async with driver_for(server.url) as driver:
        await driver.call(order())

    (call,) = gateway.calls
    assert call.raw == encoded(order())
    assert call.headers["content-type"] == "application/json"


async def test_a_release_goes_to_its_own_address(gateway: Gateway, server: GatewayServer) -> None:
    async with driver_for(server.url) as driver:
        await driver.call(order())
        await driver.call(order(Action.RELEASE))

    assert [call.path for call in gateway.calls] == ["/act", "/return"]
    assert gateway.changes == [(NODE, True), (NODE, False)]


async def test_a_release_goes_to_the_same_address_when_there_is_no_other(gateway: Gateway) -> None:
    async with Link(Endpoint("gateway", "http://gateway/act"), QUICK, transport=gateway.transport()) as link:
        await WebhookDriver(link, clock=SystemClock()).call(order(Action.RELEASE))

    assert [(call.path, call.body["action"]) for call in gateway.calls] == [("/act", "release")]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(WHSEC, WHSEC), (WHSEC.rstrip("="), WHSEC), (WHSEC, RAW), (PLAIN, PLAIN.encode())],
)
async def test_a_signature_is_verified_by_the_package(ours: str, theirs: str | bytes, gateway: Gateway) -> None:
    gateway.secret = theirs
    async with driver_for("http://gateway", transport=gateway.transport(), signing_secret=ours) as driver:
        await driver.call(order())
        await driver.call(order(Action.RELEASE))

    assert gateway.ids == {order().decision}
    assert gateway.changes == [(NODE, True), (NODE, False)]


async def test_a_wrong_signature_is_refused(gateway: Gateway, server: GatewayServer) -> None:
    gateway.secret = b"another key"
    async with driver_for(server.url, signing_secret=PLAIN) as driver:
        with pytest.raises(
            GatewayRefused, match=r"answered 401\. Look at gateway\.api_key and gateway\.signing_secret"
        ):
            await driver.call(order())

    assert gateway.calls == []


async def test_a_changed_body_has_no_valid_signature(gateway: Gateway) -> None:
    async with driver_for("http://gateway", transport=gateway.transport(), signing_secret=PLAIN) as driver:
        await driver.call(order())

    (call,) = gateway.calls
    assert Webhook(PLAIN.encode()).verify(call.raw, call.headers)["decision_id"] == order().decision
    with pytest.raises(WebhookVerificationError):
        Webhook(PLAIN.encode()).verify(call.raw.replace(b"node-a", b"node-b"), call.headers)


async def test_without_a_secret_nothing_is_signed(gateway: Gateway, server: GatewayServer) -> None:
    async with driver_for(server.url) as driver:
        await driver.call(order())

    headers = gateway.calls[0].headers
    assert "webhook-signature" not in headers
    assert headers["webhook-id"] == order().decision


@pytest.mark.parametrize("secret", ["whsec_", "whsec_not base64!", "whsec_A", "whsec_ü", "", "whsec_===="])
def test_a_secret_that_cannot_be_used_is_refused_without_being_told(secret: str) -> None:
    with pytest.raises(
        InputError, match=r"^gateway\.signing_secret (is empty|starts with whsec_, but no base64 follows)$"
    ):
        signer(secret)


async def test_the_key_goes_along_with_calls_and_looks(gateway: Gateway, server: GatewayServer) -> None:
    gateway.api_key = KEY
    async with driver_for(server.url, api_key=KEY) as driver:
        await driver.call(order())
        assert await driver.observe(order()) is Seen.ISOLATED


PERHAPS = [
    (Fault.ERROR_UNDONE, "gateway answered 500", True),
    (Fault.ERROR_DONE, "gateway answered 500", True),
    (Fault.CUT_DONE, "gateway: broke off", True),
    (Fault.HANGS_UNDONE, r"gateway: no complete answer within 0\.3 s", True),
    (Fault.HANGS_DONE, r"gateway: no complete answer within 0\.3 s", True),
    (Fault.BUSY, "gateway answered 429", False),
]


@pytest.mark.parametrize("socket", [True, False], ids=["socket", "no socket"])
@pytest.mark.parametrize(("fault", "said", "arrived"), PERHAPS)
async def test_no_answer_may_be_tried_again(
    fault: Fault, said: str, arrived: bool, socket: bool, gateway: Gateway, server: GatewayServer
) -> None:
    gateway.faults = [fault]
    transport = None if socket else gateway.transport()
    limits = Limits(connect_seconds=1, total_seconds=0.3)
    async with driver_for(server.url, transport=transport, limits=limits) as driver:
        with pytest.raises(Unanswered, match=said) as caught:
            await driver.call(order())

    assert caught.value.arrived is arrived
    assert len(gateway.calls) == 1, "the network layer repeated it"
    assert gateway.stands(NODE) is fault.value.endswith("done all the same")


async def test_a_closed_port_got_nothing(gateway: Gateway, server: GatewayServer) -> None:
    async with driver_for(server.url) as driver:
        server.stop()
        with pytest.raises(Unanswered, match="cannot connect") as caught:
            await driver.call(order())
        assert await driver.observe(order()) is Seen.UNKNOWN
        server.start()
        await driver.call(order())

    assert caught.value.arrived is False
    assert gateway.changes == [(NODE, True)]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 501, 502, 503, 504, 599])
async def test_these_statuses_ask_to_come_again(status: int) -> None:
    async with driver_for("http://gateway", transport=answering(status, b"", **{"Retry-After": "12"})) as driver:
        with pytest.raises(Unanswered) as caught:
            await driver.call(order())

    assert caught.value.retry_after == 12
    assert caught.value.arrived is (status not in (425, 429))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 410, 413, 422, 451, 499, 300, 304, 307, 308])
async def test_these_statuses_are_refusals(status: int) -> None:
    async with driver_for("http://gateway", transport=answering(status)) as driver:
        with pytest.raises(GatewayRefused):
            await driver.call(order())


async def test_a_redirect_is_not_followed(gateway: Gateway, server: GatewayServer) -> None:
    gateway.faults = [Fault.REDIRECTS]
    async with driver_for(server.url) as driver:
        with pytest.raises(GatewayRefused, match=r"redirects to .*Give the final address"):
            await driver.call(order())

    assert [call.path for call in gateway.calls] == ["/act"]


async def test_plain_http_where_tls_is_spoken_is_for_a_person(server: GatewayServer) -> None:
    async with driver_for(server.url.replace("http:", "https:")) as driver:
        with pytest.raises(GatewayRefused, match=r"Look at gateway\.tls"):
            await driver.call(order())


@pytest.mark.parametrize(
    ("cause", "error"),
    [
        (ssl.SSLCertVerificationError("certificate verify failed"), GatewayRefused),
        (ssl.SSLEOFError("the handshake broke off"), Unanswered),
        (ConnectionResetError("reset"), Unanswered),
    ],
)
async def test_a_bad_certificate_is_for_a_person_and_a_broken_handshake_is_not(
    cause: OSError, error: type[GatewayError]
) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(str(cause), request=request) from cause

    async with driver_for("https://gateway", transport=doing(fail)) as driver:
        with pytest.raises(error):
            await driver.call(order())


@pytest.mark.parametrize("url", ["http://gateway:port", "http://[::1"])
async def test_an_unusable_url_is_for_a_person(url: str) -> None:
    async with driver_for(url) as driver:
        with pytest.raises(GatewayRefused, match="not a usable URL"):
            await driver.call(order())
        assert await driver.observe(order()) is Seen.UNKNOWN


UNCLEAR: list[Callable[[], Response]] = [
    lambda: Response(b'{"isolated": true}', 404),
    lambda: Response(b'{"isolated": true}', 202),
    lambda: Response(b'{"isolated": true}', 500),
    lambda: Response(b'{"isolated": true}', 302, headers={"Location": "/state2"}),
    lambda: Response(b'{"isolated": "true"}'),
    lambda: Response(b'{"isolated": 1}'),
    lambda: Response(b'{"isolated": null}'),
    lambda: Response(b'{"isolated": true, "error": "stale"}'),
    lambda: Response(b"{}"),
    lambda: Response(b"true"),
    lambda: Response(b'[{"isolated": true}]'),
    lambda: Response(b'{"isolated": tr'),
    lambda: Response(b"\xff\xfe\x00"),
    lambda: Response(b"[" * 50_000),
    lambda: Response(b" " * 200_000),
    lambda: Response(b""),
    lambda: Response(b'{"isolated": ', headers={"Content-Length": "30"}),
]


@pytest.mark.parametrize("reply", UNCLEAR)
async def test_whatever_is_no_plain_yes_or_no_is_unknown(reply: Callable[[], Response], gateway: Gateway) -> None:
    gateway.state_reply = reply
    async with driver_for("http://gateway", transport=gateway.transport()) as driver:
        assert await driver.observe(order()) is Seen.UNKNOWN


@pytest.mark.parametrize("reply", [UNCLEAR[3], UNCLEAR[-1]], ids=["redirect", "cut"])
async def test_an_unclear_state_is_unknown_on_a_socket_too(
    reply: Callable[[], Response], gateway: Gateway, server: GatewayServer
) -> None:
    gateway.state_reply = reply
    async with driver_for(server.url) as driver:
        assert await driver.observe(order()) is Seen.UNKNOWN


async def test_without_a_state_address_nothing_is_read_back(gateway: Gateway, server: GatewayServer) -> None:
    async with driver_for(server.url, reads=False) as driver:
        assert not driver.abilities.reads_back
        assert await driver.observe(order()) is Seen.UNKNOWN

    assert gateway.looks == 0


@pytest.mark.parametrize("secret", [WHSEC, PLAIN])
async def test_no_error_tells_a_secret(secret: str) -> None:
    """Not even where the gateway repeats what it was sent."""

    def echo(request: httpx.Request) -> httpx.Response:
        text = f"{request.headers['authorization']} {secret}"
        return httpx.Response(status.pop(), headers={"Location": f"/x?{text}"}, text=text, request=request)

    status: list[int] = [307, 403, 401, 500, 429]
    async with driver_for("http://gateway", transport=doing(echo), api_key=KEY, signing_secret=secret) as driver:
        for _ in range(5):
            with pytest.raises(GatewayError) as caught:
                await driver.call(order())
            assert KEY not in str(caught.value)
            assert secret not in str(caught.value)
    assert status == []


async def test_a_key_that_no_header_can_carry_is_not_told() -> None:
    async with driver_for("http://gateway.invalid", api_key="line\nbreak", limits=QUICK) as driver:
        with pytest.raises(GatewayError) as caught:
            await driver.call(order())

    assert "break" not in str(caught.value)


NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEADERS: list[tuple[Any, Any]] = [
    (None, None),
    ("0", 0.0),
    (" 7 ", 7.0),
    (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
    (format_datetime(NOW - timedelta(seconds=90), usegmt=True), 0.0),
    ("Thu, 01 Jan 2026 00:00:05 -0000", None),
    ("soon", None),
    ("-5", None),
    ("1.5", None),
    ("", None),
    ("9" * 400, float("inf")),
    ("9" * 5000, float("inf")),
    ("nan", None),
]


@pytest.mark.parametrize(("header", "seconds"), HEADERS)
def test_a_retry_after_is_a_number_or_a_date(header: str | None, seconds: float | None) -> None:
    assert seconds_of(header, NOW) == seconds


async def test_a_url_is_used_exactly_as_it_stands() -> None:
    seen = []

    def log(request: httpx.Request) -> httpx.Response:
        seen.append((request.method, str(request.url)))
        return httpx.Response(200, json={"isolated": False}, request=request)

    url = "http://gateway/hooks/v1/?team=a"
    async with Link(Endpoint("gateway", url), QUICK, transport=doing(log)) as link:
        driver = WebhookDriver(link, state=link, clock=SystemClock())
        await driver.call(order())
        await driver.observe(order(node="a b&c"))

    assert seen == [("POST", url), ("GET", f"{url}&node_endpoint=a+b%26c")]


async def test_a_refused_connection_is_not_tried_again_by_the_network() -> None:
    tries = []

    def refuse(request: httpx.Request) -> httpx.Response:
        tries.append(request.method)
        raise httpx.ConnectError("refused", request=request)

    async with driver_for("http://gateway", transport=doing(refuse)) as driver:
        with pytest.raises(Unanswered):
            await driver.call(order())
        await driver.observe(order())

    assert tries == ["POST", "GET"]


def test_the_body_is_json_for_any_receiver() -> None:
    assert json.loads(encoded(order()))["schema"] == 1
