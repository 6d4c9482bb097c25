"""The only door to the network: one Link a server, with limits, auth, TLS and error mapping.

Redirects and environment proxies are off: a probe goes to the address that was configured or nowhere.
"""

import asyncio
import contextlib
import functools
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import stamina

from quantwatch.errors import Misconfigured, NodeFailed, NodeTimeout, NodeUnreachable, ProbeError

MEBIBYTE = 1024 * 1024

stamina.instrumentation.set_on_retry_hooks([])  # what went wrong is told once, by the error that ends the tries


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how much: seconds for connecting and for the whole exchange, bytes of a reply, tries.

    kept_connections: how many are kept open between requests; more than that are opened anew each time.
    """

    connect_seconds: float = 5.0
    total_seconds: float = 120.0
    response_bytes: int = 64 * MEBIBYTE
    attempts: int = 3
    retry_wait_seconds: float = 0.5
    kept_connections: int = 20


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is and how to get in. name: how messages call it."""

    name: str
    url: str
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca_file: str | None = None
    client_certificate: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete reply of any status. retry_after: that header as it stands, None without one.

    headers: all of them, by names in small letters; several of one name with commas between.
    """

    status: int
    body: bytes
    seconds: float
    retry_after: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


Heard = Callable[[float, str | None], None]


def base_url(url: str) -> str:
    """Return the server's root: without a trailing slash and without the /v1 that clients of the API often carry."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


class Link:
    """HTTP to one server. Use as an async context manager; transport is injected in tests.

    heard: hears of every exchange its seconds and, in one word, what went wrong. carried: headers of the moment, which
    every request gets besides.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        limits: Limits | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        heard: Heard = lambda _, __: None,
        carried: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.endpoint = endpoint
        self._heard = heard
        self._carried = carried
        self.url = base_url(endpoint.url)
        self._limits = limits or Limits()
        self._client = httpx.AsyncClient(
            headers=_headers(endpoint),
            timeout=httpx.Timeout(self._limits.total_seconds, connect=self._limits.connect_seconds),
            follow_redirects=False,
            trust_env=False,
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=self._limits.kept_connections),
            transport=transport,
            verify=_tls(endpoint),
        )

    @property
    def name(self) -> str:
        """How messages call the server."""
        return self.endpoint.name

    async def __aenter__(self) -> "Link":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def get(self, path: str) -> Answer:
        """GET a path under the server's root. Raises a ProbeError when no complete reply came."""
        return await self._ask("GET", path)

    async def glance(self, path: str, *, seconds: float, last: bool = False) -> Answer:
        """GET a path once, waiting no longer than that. Raises a ProbeError when no complete reply came.

        last: close the connection afterwards, so that the next request goes the whole way anew.
        """
        headers = {"Connection": "close"} if last else None
        with _mapped(self.name, self._limits):
            async with asyncio.timeout(min(seconds, self._limits.total_seconds)):
                return await self._once("GET", self.url + path, headers=headers)

    async def post(self, path: str, body: Mapping[str, Any], *, headers: Mapping[str, str] | None = None) -> Answer:
        """POST JSON to a path under the server's root. Raises a ProbeError when no complete reply came."""
        return await self._ask("POST", path, json=body, headers=headers)

    async def send(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """POST bytes to exactly the endpoint's URL, once.

        Raises a ProbeError when no complete reply came; after any but NodeUnreachable the bytes may have arrived.
        """
        return await self._once("POST", self.endpoint.url, content=body, headers=headers)

    async def ask(self, query: Mapping[str, str]) -> Answer:
        """GET exactly the endpoint's URL, once, the query added to its own. Raises a ProbeError without a reply."""
        return await self._once("GET", self.endpoint.url, query=query)

    async def order(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request to a path under the server's root, once. query: parameters. body: sent as JSON.

        Raises a ProbeError when no complete reply came; after any but NodeUnreachable it may have been carried out.
        """
        request: dict[str, Any] = {} if body is None else {"json": body}
        return await self._once(method, self.url + path, query=query, headers=headers, **request)

    async def delete(self, path: str) -> Answer:
        """DELETE a path under the server's root. Raises a ProbeError when no complete reply came."""
        return await self._ask("DELETE", path)

    async def _ask(self, method: str, path: str, **request: Any) -> Answer:
        limits = self._limits
        async for attempt in stamina.retry_context(
            on=_worth_another_try,
            attempts=limits.attempts,
            timeout=None,
            wait_initial=limits.retry_wait_seconds,
            wait_max=limits.retry_wait_seconds * 8,
            wait_jitter=limits.retry_wait_seconds,
        ):
            with attempt:
                return await self._once(method, self.url + path, **request)
        raise AssertionError("a retry loop returns or raises")  # pragma: no cover

    async def _once(self, method: str, url: str, **request: Any) -> Answer:
        """One exchange, of which whoever listens hears how long it took and what went wrong."""
        started = time.perf_counter()
        try:
            answer = await self._exchange(method, url, **request)
        except ProbeError as exc:
            self._heard(time.perf_counter() - started, _kind(exc))
            raise
        self._heard(answer.seconds, None if answer.status < 400 else f"http_{answer.status // 100}xx")
        return answer

    async def _exchange(
        self, method: str, url: str, *, query: Mapping[str, str] | None = None, **request: Any
    ) -> Answer:
        started = time.perf_counter()
        with _mapped(self.name, self._limits):
            address = httpx.URL(url).copy_merge_params(query or {})
            if carried := self._carried():
                request["headers"] = {**(request.get("headers") or {}), **carried}
            async with asyncio.timeout(self._limits.total_seconds):
                async with self._client.stream(method, address, **request) as response:
                    content = b"".join([chunk async for chunk in self._limited(response)])
        self._refuse_redirect(response)
        seconds = time.perf_counter() - started
        headers = {name: response.headers[name] for name in response.headers}
        return Answer(response.status_code, content, seconds, headers.get("retry-after"), headers)

    async def _limited(self, response: httpx.Response) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > self._limits.response_bytes:
                raise NodeFailed(
                    f"the reply is over the limit of {self._limits.response_bytes // MEBIBYTE} MiB",
                    node=self.name,
                    advice="Is this the node's own address? A smaller k makes replies smaller",
                )
            yield chunk

    def _refuse_redirect(self, response: httpx.Response) -> None:
        if response.is_redirect:
            raise Misconfigured(
                f"redirects to {response.headers.get('location', 'nowhere')}",
                node=self.name,
                advice="Give the final address; redirects are not followed",
            )


def _kind(exc: ProbeError) -> str:
    """A failure as one word of a closed set: node_timeout, node_unreachable, ..."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(exc).__name__).lower()


def _worth_another_try(exc: Exception) -> bool:
    return isinstance(exc, ProbeError) and exc.retryable


def _headers(endpoint: Endpoint) -> dict[str, str]:
    auth = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    return {"Accept-Encoding": "identity", "User-Agent": "quantwatch", **auth, **endpoint.headers}


@functools.cache
def _usual_authorities() -> ssl.SSLContext:
    """The machine's certificate authorities; read once, since that takes some 50 ms."""
    return ssl.create_default_context()


def _tls(endpoint: Endpoint) -> ssl.SSLContext | bool:
    if endpoint.url.lower().startswith("http://"):
        return False  # nothing to verify; a context would be read for nothing
    if endpoint.ca_file is None and endpoint.client_certificate is None:
        return _usual_authorities()
    try:
        context = ssl.create_default_context(cafile=endpoint.ca_file)
        if endpoint.client_certificate is not None:
            context.load_cert_chain(*endpoint.client_certificate)
    except OSError as exc:
        raise Misconfigured(f"certificate files cannot be used: {exc}", node=endpoint.name) from exc
    return context


@contextlib.contextmanager
def _mapped(node: str, limits: Limits) -> Iterator[None]:
    """Turn every failure of the HTTP library into ours, so that no caller needs to know it."""
    try:
        yield
    except httpx.LocalProtocolError as exc:
        # The library repeats the headers in its message, and the key is one of them.
        raise Misconfigured("the request cannot be sent: a header holds what HTTP does not allow", node=node) from exc
    except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
        raise NodeUnreachable(
            f"cannot connect: {exc}", node=node, advice="Is the server up, and the URL right?"
        ) from exc
    except (httpx.TimeoutException, TimeoutError) as exc:
        raise NodeTimeout(
            f"no complete answer within {limits.total_seconds:g} s",
            node=node,
            advice="Look at the node's load, or allow more time (--timeout, in a configuration probe.timeout)",
        ) from exc
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as exc:
        raise Misconfigured(f"not a usable URL: {exc}", node=node) from exc
    except httpx.TransportError as exc:
        raise NodeFailed(
            f"broke off: {str(exc) or type(exc).__name__}", node=node, advice="Look at the server's log"
        ) from exc
    except httpx.DecodingError as exc:
        raise NodeFailed(f"the reply cannot be decompressed: {exc}", node=node) from exc
