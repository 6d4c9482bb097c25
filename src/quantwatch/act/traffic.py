"""Marked requests through the gateway after an isolation: does the node that is out still answer?

A gateway may say that a node is out and go on sending to it. Where it names in a header who gave an answer, a few tiny
completions tell. They can only contradict: that nobody met the node in so many requests proves nothing by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

from quantwatch.act.contract import Driver, Seen
from quantwatch.errors import ProbeError
from quantwatch.flow.decision import Order
from quantwatch.net import Answer, Link

MARK = "X-Quantwatch-Probe"
"""Header of every such request; its value is the decision's id."""

USER = "quantwatch-probe"
"""The field `user` of every such request, which vLLM and gateways may log."""


class Met(StrEnum):
    """Whom the marked requests have met. UNKNOWN: the answers do not tell."""

    NODE = "node"
    OTHERS = "others"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Word:
    """What the marked requests tell. said: a sentence without its end, for an order's detail."""

    met: Met
    said: str


class Traffic(Protocol):
    """Requests through the gateway."""

    async def ask(self, order: Order) -> Word:
        """Whether the order's node still answers. Never raises."""
        ...


@runtime_checkable
class Checked(Protocol):
    """A driver whose isolations are held against the traffic. traffic: None where they are not."""

    traffic: Traffic | None


class Probed:
    """A driver with requests through its gateway beside it."""

    def __init__(self, inner: Driver, traffic: Traffic | None) -> None:
        self.name, self.abilities = inner.name, inner.abilities
        self.traffic = traffic
        self._inner = inner

    async def call(self, order: Order) -> str:
        """Pass the order on."""
        return await self._inner.call(order)

    async def observe(self, order: Order) -> Seen:
        """Pass the question on."""
        return await self._inner.observe(order)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, how often, and which header of the answer names who gave it."""

    model: str
    node_header: str
    path: str = "/v1/completions"
    requests: int = 8

    def body(self) -> dict[str, Any]:
        """As small as a completion can be."""
        return {"model": self.model, "prompt": "1", "max_tokens": 1, "temperature": 0, "user": USER}


class TrafficProbe:
    """A gateway as its clients reach it. names: by target, and for the baseline, what a gateway may call it."""

    def __init__(self, link: Link, question: Question, names: Mapping[str, frozenset[str]]) -> None:
        self._link = link
        self._question = question
        self._names = names

    async def ask(self, order: Order) -> Word:
        """Send one request after another; the first answer by the isolated node ends it, and so does a failure."""
        count = self._question.requests
        for number in range(1, count + 1):
            try:
                answer = await self._once(order)
            except ProbeError as exc:
                return Word(Met.UNKNOWN, f"marked requests tell nothing: {exc}")
            told = answer.headers.get(self._question.node_header.lower())
            met = Met.UNKNOWN if told is None else self._met(order.target, told)
            if met is Met.NODE:  # whatever it answered: it was asked
                return Word(met, f"marked request {number} of {count} was answered by {told}")
            if answer.status != 200 or met is Met.UNKNOWN:
                return Word(Met.UNKNOWN, f"marked requests tell nothing: {self._odd(answer, told)}")
        return Word(Met.OTHERS, f"{count} marked requests were answered by others")

    async def _once(self, order: Order) -> Answer:
        # A gateway that balances connections sends every request of one to the same node.
        headers = {MARK: order.decision, "Connection": "close"}
        return await self._link.post(self._question.path, self._question.body(), headers=headers)

    def _odd(self, answer: Answer, told: str | None) -> str:
        if answer.status != 200:
            return f"{'the gateway' if told is None else repr(told[:80])} answered {answer.status}"
        if told is None:
            return f"no header {self._question.node_header} in the answer"
        return f"{told[:80]!r} answered, which names no single target"

    def _met(self, target: str, told: str) -> Met:
        """Who stands in the header. A gateway that tried several in turn lists them; the isolated one may be among."""
        whose = [self._whose(one) for one in told.lower().split(",")]
        if {target} in whose:
            return Met.NODE
        return Met.UNKNOWN if any(len(one) != 1 for one in whose) else Met.OTHERS

    def _whose(self, name: str) -> set[str]:
        return {target for target, names in self._names.items() if name.strip() in names}


def names_of(name: str, gateway_name: str | None, url: str) -> frozenset[str]:
    """What a gateway may call a node in a header: its names, without their backend, its URL, its HOST:PORT; small."""
    given = [one.strip() for one in (gateway_name or "").split(",") if one.strip()]
    urls = [one for one in (*given, url) if "://" in one]
    servers = [one.rpartition("/")[2] for one in given if "://" not in one]
    whole = [name, *given, url.rstrip("/"), *servers, *(urlsplit(one).netloc for one in urls)]
    return frozenset(one.lower() for one in whole)
