"""Who is told of changes: Alertmanager, Slack and what takes its messages, or any receiver of webhooks."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, WithJsonSchema, model_validator

from quantwatch.config.secrets import Secret, SecretRef, secret_ref
from quantwatch.config.server import Headers, TlsSettings, Url, written
from quantwatch.config.strict import Name, Strict
from quantwatch.config.units import PositiveDuration
from quantwatch.flow.notice import Severity

ChannelKind = Literal["alertmanager", "slack", "webhook"]

_URL = TypeAdapter(Url)


def _url_or_place(value: Any) -> Any:
    """A URL, or the secret that holds one. Raises ValueError without repeating what was found: it may be the secret."""
    if isinstance(value, SecretRef) or (isinstance(value, str) and value.startswith(("env:", "file:"))):
        return secret_ref(value)
    try:
        return _URL.validate_python(value)
    except ValueError:
        said = "a URL of http or https without a password is wanted, or env:NAME or file:/path of a secret one"
        raise ValueError(said) from None


ChannelUrl = Annotated[
    str | SecretRef,
    BeforeValidator(_url_or_place),
    WithJsonSchema({"type": "string", "pattern": r"^(https?://[^\s/]+.*|(env|file):.+)$"}),
]


class ChannelSettings(Strict):
    """One channel: where notices go, and which."""

    name: Name = Field(description="What logs and metrics call it; unique")
    kind: ChannelKind = Field(description="What listens there")
    url: ChannelUrl = Field(
        description="alertmanager: its address; slack: the incoming webhook, which is a secret and so must be "
        "env:NAME or file:/path; webhook: where notices are posted"
    )
    api_key: Secret | None = Field(None, description="alertmanager, webhook: sent as a bearer token")
    signing_secret: Secret | None = Field(
        None, description="webhook: signs notices by Standard Webhooks, whsec_... or plain"
    )
    headers: Headers = Field(
        default_factory=dict, description="Sent with every notice; one that looks like a secret must name it"
    )
    tls: TlsSettings = Field(default_factory=TlsSettings, description="Certificates, for https")
    min_severity: Severity = Field(Severity.WARNING, description="The least that is told")
    pools: list[Name] | None = Field(
        None, description="Only what concerns these pools; what concerns no pool is always told"
    )
    runbook_url: Url | None = Field(None, description="Where your copy of docs/runbook.md lies; messages link to it")
    timeout: PositiveDuration = written("10s", "Longest wait for the answer to one call")
    give_up_after: PositiveDuration = written("1h", "How long a notice is tried again before it is given up")

    @model_validator(mode="after")
    def _what_the_kind_takes(self) -> "ChannelSettings":
        if self.kind == "slack" and isinstance(self.url, str):
            raise ValueError("the URL of an incoming webhook is a secret; use env:NAME or file:/path for url")
        foreign = {"signing_secret": self.kind != "webhook", "api_key": self.kind == "slack"}
        for key, wrong in foreign.items():
            if wrong and getattr(self, key) is not None:
                raise ValueError(f"{key} has no meaning for kind {self.kind}")
        if self.pools == []:
            raise ValueError("pools is empty; leave it out to hear of all")
        return self

    def address(self) -> str:
        """The URL itself. Raises InputError, naming a secret's place, never its value."""
        return self.url.resolve() if isinstance(self.url, SecretRef) else self.url
