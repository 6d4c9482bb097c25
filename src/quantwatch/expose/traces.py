"""Spans to a collector by OTLP over HTTP, in the background: a run never waits for it, whatever the collector does.

Spans wait in a queue of fixed length, the oldest giving way; one thread sends them in batches, each within a limit.
"""

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span as Spanning
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from quantwatch import __version__
from quantwatch.log import logger, without_secrets
from quantwatch.trace import Attributes, Span

log = logger()

NAME = "quantwatch"
PATH = "/v1/traces"
"""Where OTLP takes traces, for an address without a path."""

MOST_WAITING = 2048
BATCH = 256
EVERY_SECONDS = 5.0
SEND_SECONDS = 5.0
CLOSE_SECONDS = 5.0

_CONTEXT = TraceContextTextMapPropagator()


class OtelSpan:
    """A span of OpenTelemetry."""

    def __init__(self, spanning: Spanning, provider: TracerProvider) -> None:
        self._spanning = spanning
        self._provider = provider

    def note(self, attributes: Attributes) -> None:
        """Add what is known."""
        self._spanning.set_attributes(_known(attributes))

    def fail(self, reason: str) -> None:
        """Mark it as failed."""
        self._spanning.set_status(Status(StatusCode.ERROR, without_secrets(reason)))

    def child(self, name: str, attributes: Attributes, *, outward: bool) -> Span:
        """Begin a part of it."""
        return OtelSpan(
            self._provider.get_tracer(NAME, __version__).start_span(
                name,
                context=set_span_in_context(self._spanning),
                kind=SpanKind.CLIENT if outward else SpanKind.INTERNAL,
                attributes=_known(attributes),
            ),
            self._provider,
        )

    def headers(self) -> Mapping[str, str]:
        """`traceparent`."""
        carrier: dict[str, str] = {}
        _CONTEXT.inject(carrier, context=set_span_in_context(self._spanning))
        return carrier

    def end(self) -> None:
        """Let it be over; it then waits to be sent."""
        self._spanning.end()


class Told(SpanExporter):
    """Says in one line when spans begin to be lost, and when they arrive again; the libraries would repeat it."""

    def __init__(self, inner: SpanExporter, endpoint: str) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch."""
        try:
            result = self._inner.export(spans)
        except requests.RequestException:  # such as a redirect, which is not followed
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            if self._lost:
                log.info("traces are delivered again", endpoint=self._endpoint, lost_spans=self._lost)
            self._lost = 0
            return result
        if not self._lost:
            log.warning("traces cannot be delivered and are lost; runs go on without them", endpoint=self._endpoint)
        self._lost += len(spans)
        return result

    def shutdown(self) -> None:
        """Send nothing more."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits here."""
        return self._inner.force_flush(timeout_millis)


class Traces:
    """A tracer that sends to a collector. ratio: the share of traces that are kept, chosen by their ids.

    certificate: our own, as paths of certificate and key.
    """

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str],
        *,
        ratio: float,
        ca_file: str | None = None,
        certificate: tuple[str, str] | None = None,
        every_seconds: float = EVERY_SECONDS,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        self._close_seconds = close_seconds
        url = endpoint if urlsplit(endpoint).path not in ("", "/") else endpoint.rstrip("/") + PATH
        # What cannot be sent is told once by Told; the library would tell it with a traceback every few seconds.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        sender = OTLPSpanExporter(
            url,
            certificate_file=ca_file,
            client_certificate_file=None if certificate is None else certificate[0],
            client_key_file=None if certificate is None else certificate[1],
            headers=dict(headers),
            timeout=SEND_SECONDS,
            session=_session(),
        )
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(ratio)),
            resource=Resource({"service.name": NAME, "service.version": __version__}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                Told(sender, urlsplit(url).netloc),
                max_queue_size=MOST_WAITING,
                max_export_batch_size=BATCH,
                schedule_delay_millis=every_seconds * 1000,
            )
        )

    def begin(self, name: str, attributes: Attributes) -> Span:
        """Begin a trace."""
        spanning = self._provider.get_tracer(NAME, __version__).start_span(name, attributes=_known(attributes))
        return OtelSpan(spanning, self._provider)

    async def close(self) -> None:
        """Send what waits, and give up after some seconds: the thread that sends must not hold the process."""
        ending = threading.Thread(target=self._provider.shutdown, name="end of traces", daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, self._close_seconds)


def _session() -> requests.Session:
    """As everywhere in quantwatch: no proxies and passwords of the environment, and no redirects."""
    session = requests.Session()
    session.trust_env = False
    session.max_redirects = 0
    return session


def _known(attributes: Attributes) -> dict[str, str | bool | int | float]:
    return {
        name: without_secrets(value) if isinstance(value, str) else value
        for name, value in attributes.items()
        if value is not None
    }
