"""What every channel for notices promises, and how one POST to it is made and understood."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from urllib.parse import urlsplit

from quantwatch.act.answers import COME_AGAIN, seconds_of, tls_fault
from quantwatch.clock import Clock
from quantwatch.errors import Misconfigured, ProbeError
from quantwatch.flow.notice import Notice, Severity
from quantwatch.net import Answer, Link

LONGEST_ANSWER = 80
"""Characters of a refusal's own words that are repeated."""

LEAST_SECRET = 6
"""Characters; a shorter part of a path is no secret, and to mask it would only spoil sentences."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of one try. said: a sentence without secrets. again: whether the same notice may be sent once more.

    retry_after: seconds that the channel asks to wait.
    """

    ok: bool
    said: str
    again: bool = False
    retry_after: float | None = None


class Channel(Protocol):
    """One kind of channel. repeats: whether what stands is sent over and over, or the channel takes it for over."""

    kind: str
    repeats: bool

    async def send(self, notices: Sequence[Notice]) -> Reply:
        """Tell these once, in one call where the channel can take several. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A channel with what it wants to hear. pools: None for all. give_up_seconds: how long a notice is tried again."""

    name: str
    channel: Channel
    min_severity: Severity
    pools: frozenset[str] | None
    give_up_seconds: float

    def wants(self, notice: Notice) -> bool:
        """Whether the channel is to be told. What is about no pool, such as the baseline, concerns everybody."""
        matter = notice.matter
        ours = self.pools is None or matter.pool is None or matter.pool in self.pools
        return ours and matter.severity.rank >= self.min_severity.rank


class Line:
    """The way to one channel: a POST, and what its answer means. Nothing that it says holds a secret.

    secrets: what must never be repeated beside the address itself, which may be one.
    """

    def __init__(self, link: Link, clock: Clock, *, secrets: Sequence[str] = ()) -> None:
        self._link = link
        self.clock = clock
        self._hidden = _hidden(link.endpoint.url, [*secrets, *link.endpoint.headers.values()], link.endpoint.api_key)

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Send bytes once. Never raises."""
        try:
            answer = await self._link.send(body, headers)
        except ProbeError as exc:
            final = isinstance(exc, Misconfigured) or tls_fault(exc)
            return Reply(ok=False, said=self._told(exc.reason), again=not final)
        if 200 <= answer.status < 300:
            return Reply(ok=True, said=f"answered {answer.status}")
        return self._no(answer, self.clock.now())

    def _no(self, answer: Answer, now: datetime) -> Reply:
        again = answer.status in COME_AGAIN or answer.status >= 500
        told = answer.body[:400].decode("utf-8", "replace")
        words = " ".join(re.sub(r"[^\w.,:'-]+", " ", told, flags=re.ASCII).split())
        said = f"answered {answer.status}" + (f": {words[:LONGEST_ANSWER]}" if words else "")
        return Reply(ok=False, said=self._told(said), again=again, retry_after=seconds_of(answer.retry_after, now))

    def _told(self, text: str) -> str:
        for secret in self._hidden:
            text = text.replace(secret, "...")
        return text


def _hidden(url: str, secrets: Sequence[str], api_key: str | None) -> list[str]:
    """What is masked, the longest first: an address of Slack carries its secret in the path."""
    parts = urlsplit(url)
    words = re.split(r"[/?&=]", f"{parts.path}?{parts.query}")
    found = {url, f"{parts.path}?{parts.query}", parts.path, *words, *secrets, api_key or ""}
    return sorted((one for one in found if len(one) >= LEAST_SECRET), key=len, reverse=True)
