"""JSON over a gateway's admin API: what its replies, and its silence, mean for an order."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from quantwatch.act.answers import no, no_reply
from quantwatch.act.contract import Unanswered
from quantwatch.clock import Clock
from quantwatch.errors import GatewayRefused, InputError, ProbeError
from quantwatch.net import Answer, Link

LONGEST_WORDS = 200


@dataclass(frozen=True, slots=True)
class AdminApi:
    """One gateway's admin API. advice: by status, for the person who reads a refusal.

    credentials: the headers that let us in, asked for at every request, so that a key or token that is replaced on disk
    counts at once. Raises InputError where it cannot be had.
    """

    link: Link
    clock: Clock
    advice: Mapping[int, str]
    credentials: Callable[[], Mapping[str, str]] = dict

    @property
    def name(self) -> str:
        """How messages call the gateway."""
        return self.link.name

    async def read(self, path: str, *, query: Mapping[str, str] | None = None) -> Any:
        """The JSON of a GET. Raises Unanswered, which never arrived: nothing was changed; or GatewayRefused."""
        try:
            answer = await self._send("GET", path, query=query)
        except Unanswered as exc:
            raise Unanswered(str(exc), arrived=False) from exc
        if answer.status != 200:
            raise unchanged(self.no(answer))
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            raise GatewayRefused(f"{self.name} answered what is no JSON. {self._where}") from None

    async def change(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any],
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        """What came back to a request that changes something, whatever it says. Raises Unanswered or GatewayRefused."""
        return await self._send(method, path, query=query, body=body, headers={"Content-Type": content_type})

    def yes(self, answer: Answer) -> str:
        """An answer in a sentence. Raises Unanswered or GatewayRefused where it is not yes."""
        if not 200 <= answer.status < 300:
            raise self.no(answer)
        return f"{self.name} answered {answer.status}"

    def no(self, answer: Answer) -> Unanswered | GatewayRefused:
        """What an answer that is not yes means, with the gateway's own words."""
        words = self._without_key(_words(answer))[:LONGEST_WORDS].rstrip(". ")
        told = f"{answer.status} ({words})" if words else str(answer.status)
        meant = no(self.name, answer, now=self.clock.now(), advice=self.advice)
        said = str(meant).replace(f"answered {answer.status}", f"answered {told}", 1)
        if isinstance(meant, Unanswered):
            return Unanswered(said, arrived=meant.arrived, retry_after=meant.retry_after)
        return GatewayRefused(said)

    async def _send(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **request: Any
    ) -> Answer:
        try:
            key = self.credentials()
        except InputError as exc:
            raise GatewayRefused(f"{self.name}: nothing was sent, because {exc}") from exc
        try:
            return await self.link.order(method, path, headers={**key, **(headers or {})}, **request)
        except ProbeError as exc:
            raise no_reply(self.name, exc, secrets=_secrets(key)) from exc

    def _without_key(self, said: str) -> str:
        """What a gateway said; some repeat the key that they refuse."""
        try:
            secrets = _secrets(self.credentials())
        except InputError:
            return ""
        for secret in secrets:
            said = said.replace(secret, "...")
        return said

    @property
    def _where(self) -> str:
        return self.advice.get(404, "Look at gateway.url")


def unchanged(trouble: Unanswered | GatewayRefused) -> Unanswered | GatewayRefused:
    """The same trouble, where it is certain that nothing was changed."""
    if isinstance(trouble, Unanswered):
        return Unanswered(str(trouble), arrived=False, retry_after=trouble.retry_after)
    return trouble


def _secrets(key: Mapping[str, str]) -> list[str]:
    return [word for value in key.values() for word in (value, value.removeprefix("Bearer ")) if word]


def _words(answer: Answer) -> str:
    """What a gateway says of itself in a refusal, on one line; empty where it says nothing that can be read."""
    try:
        told = json.loads(answer.body)
    except (ValueError, RecursionError):
        return ""
    for key in ("detail", "error", "message", "error_msg"):
        if isinstance(told, dict) and key in told:
            told = told[key]
    if not isinstance(told, str):
        return ""
    return " ".join("".join(one if one.isprintable() else " " for one in told).split())
