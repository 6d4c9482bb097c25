"""A user's traffic: one short request after another through the gateway, and who answered each."""

import asyncio
import itertools
import json
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx

from quantwatch.demo.gateway import ANSWERED_BY

PAUSE_SECONDS = 1.5
TOKENS = 6

QUESTIONS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "The largest planet of the solar system is",
    "A triangle has three sides and",
    "The opposite of cold is",
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one request. at: monotonic seconds when it was sent. by: who answered, as the gateway says."""

    at: float
    seconds: float
    by: str
    question: str
    text: str
    error: str | None = None


@dataclass(slots=True)
class Client:
    """Asks the gateway until cancelled. transport: the network, None for the real one."""

    url: str
    model: str
    transport: httpx.AsyncBaseTransport | None = None
    pause_seconds: float = PAUSE_SECONDS
    replies: list[Reply] = field(default_factory=list)

    @property
    def failed(self) -> list[Reply]:
        """Requests that were not answered as they should."""
        return [one for one in self.replies if one.error is not None]

    @property
    def by(self) -> dict[str, int]:
        """How many good answers came from whom."""
        return dict(Counter(one.by for one in self.replies if one.error is None))

    def after(self, at: float) -> list[Reply]:
        """What was asked since then."""
        return [one for one in self.replies if one.at >= at]

    async def run(self) -> None:
        """Ask, wait, ask."""
        async with httpx.AsyncClient(timeout=180.0, trust_env=False, transport=self.transport) as http:
            for question in itertools.cycle(QUESTIONS):
                self.replies.append(await self._ask(http, question))
                await asyncio.sleep(self.pause_seconds)

    async def _ask(self, http: httpx.AsyncClient, question: str) -> Reply:
        began, by = time.monotonic(), "nobody"
        body = {"model": self.model, "prompt": question, "max_tokens": TOKENS, "temperature": 0}
        try:
            answer = await http.post(f"{self.url}/v1/completions", json=body)
            by = answer.headers.get(ANSWERED_BY, "nobody")
            answer.raise_for_status()
            text, error = str(answer.json()["choices"][0]["text"]), None
        except httpx.HTTPError as exc:
            text, error = "", str(exc) or repr(exc)
        except (json.JSONDecodeError, KeyError, IndexError, TypeError) as exc:
            text, error = "", f"no completion in the answer: {exc!r}"
        return Reply(began, time.monotonic() - began, by, question, text, error)
