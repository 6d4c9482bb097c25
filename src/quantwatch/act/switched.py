"""What drivers share whose gateway lists its nodes and has a switch for each: look, write down, switch, look again.

A node that somebody else switched off is left alone: it would come back by an order of ours that never took it out.
What is switched off is written down before it is, together with what must come back.
"""

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quantwatch.act.admin_api import AdminApi
from quantwatch.act.contract import Abilities, Notes, Seen, Unanswered
from quantwatch.act.in_turn import InTurn
from quantwatch.act.router import Note, note_of
from quantwatch.errors import GatewayError, GatewayRefused, StoreError
from quantwatch.flow.decision import Action, Order

NAMED = 12
"""How many known nodes a message names."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node as its gateway lists it. out: switched off. able: takes requests as far as the gateway knows.

    fields: what must be given again when it comes back.
    """

    name: str
    out: bool
    able: bool = True
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes that share the requests for one model. mine: the order's own, None where it is not among them."""

    mine: Member | None
    others: tuple[Member, ...]


class Switched(InTurn):
    """A gateway with an admin API; every order begins with what it lists."""

    name: str
    abilities: Abilities = Abilities(reads_back=True, proven=False, calls=True)

    def __init__(self, api: AdminApi, *, notes: Notes) -> None:
        super().__init__()
        self._api = api
        self._notes = notes

    @abstractmethod
    async def _group(self, order: Order) -> Group:
        """The order's node and those beside it. Raises GatewayError; nothing has been changed then."""

    @abstractmethod
    async def _switch(self, order: Order, group: Group, fields: Mapping[str, Any]) -> str:
        """Switch the node as ordered; what was answered. Raises Unanswered or GatewayRefused.

        fields: what must come back with it; empty where nothing is known of that.
        """

    async def _look_and_do(self, order: Order) -> str:
        group = await self._group(order)
        mine = self._listed(order, group)
        try:
            if order.action is Action.ISOLATE:
                return await self._isolate(order, group, mine)
            return await self._release(order, group, mine)
        except StoreError as exc:
            said = f"nothing was sent, because what is to come back could not be written down or read: {exc}"
            raise Unanswered(said, arrived=False) from exc

    async def observe(self, order: Order) -> Seen:
        """What the list says of the order's node, as far as it says anything."""
        try:
            mine = (await self._group(order)).mine
        except GatewayError:
            return Seen.UNKNOWN
        if mine is None:
            return Seen.UNKNOWN
        if mine.out:
            return Seen.ISOLATED
        still_ill = order.action is Action.RELEASE and not mine.able
        return Seen.UNKNOWN if still_ill else Seen.ROUTABLE

    async def _isolate(self, order: Order, group: Group, mine: Member) -> str:
        if mine.out:
            if await self._note(order.node) is None:
                raise GatewayRefused(
                    f"{self._api.name} has {order.node} switched off already, and not by quantwatch; nothing was done"
                )
            return f"{self._api.name} has {order.node} switched off already"
        if not any(one.able and not one.out for one in group.others):
            more = f" ({len(group.others)} more are listed, none of which takes any)" if group.others else ""
            raise GatewayRefused(
                f"{order.node} is the last one at {self._api.name} that takes its requests{more}; it stays in traffic"
            )
        await self._notes.keep(self._key(order.node), Note(order.decision, mine.fields).text())
        return await self._switch(order, group, mine.fields)

    async def _release(self, order: Order, group: Group, mine: Member) -> str:
        if not mine.out:
            return f"{self._api.name} has {order.node} in traffic already"
        note = await self._note(order.node)
        said = await self._switch(order, group, note.fields if note is not None else {})
        await self._forget(order.node)
        return said

    async def _forget(self, node: str) -> None:
        """It is back; a note that stays behind would only say that we took it out once."""
        try:
            await self._notes.keep(self._key(node), json.dumps(None))
        except StoreError:
            return

    def _listed(self, order: Order, group: Group) -> Member:
        if group.mine is not None:
            return group.mine
        raise GatewayRefused(
            f"{self._api.name} does not list {order.node}, so nothing was done. It lists: {known(group.others)}. The "
            "target's gateway_name must be one of these, letter for letter"
        )

    async def _note(self, node: str) -> Note | None:
        return note_of(await self._notes.kept(self._key(node)))

    def _key(self, node: str) -> str:
        return f"{self.name} {node}"


def known(members: Sequence[Member]) -> str:
    """Some names of a list, for a message."""
    return ", ".join(sorted(one.name for one in members)[:NAMED]) or "nobody"


def grouped(node: str, members: Sequence[Member]) -> Group:
    """A node and all the others."""
    mine = next((one for one in members if one.name == node), None)
    return Group(mine, tuple(one for one in members if one is not mine))
