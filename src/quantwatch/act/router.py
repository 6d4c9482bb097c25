"""What the drivers of both routers share: look at the list, call, and tell from the list how a node stands.

A router answers yes to much that it does not do, and a node that it never listed is as absent as one that was taken
out. So an isolation begins with the list, and what was taken out is written down before it is: only that proves later
that a node is absent because of us.
"""

import contextlib
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quantwatch.act.answers import no, no_reply
from quantwatch.act.contract import Abilities, Notes, Seen, Unanswered
from quantwatch.act.in_turn import InTurn
from quantwatch.act.workers import REGULAR, Worker, entries_of, spelled_otherwise, workers_of
from quantwatch.clock import Clock
from quantwatch.errors import GatewayError, GatewayRefused, ProbeError, StoreError
from quantwatch.flow.decision import Action, Order
from quantwatch.net import Answer, Link

QUEUED_SECONDS = 60.0
"""How long a router that queues its calls may go on listing who is to leave."""

NAMED = 12
"""How many known workers a message names."""

ADVICE = {
    401: "Look at gateway.api_key",
    403: "Look at gateway.api_key; the router asks for a key that may administer it",
    404: "Look at gateway.url and gateway.driver: is it this router?",
    405: "Look at gateway.url and gateway.driver: is it this router?",
}


@dataclass(frozen=True, slots=True)
class Note:
    """What was taken out. decision: by which. fields: what its entry held that must come back with it."""

    decision: str
    fields: Mapping[str, Any]

    def text(self) -> str:
        """As it is kept."""
        return json.dumps({"decision": self.decision, "fields": dict(self.fields)})


def note_of(text: str | None) -> Note | None:
    """A kept note; None without one, or when it cannot be read."""
    try:
        told = json.loads(text or "")
        return Note(str(told["decision"]), dict(told["fields"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


class Router(InTurn):
    """A router that keeps its workers in memory and is told to drop and to add them."""

    name: str
    abilities: Abilities = Abilities(reads_back=True, proven=True, calls=True)

    def __init__(self, link: Link, *, clock: Clock, notes: Notes) -> None:
        super().__init__()
        self._link = link
        self._clock = clock
        self._notes = notes
        self._leaving: dict[str, float] = {}

    @abstractmethod
    async def _remove(self, order: Order, entries: Sequence[Worker]) -> str:
        """Have the node dropped; what was answered. Raises Unanswered or GatewayRefused."""

    @abstractmethod
    async def _add(self, order: Order, fields: Mapping[str, Any]) -> str:
        """Have the node added; what was answered. Raises Unanswered or GatewayRefused."""

    @abstractmethod
    def _to_restore(self, worker: Worker) -> dict[str, Any]:
        """What an entry holds that must be given again when its node comes back."""

    @abstractmethod
    def _line(self, order: Order, fields: Mapping[str, Any]) -> str:
        """The order as arguments of curl, from the method on."""

    async def names(self) -> tuple[str, ...]:
        """Every worker's URL, sorted. Raises GatewayError."""
        return tuple(sorted(one.url for one in await self._listed()))

    async def present(self, nodes: Sequence[str]) -> frozenset[str]:
        """Those that are listed, letter for letter, and called healthy. Raises GatewayError."""
        listed = await self._listed()
        return frozenset(node for node in nodes if any(one.healthy for one in entries_of(node, listed)))

    async def by_hand(self, order: Order) -> str:
        """The order as one line in a shell."""
        note = None
        with contextlib.suppress(StoreError):
            note = await self._note(order.node)
        key = "-H 'Authorization: Bearer ...' " if self._link.endpoint.api_key else ""
        return f"curl {key}-X {self._line(order, note.fields if note is not None else {})}"

    async def _look_and_do(self, order: Order) -> str:
        try:
            listed = await self._listed()
            entries = entries_of(order.node, listed)
            if order.action is Action.ISOLATE:
                return await self._isolate(order, entries, listed)
            return await self._release(order, entries, listed)
        except StoreError as exc:
            said = f"nothing was sent, because what is to come back could not be written down or read: {exc}"
            raise Unanswered(said, arrived=False) from exc

    async def observe(self, order: Order) -> Seen:
        """What the list says of the order's node, as far as it says anything."""
        try:
            listed = await self._listed()
            note = await self._note(order.node)
        except (GatewayError, StoreError):
            return Seen.UNKNOWN
        return _seen(order, listed, note)

    async def _isolate(self, order: Order, entries: Sequence[Worker], listed: Sequence[Worker]) -> str:
        if not entries:
            return await self._gone(order, listed)
        self._refuse_what_cannot_come_back(order, entries)
        self._refuse_the_last(order, entries, listed)
        note = Note(order.decision, self._to_restore(entries[0]))
        await self._notes.keep(self._key(order.node), note.text())
        self._leaving[order.node] = self._clock.monotonic() + QUEUED_SECONDS
        try:
            return await self._remove(order, entries)
        except GatewayRefused:
            del self._leaving[order.node]
            raise

    async def _gone(self, order: Order, listed: Sequence[Worker]) -> str:
        """Not on the list: done only where this very order took it out."""
        note = await self._note(order.node)
        if note is not None and note.decision == order.decision and listed:
            return f"{self._link.name} does not list {order.node} any more"
        self._refuse_a_stranger(order, listed)
        known = ", ".join(sorted(one.url for one in listed)[:NAMED]) or "nobody"
        raise GatewayRefused(
            f"{self._link.name} does not list {order.node}, so nothing was done. It lists: {known}. The target's "
            "gateway_name must be one of these, letter for letter"
        )

    async def _release(self, order: Order, entries: Sequence[Worker], listed: Sequence[Worker]) -> str:
        if entries:
            return f"{self._link.name} lists {order.node} already"
        self._refuse_a_stranger(order, listed)
        self._leaving.pop(order.node, None)
        note = await self._note(order.node)
        return await self._add(order, note.fields if note is not None else {})

    def _refuse_a_stranger(self, order: Order, listed: Sequence[Worker]) -> None:
        """One node under two spellings is two workers to a router."""
        other = spelled_otherwise(order.node, listed)
        if other is not None:
            raise GatewayRefused(
                f"{self._link.name} does not list {order.node}, but {other}, and takes them for two; nothing was done. "
                f"Give the target gateway_name: {other}"
            )

    def _refuse_what_cannot_come_back(self, order: Order, entries: Sequence[Worker]) -> None:
        kind = next((one.kind for one in entries if one.kind != REGULAR), None)
        if kind is not None:
            raise GatewayRefused(
                f"{self._link.name} lists {order.node} as a worker of kind {kind}, which could not be brought back as "
                "it was; nothing was done"
            )

    def _refuse_the_last(self, order: Order, entries: Sequence[Worker], listed: Sequence[Worker]) -> None:
        model = entries[0].model
        others = [one for one in listed if one not in entries and one.kind == REGULAR and one.model == model]
        leaving = self._still_listed(listed)
        if not any(one.healthy and one not in leaving for one in others):
            ill = f" ({len(others)} more are listed as unhealthy, or are leaving)" if others else ""
            raise GatewayRefused(
                f"{order.node} is the last healthy worker of its model that {self._link.name} lists{ill}; it stays in "
                "traffic"
            )

    def _still_listed(self, listed: Sequence[Worker]) -> list[Worker]:
        """Who is listed and was told to leave a moment ago."""
        now = self._clock.monotonic()
        return [one for node, until in self._leaving.items() if now < until for one in entries_of(node, listed)]

    async def _listed(self) -> tuple[Worker, ...]:
        """The list now. Raises GatewayError; nothing has been changed then."""
        try:
            answer = await self._link.order("GET", "/workers")
        except ProbeError as exc:
            trouble = self._silence(exc)
            raise Unanswered(str(trouble), arrived=False) if isinstance(trouble, Unanswered) else trouble from exc
        listed = workers_of(answer)
        if listed is not None:
            return listed
        if answer.status == 200:
            raise GatewayRefused(f"{self._link.name} answered what is no list of workers. {ADVICE[404]}")
        trouble = self._no(answer)
        if isinstance(trouble, Unanswered):
            raise Unanswered(str(trouble), arrived=False, retry_after=trouble.retry_after)
        raise trouble

    async def _send(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Mapping[str, Any] | None = None
    ) -> Answer:
        try:
            return await self._link.order(method, path, query=query, body=body)
        except ProbeError as exc:
            raise self._silence(exc) from exc

    def _silence(self, exc: ProbeError) -> Unanswered | GatewayRefused:
        key = self._link.endpoint.api_key
        return no_reply(self._link.name, exc, secrets=[key] if key else [])

    def _no(self, answer: Answer) -> Unanswered | GatewayRefused:
        return no(self._link.name, answer, now=self._clock.now(), advice=ADVICE)

    def _yes(self, answer: Answer) -> str:
        """The answer in a sentence. Raises Unanswered or GatewayRefused where it is not yes."""
        if not 200 <= answer.status < 300:
            raise self._no(answer)
        return f"{self._link.name} answered {answer.status}"

    async def _note(self, node: str) -> Note | None:
        return note_of(await self._notes.kept(self._key(node)))

    def _key(self, node: str) -> str:
        return f"{self.name} {node}"


def _seen(order: Order, listed: Sequence[Worker], note: Note | None) -> Seen:
    """How the node of an order, or of a mere question, stands by the list."""
    entries = entries_of(order.node, listed)
    if entries:
        still_ill = order.action is Action.RELEASE and not all(one.healthy for one in entries)
        return Seen.UNKNOWN if still_ill else Seen.ROUTABLE
    if not listed or spelled_otherwise(order.node, listed) is not None:
        return Seen.UNKNOWN  # a router that has just started lists nobody; another spelling may get traffic
    if order.action is Action.ISOLATE and order.decision:
        ours = note is not None and note.decision == order.decision
        return Seen.ISOLATED if ours else Seen.UNKNOWN
    return Seen.ISOLATED
