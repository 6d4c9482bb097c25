"""Settings of a gateway -> its driver."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quantwatch.act.admin_api import AdminApi
from quantwatch.act.apisix import ADVICE as APISIX_ADVICE
from quantwatch.act.apisix import ApisixDriver
from quantwatch.act.contract import Driver
from quantwatch.act.dry_run import DryRun
from quantwatch.act.envoy import Cluster, EnvoyFile
from quantwatch.act.file import file_driver
from quantwatch.act.haproxy import HaproxyDriver, Runtime
from quantwatch.act.kong import ADVICE as KONG_ADVICE
from quantwatch.act.kong import KongDriver
from quantwatch.act.kubernetes import ADVICE as KUBERNETES_ADVICE
from quantwatch.act.kubernetes import KubernetesDriver, Place
from quantwatch.act.litellm import ADVICE as LITELLM_ADVICE
from quantwatch.act.litellm import LitellmDriver
from quantwatch.act.package import Outside, package
from quantwatch.act.sglang_router import SglangRouter
from quantwatch.act.template import nodes_of
from quantwatch.act.traffic import Question, TrafficProbe, names_of
from quantwatch.act.verdict import VerdictDriver
from quantwatch.act.vllm_router import VllmRouter
from quantwatch.act.webhook import WebhookDriver
from quantwatch.config.gateway import IN_CLUSTER, SERVICE_ACCOUNT, GatewaySettings
from quantwatch.config.haproxy import address_of
from quantwatch.config.schema import Settings
from quantwatch.config.secrets import SecretRef
from quantwatch.config.server import TlsSettings
from quantwatch.flows.pools import BASELINE
from quantwatch.log import logger
from quantwatch.net import MEBIBYTE, Endpoint, Limits, Link
from quantwatch.wiring.tools import Tools, certificates

log = logger()

ADMIN_BYTES = 16 * MEBIBYTE
"""Of one reply; an API server's list of pods, or LiteLLM's of deployments, can be long."""


@dataclass(frozen=True, slots=True)
class Making:
    """What a driver is made from. stack: closes its connections. isolated: whether a target is out by our record.

    folder: where the configuration file is.
    """

    settings: Settings
    stack: contextlib.AsyncExitStack
    tools: Tools
    isolated: Callable[[str], bool]
    folder: Path = field(default_factory=Path)

    @property
    def gateway(self) -> GatewaySettings:
        """The gateway's settings."""
        return self.settings.gateway

    async def link(self, name: str, url: str) -> Link:
        """A connection to the gateway, by its credentials and certificates. Raises InputError for a missing secret."""
        key = self.gateway.api_key.resolve() if self.gateway.api_key is not None else None
        return self.opened(Endpoint(name=name, url=url, api_key=key, **certificates(self.gateway.tls)))

    def opened(self, there: Endpoint, *, response_bytes: int = MEBIBYTE) -> Link:
        """A connection that closes with the configuration."""
        wait = self.gateway.timeout
        reach = Limits(connect_seconds=wait, total_seconds=wait, response_bytes=response_bytes)
        link = Link(there, reach, transport=self.tools.transport)
        self.stack.push_async_exit(link)
        return link

    def admin_api(self, advice: Mapping[int, str], header: str, *, prefix: str = "") -> AdminApi:
        """The gateway's admin API, its key asked for at every request. Raises InputError for a missing secret."""
        gateway = self.gateway
        place, url, tls = gateway.api_key, gateway.url, gateway.tls
        if gateway.driver == "kubernetes":
            place = place or SecretRef("file", f"{SERVICE_ACCOUNT}/token")
            tls = tls if url or tls.ca_file else TlsSettings(ca_file=f"{SERVICE_ACCOUNT}/ca.crt")
        there = Endpoint(gateway.driver, url or IN_CLUSTER, **certificates(tls))

        def credentials() -> dict[str, str]:
            return {} if place is None else {header: f"{prefix}{place.resolve()}"}

        credentials()
        return AdminApi(self.opened(there, response_bytes=ADMIN_BYTES), self.tools.clock, advice, credentials)


async def driver(
    settings: Settings,
    stack: contextlib.AsyncExitStack,
    tools: Tools,
    *,
    isolated: Callable[[str], bool],
    folder: Path = Path(),
) -> Driver:
    """The gateway's driver. isolated: whether a target is out of traffic by our own record.

    folder: where the configuration file is. Raises InputError for what it cannot be made from.
    """
    return await MAKERS.get(settings.gateway.driver, _package)(Making(settings, stack, tools, isolated, folder))


async def traffic_probe(settings: Settings, stack: contextlib.AsyncExitStack, tools: Tools) -> TrafficProbe | None:
    """What asks through the gateway after an isolation; None where that is not wanted. Raises InputError."""
    given = settings.gateway.traffic_probe
    if given is None:
        return None
    key = given.api_key.resolve() if given.api_key is not None else None
    there = Endpoint(name="gateway (traffic)", url=given.url, api_key=key, **certificates(given.tls))
    reach = Limits(connect_seconds=given.timeout, total_seconds=given.timeout, response_bytes=MEBIBYTE, attempts=1)
    link = await stack.enter_async_context(Link(there, reach, transport=tools.transport))
    names = {one.name: names_of(one.name, one.gateway_name, one.url) for one in settings.targets}
    names[BASELINE] = names_of(BASELINE, settings.baseline.gateway_name, settings.baseline.url)
    return TrafficProbe(link, Question(given.model, given.node_header, given.path, given.requests), names)


async def _dry_run(_: Making) -> Driver:
    return DryRun()


async def _verdict(making: Making) -> Driver:
    return VerdictDriver(making.isolated)


async def _webhook(making: Making) -> Driver:
    gateway = making.gateway

    async def link(name: str, url: str | None) -> Link | None:
        return None if url is None else await making.link(name, url)

    return WebhookDriver(
        await making.link("gateway", gateway.url or ""),
        clock=making.tools.clock,
        release=await link("gateway (release)", gateway.release_url),
        state=await link("gateway (state)", gateway.state_url),
        signing_secret=gateway.signing_secret.resolve() if gateway.signing_secret is not None else None,
    )


async def _haproxy(making: Making) -> Driver:
    gateway = making.gateway
    given = gateway.socket or ""
    socket = given if address_of(given) else str(making.folder / given)
    return HaproxyDriver(Runtime(socket, gateway.timeout), backend=gateway.backend, leave=gateway.leave)


async def _file(making: Making) -> Driver:
    made = file_driver(making.settings, folder=making.folder)
    if (objection := made.objection()) is not None:
        log.warning("nothing can be isolated as things are", reason=objection)
    gateway = making.gateway
    if gateway.envoy_admin is None or gateway.envoy_cluster is None:
        return made
    there = Endpoint("envoy", gateway.envoy_admin)
    cluster = Cluster(making.opened(there, response_bytes=ADMIN_BYTES), gateway.envoy_cluster)
    return EnvoyFile(made, cluster, {one.name: one.address for one in nodes_of(making.settings)})


async def _litellm(making: Making) -> Driver:
    api = making.admin_api(LITELLM_ADVICE, "Authorization", prefix="Bearer ")
    return LitellmDriver(api, notes=making.tools.notes)


async def _kubernetes(making: Making) -> Driver:
    gateway = making.gateway
    api = making.admin_api(KUBERNETES_ADVICE, "Authorization", prefix="Bearer ")
    return KubernetesDriver(api, Place(gateway.namespace or "", gateway.service, gateway.label))


async def _apisix(making: Making) -> Driver:
    api = making.admin_api(APISIX_ADVICE, "X-API-KEY")
    return ApisixDriver(api, notes=making.tools.notes, upstream=making.gateway.upstream)


async def _kong(making: Making) -> Driver:
    api = making.admin_api(KONG_ADVICE, "Kong-Admin-Token")
    return KongDriver(api, notes=making.tools.notes, upstream=making.gateway.upstream)


async def _package(making: Making) -> Driver:
    gateway = making.gateway
    outside = Outside(making.tools.clock, making.tools.notes, making.folder, making.opened)
    return package(gateway.driver).driver(gateway.options, outside, seconds=gateway.timeout)


async def _vllm_router(making: Making) -> Driver:
    return VllmRouter(await _router(making), clock=making.tools.clock, notes=making.tools.notes)


async def _sglang_router(making: Making) -> Driver:
    return SglangRouter(await _router(making), clock=making.tools.clock, notes=making.tools.notes)


async def _router(making: Making) -> Link:
    return await making.link("router", making.gateway.url or "")


MAKERS: Mapping[str, Callable[[Making], Awaitable[Driver]]] = {
    "dry_run": _dry_run,
    "verdict": _verdict,
    "webhook": _webhook,
    "haproxy": _haproxy,
    "file": _file,
    "litellm": _litellm,
    "kubernetes": _kubernetes,
    "apisix": _apisix,
    "kong": _kong,
    "vllm_router": _vllm_router,
    "sglang_router": _sglang_router,
}
"""Who makes which driver; every one that comes with quantwatch stands here."""
