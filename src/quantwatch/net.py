"""The only door to the network: one Link a server, with limits, auth, TLS and error mapping.

Redirects and environment proxies are off: a probe goes to the address that was configured or nowhere.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import stamina

from quantwatch.errors import Misconfigured, NodeFailed, NodeTimeout, NodeUnreachable, ProbeError

MEBIBYTE = 1024 * 1024

stamina.instrumentation.set_on_retry_hooks([])  # what went wrong is told once, by the error that ends the tries


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how much: seconds for connecting and for the whole exchange, bytes of a reply, tries."""

    connect_seconds: float = 5.0
    total_seconds: float = 120.0
    response_bytes: int = 64 * MEBIBYTE
    attempts: int = 3
    retry_wait_seconds: float = 0.5


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
    """A complete reply of any status."""

    status: int
    body: bytes
    seconds: float


def base_url(url: str) -> str:
    """Return the server's root: without a trailing slash and without the /v1 that clients of the API often carry."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


class Link:
    """HTTP to one server. Use as an async context manager; transport is injected in tests."""

    def __init__(
        self, endpoint: Endpoint, limits: Limits | None = None, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.endpoint = endpoint
        self.url = base_url(endpoint.url)
        self._limits = limits or Limits()
        self._client = httpx.AsyncClient(
            headers=_headers(endpoint),
            timeout=httpx.Timeout(self._limits.total_seconds, connect=self._limits.connect_seconds),
            follow_redirects=False,
            trust_env=False,
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
        return await self._ask("GET", path, None)

    async def glance(self, path: str, *, seconds: float) -> Answer:
        """GET a path once, waiting no longer than that. Raises a ProbeError when no complete reply came."""
        with _mapped(self.name, self._limits):
            async with asyncio.timeout(min(seconds, self._limits.total_seconds)):
                return await self._once("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        """POST JSON to a path under the server's root. Raises a ProbeError when no complete reply came."""
        return await self._ask("POST", path, body)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> Answer:
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
                return await self._once(method, path, body)
        raise AssertionError("a retry loop returns or raises")  # pragma: no cover

    async def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Answer:
        started = time.perf_counter()
        with _mapped(self.name, self._limits):
            async with asyncio.timeout(self._limits.total_seconds):
                async with self._client.stream(method, self.url + path, json=body) as response:
                    content = b"".join([chunk async for chunk in self._limited(response)])
        self._refuse_redirect(response)
        return Answer(response.status_code, content, time.perf_counter() - started)

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


def _worth_another_try(exc: Exception) -> bool:
    return isinstance(exc, ProbeError) and exc.retryable


def _headers(endpoint: Endpoint) -> dict[str, str]:
    auth = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    return {"Accept-Encoding": "identity", "User-Agent": "quantwatch", **auth, **endpoint.headers}


def _tls(endpoint: Endpoint) -> ssl.SSLContext | bool:
    if endpoint.ca_file is None and endpoint.client_certificate is None:
        return True
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
