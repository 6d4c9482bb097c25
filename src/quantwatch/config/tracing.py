"""Where traces of runs go."""

from pydantic import Field

from quantwatch.config.server import Headers, TlsSettings, Url
from quantwatch.config.strict import Strict
from quantwatch.config.units import Share


class TracingSettings(Strict):
    """A collector that takes traces by OTLP over HTTP; needs the extra quantwatch[otel]."""

    endpoint: Url = Field(description="The collector; an address without a path gets /v1/traces")
    headers: Headers = Field(
        default_factory=dict, description="Sent with every batch; one that looks like a secret must name it"
    )
    tls: TlsSettings = Field(default_factory=TlsSettings, description="Certificates, for https")
    ratio: Share = Field(1.0, gt=0, description="Share of the runs that are traced, drawn by chance")
