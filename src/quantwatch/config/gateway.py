"""How a node is taken out of traffic: which gateway, and what its driver needs to know."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from pydantic import Field, model_validator

from quantwatch.config.haproxy import NAME
from quantwatch.config.secrets import Secret
from quantwatch.config.server import TlsSettings, Url, written
from quantwatch.config.strict import Strict
from quantwatch.config.units import PositiveDuration

DriverName = Literal["dry_run", "webhook", "verdict", "vllm_router", "sglang_router", "haproxy", "file"]


class Leave(StrEnum):
    """How a server of HAProxy leaves: drain lets sticky clients finish and goes on checking, maint does neither."""

    DRAIN = "drain"
    MAINT = "maint"


_ROUTER = (("url",), ("api_key", "tls"))
NEEDED_AND_ALLOWED: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "dry_run": ((), ()),
    "verdict": ((), ()),
    "webhook": (("url",), ("release_url", "state_url", "api_key", "signing_secret", "tls")),
    "vllm_router": _ROUTER,
    "sglang_router": _ROUTER,
    "haproxy": (("socket",), ("backend", "leave")),
    "file": (("path", "template"), ("validate_command", "reload_command")),
}
"""The keys of each driver beside timeout and give_up_after: what it needs, and what else it takes."""

BY_WEIGHT = ("haproxy",)
"""Drivers that can shift traffic by weights."""

NO_STANDBY = ("vllm_router", "sglang_router")
"""Drivers of gateways that send to everyone who is in: no rung of a ladder could stand by there."""

Command = list[str]


class GatewaySettings(Strict):
    """How a node is taken out of traffic."""

    driver: DriverName = Field(
        "dry_run",
        description="dry_run calls nothing, webhook posts to url, verdict lets the gateway ask /verdict/TARGET; the "
        "others speak to that gateway itself",
    )
    url: Url | None = Field(None, description="webhook: where isolations are posted; routers: the router's address")
    release_url: Url | None = Field(None, description="webhook: where releases are posted; url if left out")
    state_url: Url | None = Field(
        None, description="webhook: answers {isolated: true|false} to ?node_endpoint=; for read-back"
    )
    api_key: Secret | None = Field(None, description="webhook, routers: sent as a bearer token")
    signing_secret: Secret | None = Field(
        None, description="webhook: signs calls by Standard Webhooks, whsec_... or plain"
    )
    tls: TlsSettings = Field(default_factory=TlsSettings, description="webhook, routers: certificates, for https")
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
    timeout: PositiveDuration = written("10s", "Longest wait for the answer to one call")
    give_up_after: PositiveDuration = written("2h", "How long a call is tried again before it counts as failed")

    @model_validator(mode="after")
    def _what_the_driver_takes(self) -> "GatewaySettings":
        needed, allowed = NEEDED_AND_ALLOWED[self.driver]
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"driver {self.driver} needs {' and '.join(missing)}")
        foreign = [name for name in _OF_DRIVERS if name not in (*needed, *allowed) and name in self.model_fields_set]
        if foreign:
            raise ValueError(f"{foreign[0]} has no meaning for driver {self.driver}{_home(foreign[0])}")
        return self


_OF_DRIVERS = tuple(
    dict.fromkeys(name for needed, allowed in NEEDED_AND_ALLOWED.values() for name in (*needed, *allowed))
)


def _home(key: str) -> str:
    drivers = [driver for driver, (needed, allowed) in NEEDED_AND_ALLOWED.items() if key in (*needed, *allowed)]
    return f"; it belongs to {' and '.join(drivers)}. Remove it, or set driver"
