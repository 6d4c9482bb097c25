"""Chooses who hears of runs as traces. Without the key nothing is imported and nothing is made."""

import importlib.util

from quantwatch.config.secrets import SecretRef
from quantwatch.config.tracing import TracingSettings
from quantwatch.log import logger
from quantwatch.trace import NoTracer, Tracer

log = logger()

PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
"""What the extra brings."""

ADVICE = "pip install 'quantwatch[otel]', and start quantwatch again"


def tracer_of(settings: TracingSettings | None) -> Tracer:
    """Who traces. Raises InputError for a secret that cannot be fetched.

    Without the extra packages the watch goes on untraced, and the log says so: it must not end for want of traces.
    """
    if settings is None:
        return NoTracer()
    if not installed():
        log.error("nothing is traced: the packages of the extra otel are not installed", advice=ADVICE)
        return NoTracer()
    from quantwatch.expose.traces import Traces

    tls = settings.tls
    pair = (tls.certificate_file, tls.key_file) if tls.certificate_file and tls.key_file else None
    headers = {name: one.resolve() if isinstance(one, SecretRef) else one for name, one in settings.headers.items()}
    return Traces(settings.endpoint, headers, ratio=settings.ratio, ca_file=tls.ca_file, certificate=pair)


def installed() -> bool:
    """Whether the extra is there; importing it costs some 100 ms, so it is only looked for."""
    try:
        return all(importlib.util.find_spec(one) is not None for one in PACKAGES)
    except ModuleNotFoundError:
        return False
