"""How a server is reached: its address, certificates and credentials."""

from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from quantwatch.config.secrets import HeaderValue, Secret, named_secrets
from quantwatch.config.strict import Strict


def _no_password(url: str) -> str:
    if "@" in urlsplit(url).netloc:
        raise ValueError("a name or password in a URL ends up in messages; use api_key or headers")
    return url


def _port(address: str) -> str:
    port = int(address.rpartition(":")[2])
    if not 1 <= port <= 65535:
        raise ValueError(f"there is no port {port}")
    return address


def _origin(url: str) -> str:
    parts = urlsplit(url)
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("an address without a path is wanted, as https://quantwatch.example")
    usual = {"http": ":80", "https": ":443"}[parts.scheme]
    return f"{parts.scheme}://{parts.netloc.removesuffix(usual)}".lower()  # as browsers write it in an Origin


def written(default: str, description: str | None = None) -> Any:
    """A default as a person would write it, with its unit."""
    return Field(default, description=description)


Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]+.*$"), AfterValidator(_no_password)]
Origin = Annotated[Url, AfterValidator(_origin)]
Headers = Annotated[dict[str, HeaderValue], BeforeValidator(named_secrets)]
Listen = Annotated[str, StringConstraints(pattern=r"^[^\s]+:\d{1,5}$"), AfterValidator(_port)]


class TlsSettings(Strict):
    """Certificates for one server: who signs it, and who we are."""

    ca_file: str | None = Field(None, description="Who signed the server, PEM; the system's own if left out")
    certificate_file: str | None = Field(None, description="Our own certificate, PEM; goes with key_file")
    key_file: str | None = Field(None, description="The key of our own certificate, PEM; goes with certificate_file")

    @model_validator(mode="after")
    def _pair(self) -> "TlsSettings":
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file go together")
        return self


class ServerSettings(Strict):
    """An inference server: where it is and how to get in."""

    url: Url = Field(description="The server's own address, never a gateway's")
    model: str | None = Field(None, description="Model name at this server; its only model if left out")
    api_key: Secret | None = Field(None, description="Sent as a bearer token")
    headers: Headers = Field(
        default_factory=dict, description="Sent with every request; one that looks like a secret must name it"
    )
    tls: TlsSettings = Field(default_factory=TlsSettings, description="Certificates, for https")
