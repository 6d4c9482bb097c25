"""Settings of a gateway -> its driver."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quantwatch.act.contract import Driver
from quantwatch.act.dry_run import DryRun
from quantwatch.act.file import file_driver
from quantwatch.act.haproxy import HaproxyDriver, Runtime
from quantwatch.act.sglang_router import SglangRouter
from quantwatch.act.traffic import Question, TrafficProbe, names_of
from quantwatch.act.verdict import VerdictDriver
from quantwatch.act.vllm_router import VllmRouter
from quantwatch.act.webhook import WebhookDriver
from quantwatch.config.gateway import GatewaySettings
from quantwatch.config.haproxy import address_of
from quantwatch.config.schema import Settings
from quantwatch.flows.pools import BASELINE
from quantwatch.log import logger
from quantwatch.net import MEBIBYTE, Endpoint, Limits, Link
from quantwatch.wiring.tools import Tools, certificates

log = logger()


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
        wait = self.gateway.timeout
        reach = Limits(connect_seconds=wait, total_seconds=wait, response_bytes=MEBIBYTE)
        there = Endpoint(name=name, url=url, api_key=key, **certificates(self.gateway.tls))
        return await self.stack.enter_async_context(Link(there, reach, transport=self.tools.transport))


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
    return await MAKERS[settings.gateway.driver](Making(settings, stack, tools, isolated, folder))


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
    return made


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
    "vllm_router": _vllm_router,
    "sglang_router": _sglang_router,
}
"""Who makes which driver; every name that the configuration allows stands here."""
