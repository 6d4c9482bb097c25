"""What a valid configuration should be told all the same."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from quantwatch.config.access import token_advice
from quantwatch.config.kubernetes import pod_of
from quantwatch.config.schema import Settings
from quantwatch.flow.decision import PoolMode

ROUTERS = ("vllm_router", "sglang_router")
"""Gateways that know a node by its URL, letter for letter."""


def advice(settings: Settings) -> list[str]:
    """One sentence for everything that is allowed and probably not meant; starts with the key."""
    return [*_modes(settings), *_gateway(settings), *_notifications(settings), *token_advice(settings.server)]


def _modes(settings: Settings) -> Iterator[str]:
    for name, pool in settings.pools.items():
        if pool.mode is PoolMode.APPROVE and settings.gateway.driver == "dry_run":
            yield f"pools.{name}.mode: approve with gateway.driver dry_run proposes nothing; use webhook or verdict"
        if pool.mode is PoolMode.ENFORCE and settings.gateway.driver == "dry_run":
            yield f"pools.{name}.mode: enforce with gateway.driver dry_run calls nothing; name the gateway's own"
        if pool.mode is PoolMode.ENFORCE and pool.max_isolated == 0:
            yield f"pools.{name}.max_isolated: 0 % never isolates anything"


def _gateway(settings: Settings) -> Iterator[str]:
    gateway = settings.gateway
    if gateway.driver in ROUTERS:
        yield from _spellings(settings)
    if gateway.driver == "kubernetes":
        yield from _names_that_go_away(settings)
    if gateway.driver != "webhook":
        return
    if gateway.state_url is None:
        yield "gateway.state_url: without it a yes of the gateway cannot be read back, so nothing is ever verified"
    if gateway.signing_secret is None:
        yield "gateway.signing_secret: without it the gateway cannot tell our calls from anybody's"


def _spellings(settings: Settings) -> Iterator[str]:
    for one in settings.targets:
        name = one.gateway_name or one.url
        if name != name.rstrip("/").removesuffix("/v1"):
            yield f"targets[{one.name}].gateway_name: {name} ends by a slash or /v1, and most routers list no such URL"


def _names_that_go_away(settings: Settings) -> Iterator[str]:
    """A Service gives names and addresses to those in traffic alone."""
    for one in settings.targets:
        if one.gateway_name is None:
            continue
        service, _ = pod_of(one.gateway_name, settings.gateway.service)
        host = urlsplit(one.url).hostname or ""
        if service in host.split(".")[:2]:
            yield (
                f"targets[{one.name}].url: {host} is a name that service {service} gives, which leaves out who is "
                "isolated; give the name of a headless Service that does not select by gateway.label"
            )


def _untold(settings: Settings) -> Iterator[str]:
    for mode, does in ((PoolMode.ENFORCE, "may act"), (PoolMode.APPROVE, "asks people")):
        pools = [name for name, pool in settings.pools.items() if pool.mode is mode]
        if pools:
            yield f"notifications: pool {pools[0]} {does}, and nobody is told; see docs/notifications.md"


def _notifications(settings: Settings) -> Iterator[str]:
    if not settings.notifications:
        yield from _untold(settings)
    for i, one in enumerate(settings.notifications):
        named = isinstance(one.url, str) and one.url.lower().startswith("http://")
        if named and (one.api_key is not None or one.headers):
            yield f"notifications[{i}].url: http carries the token of {one.name} in the clear; use https"
        if one.kind == "webhook" and one.signing_secret is None:
            yield f"notifications[{i}].signing_secret: without it {one.name} cannot tell our notices from anybody's"
