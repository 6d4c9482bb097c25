"""Settings of notifications -> channels."""

import contextlib
from collections.abc import Sequence
from urllib.parse import urlsplit

from quantwatch.act.alertmanager import PATH, Alertmanager
from quantwatch.act.channel import Channel, Line, Subscriber
from quantwatch.act.hook import Hook
from quantwatch.act.slack import Slack
from quantwatch.config.notifications import ChannelSettings
from quantwatch.config.secrets import SecretRef
from quantwatch.errors import InputError
from quantwatch.net import MEBIBYTE, Endpoint, Limits, Link
from quantwatch.wiring.tools import Tools, certificates


async def subscribers(
    settings: Sequence[ChannelSettings], stack: contextlib.AsyncExitStack, tools: Tools
) -> dict[str, Subscriber]:
    """Every configured channel by its name, connected for as long as the stack lives.

    Raises InputError for a secret that is missing or cannot be used, naming its place, never its value.
    """
    return {one.name: await _subscriber(one, stack, tools) for one in settings}


async def _subscriber(one: ChannelSettings, stack: contextlib.AsyncExitStack, tools: Tools) -> Subscriber:
    return Subscriber(
        one.name,
        await _channel(one, stack, tools),
        one.min_severity,
        pools=None if one.pools is None else frozenset(one.pools),
        give_up_seconds=one.give_up_after,
    )


async def _channel(one: ChannelSettings, stack: contextlib.AsyncExitStack, tools: Tools) -> Channel:
    secret = one.signing_secret.resolve() if one.signing_secret is not None else None
    line = await _line(one, stack, tools, secrets=[secret] if secret is not None else [])
    if one.kind == "alertmanager":
        return Alertmanager(line, runbook_url=one.runbook_url)
    if one.kind == "slack":
        return Slack(line, runbook_url=one.runbook_url)
    return Hook(line, name=one.name, signing_secret=secret, runbook_url=one.runbook_url)


async def _line(
    one: ChannelSettings, stack: contextlib.AsyncExitStack, tools: Tools, *, secrets: Sequence[str]
) -> Line:
    reach = Limits(connect_seconds=one.timeout, total_seconds=one.timeout, response_bytes=MEBIBYTE)
    headers = {key: value.resolve() if isinstance(value, SecretRef) else value for key, value in one.headers.items()}
    there = Endpoint(
        name=one.name,
        url=_address(one),
        api_key=one.api_key.resolve() if one.api_key is not None else None,
        headers=headers,
        **certificates(one.tls),
    )
    link = await stack.enter_async_context(Link(there, reach, transport=tools.transport))
    return Line(link, tools.clock, secrets=secrets)


def _address(one: ChannelSettings) -> str:
    """Where to post. Raises InputError for a secret that is no URL, without repeating it."""
    url = one.address()
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise InputError(f"notifications {one.name}: what {one.url} holds is no URL of http or https")
    return url.rstrip("/") + PATH if one.kind == "alertmanager" else url
