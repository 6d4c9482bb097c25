"""How a node is taken out of traffic: which gateway, and what its driver needs to know."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from quantwatch.config.haproxy import NAME
from quantwatch.config.installed import GROUP, known_driver
from quantwatch.config.kubernetes import LABEL, SERVICE
from quantwatch.config.secrets import Secret, named_secrets
from quantwatch.config.server import TlsSettings, Url, written
from quantwatch.config.strict import Strict
from quantwatch.config.units import Count, PositiveDuration

Shipped = Literal[
    "dry_run",
    "webhook",
    "verdict",
    "vllm_router",
    "sglang_router",
    "haproxy",
    "file",
    "litellm",
    "kubernetes",
    "apisix",
    "kong",
]
SHIPPED: tuple[str, ...] = get_args(Shipped)
"""Drivers that come with quantwatch; all others come with installed packages."""

DriverName = Annotated[
    str, AfterValidator(lambda name: known_driver(name, SHIPPED)), Field(json_schema_extra={"examples": list(SHIPPED)})
]


class Leave(StrEnum):
    """How a server of HAProxy leaves: drain lets sticky clients finish and goes on checking, maint does neither."""

    DRAIN = "drain"
    MAINT = "maint"


IN_CLUSTER = "https://kubernetes.default.svc"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where a pod finds the API server, and who it is there."""

_ROUTER = (("url",), ("api_key", "tls"))
NEEDED_AND_ALLOWED: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "dry_run": ((), ()),
    "verdict": ((), ()),
    "webhook": (("url",), ("release_url", "state_url", "api_key", "signing_secret", "tls")),
    "vllm_router": _ROUTER,
    "sglang_router": _ROUTER,
    "haproxy": (("socket",), ("backend", "leave")),
    "file": (("path", "template"), ("validate_command", "reload_command", "envoy_admin", "envoy_cluster")),
    "litellm": (("url", "api_key"), ("tls",)),
    "kubernetes": (("namespace",), ("url", "api_key", "tls", "service", "label")),
    "apisix": (("url", "api_key"), ("tls", "upstream")),
    "kong": (("url",), ("api_key", "tls", "upstream")),
}
"""The keys of each driver beside timeout and give_up_after: what it needs, and what else it takes."""

OF_A_PACKAGE: tuple[tuple[str, ...], tuple[str, ...]] = ((), ("options",))
"""The same of a driver that comes with an installed package."""

BY_WEIGHT = ("haproxy",)
"""Drivers that can shift traffic by weights."""

NO_STANDBY = ("vllm_router", "sglang_router", "litellm", "kubernetes", "apisix", "kong")
"""Drivers of gateways that send to everyone who is in: no rung of a ladder could stand by there."""

Command = list[str]


class TrafficSettings(Strict):
    """Marked requests through the gateway after an isolation: does the node that is out still answer?"""

    url: Url = Field(description="The gateway as its clients reach it")
    model: str = Field(min_length=1, description="What to ask for, as clients do")
    node_header: str = Field(
        pattern=r"^[A-Za-z0-9-]+$",
        description="Header of an answer in which the gateway names who gave it: a target's name or gateway_name, the "
        "server's name without its backend, or HOST:PORT of its URL",
    )
    path: str = Field("/v1/completions", pattern=r"^/\S*$", description="Where completions are asked for")
    requests: Count = Field(8, ge=1, le=64, description="Requests of one token each, one after another")
    api_key: Secret | None = Field(None, description="Sent as a bearer token")
    tls: TlsSettings = Field(default_factory=TlsSettings, description="Certificates, for https")
    timeout: PositiveDuration = written("10s", "Longest wait for one answer")


class GatewaySettings(Strict):
    """How a node is taken out of traffic."""

    driver: DriverName = Field(
        "dry_run",
        description="dry_run calls nothing, webhook posts to url, verdict lets the gateway ask /verdict/TARGET; the "
        f"others speak to that gateway itself: {', '.join(SHIPPED[3:])}, or one that an installed package brings "
        f"(entry-point group {GROUP})",
    )
    url: Url | None = Field(
        None,
        description="webhook: where isolations are posted; all others: the address of the gateway's own API. "
        f"kubernetes: {IN_CLUSTER} if left out",
    )
    release_url: Url | None = Field(None, description="webhook: where releases are posted; url if left out")
    state_url: Url | None = Field(
        None, description="webhook: answers {isolated: true|false} to ?node_endpoint=; for read-back"
    )
    api_key: Secret | None = Field(
        None,
        description="Sent as a bearer token; apisix: as X-API-KEY; kong: as Kong-Admin-Token. kubernetes: the token of "
        "the pod's service account if left out",
    )
    signing_secret: Secret | None = Field(
        None, description="webhook: signs calls by Standard Webhooks, whsec_... or plain"
    )
    tls: TlsSettings = Field(default_factory=TlsSettings, description="Certificates of the gateway's API, for https")
    socket: str | None = Field(
        None,
        min_length=1,
        description="haproxy: its runtime socket with level admin, a path (a relative one starts beside this file) or "
        "HOST:PORT",
    )
    backend: str | None = Field(
        None,
        pattern=rf"^{NAME.pattern}$",
        description="haproxy: the backend of servers that name none; a gateway_name is SERVER or BACKEND/SERVER, or "
        "several with commas between",
    )
    leave: Leave = Field(Leave.DRAIN, description="haproxy: the state that takes a server out")
    path: str | None = Field(
        None,
        min_length=1,
        description="file: what is written, whole, at every change; a relative path starts beside this file",
    )
    template: str | None = Field(
        None, min_length=1, description="file: what it is made from, a Jinja2 template beside this file"
    )
    validate_command: Command = Field(
        [],
        description="file: run after writing, beside this file, as words without a shell; when it fails, the old file "
        "is put back and nothing is reloaded",
    )
    reload_command: Command = Field([], description="file: run after that; makes the gateway read the file")
    envoy_admin: Url | None = Field(
        None,
        description="file, for Envoy: the address of its admin interface; a node then counts as out when Envoy says so "
        "itself, and never while Envoy panics",
    )
    envoy_cluster: str | None = Field(
        None, pattern=r"^[A-Za-z0-9_.:-]+$", description="file, for Envoy: the cluster whose hosts are the targets"
    )
    namespace: str | None = Field(None, pattern=rf"^{SERVICE.pattern}$", description="kubernetes: where the pods are")
    service: str | None = Field(
        None,
        pattern=rf"^{SERVICE.pattern}$",
        description="kubernetes: the Service of pods that name none; a gateway_name is POD or SERVICE:POD, a pod its "
        "name or labels KEY=VALUE,... that it alone has",
    )
    label: str = Field(
        "quantwatch.io/traffic",
        pattern=rf"^{LABEL}$",
        description="kubernetes: the label by which the Service selects; `in` is in traffic, `out` is not",
    )
    upstream: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="apisix, kong: the upstream of nodes that name none; a gateway_name is HOST:PORT or "
        "UPSTREAM/HOST:PORT",
    )
    options: Annotated[dict[str, Any], BeforeValidator(named_secrets)] = Field(
        default_factory=dict,
        description="A driver of an installed package: its own settings, which it checks itself; one that looks like a "
        "secret must name it",
    )
    traffic_probe: TrafficSettings | None = Field(
        None,
        description="Marked requests through the gateway after each isolation, which can contradict it; none if left "
        "out",
    )
    timeout: PositiveDuration = written("10s", "Longest wait for the answer to one call")
    give_up_after: PositiveDuration = written("2h", "How long a call is tried again before it counts as failed")

    @model_validator(mode="after")
    def _what_the_driver_takes(self) -> "GatewaySettings":
        needed, allowed = NEEDED_AND_ALLOWED.get(self.driver, OF_A_PACKAGE)
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"driver {self.driver} needs {' and '.join(missing)}")
        foreign = [name for name in _OF_DRIVERS if name not in (*needed, *allowed) and name in self.model_fields_set]
        if foreign:
            raise ValueError(f"{foreign[0]} has no meaning for driver {self.driver}{_home(foreign[0])}")
        if (self.envoy_admin is None) != (self.envoy_cluster is None):
            raise ValueError("envoy_admin and envoy_cluster go together")
        return self


_OF_DRIVERS = tuple(
    dict.fromkeys(
        name for needed, allowed in (*NEEDED_AND_ALLOWED.values(), OF_A_PACKAGE) for name in (*needed, *allowed)
    )
)


def _home(key: str) -> str:
    if key in OF_A_PACKAGE[1]:
        return "; it belongs to drivers of installed packages. Remove it, or set driver"
    drivers = [driver for driver, (needed, allowed) in NEEDED_AND_ALLOWED.items() if key in (*needed, *allowed)]
    return f"; it belongs to {' and '.join(drivers)}. Remove it, or set driver"
