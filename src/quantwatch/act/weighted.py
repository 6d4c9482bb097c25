"""What APISIX and Kong share: an upstream's nodes have weights, and one of weight 0 gets no new requests."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from quantwatch.act.admin_api import AdminApi
from quantwatch.act.contract import Notes
from quantwatch.act.switched import Group, Member, Switched
from quantwatch.config.upstreams import member_of
from quantwatch.errors import GatewayRefused
from quantwatch.flow.decision import Action, Order


class Weighted(Switched):
    """A gateway of upstreams. upstream: of nodes that name none."""

    def __init__(self, api: AdminApi, *, notes: Notes, upstream: str | None = None) -> None:
        super().__init__(api, notes=notes)
        self._upstream = upstream

    @abstractmethod
    async def _weigh(self, upstream: str, address: str, weight: int) -> str:
        """Give a node a weight; what was answered. Raises Unanswered or GatewayRefused."""

    def _place(self, order: Order) -> tuple[str, str]:
        """The upstream and address of an order's node."""
        try:
            return member_of(order.node, self._upstream)
        except ValueError as exc:
            raise GatewayRefused(f"{exc}. Look at the target's gateway_name") from None

    async def _switch(self, order: Order, group: Group, fields: Mapping[str, Any]) -> str:
        weight = 0 if order.action is Action.ISOLATE else self._weight(order, group, fields)
        upstream, address = self._place(order)
        return f"{await self._weigh(upstream, address, weight)} to weight {weight}"

    def _weight(self, order: Order, group: Group, fields: Mapping[str, Any]) -> int:
        """The weight that a node comes back with: its own of before, or the least of the others'."""
        noted: object = fields.get("weight")
        if isinstance(noted, int) and weighs(noted) and noted > 0:
            return noted
        others = [one.fields["weight"] for one in group.others if one.fields.get("weight", 0) > 0]
        if not others:
            raise GatewayRefused(
                f"which weight {order.node} had at {self._api.name} is not known any more, and no other node shows "
                "one; set it there by hand"
            )
        return int(min(others))


def weighs(value: object) -> bool:
    """Whether a value of JSON is a weight."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def weighed(name: str, weight: int, *, able: bool = True) -> Member:
    """A node of an upstream."""
    return Member(name, weight == 0, able and weight > 0, {"weight": weight})
