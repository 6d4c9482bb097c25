"""Apache APISIX by its Admin API (v3, and v2's replies): the weight of a node in an upstream.

Exchange: `GET /apisix/admin/upstreams/ID` gives the upstream under `value` (v2: under `node.value`), its `nodes` as
`{"HOST:PORT": weight}` or as a list of `{host, port, weight}`. `PATCH /apisix/admin/upstreams/ID` merges: one weight in
the first form, but a list is replaced whole, so what was read goes back with it. Both with `X-API-KEY`. APISIX itself
compares etcd's revision while it patches: who comes second gets 503 and comes again. A yes means that etcd has it; each
gateway hears of it afterwards, and by apache/apisix#12690 may use the node for a while longer.
"""

import json
import shlex
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from quantwatch.act.switched import Group, Member, grouped
from quantwatch.act.weighted import Weighted, weighed, weighs
from quantwatch.errors import GatewayRefused
from quantwatch.flow.decision import Action, Order

PORT = 80
"""Of a node without one, as APISIX has it for http."""

ADVICE = {
    400: "Look at gateway.upstream and the upstream itself; it refuses what its schema does not know",
    401: "Look at gateway.api_key; APISIX asks for one that may write, deployment.admin.admin_key with role admin",
    403: "Look at gateway.api_key and at deployment.admin.allow_admin of APISIX",
    404: "Look at gateway.url, and at the upstream in gateway.upstream or the target's gateway_name; a standalone "
    "APISIX has no Admin API",
    405: "Look at gateway.url and gateway.driver: is it the Admin API?",
}

Nodes = dict[str, int] | list[dict[str, Any]]


class ApisixDriver(Weighted):
    """A driver for one APISIX. A gateway_name is `HOST:PORT` or `UPSTREAM/HOST:PORT`."""

    name = "apisix"

    async def by_hand(self, order: Order) -> str:
        """The order as one line in a shell; what weight a node had is not told."""
        upstream, address = self._place(order)
        weight = "0" if order.action is Action.ISOLATE else "WEIGHT"
        body = shlex.quote(json.dumps({"nodes": {address: weight}}).replace(f'"{weight}"', weight))
        return f"curl -H 'X-API-KEY: ...' -X PATCH '{self._api.link.url}{_path(upstream)}' -d {body}"

    async def _group(self, order: Order) -> Group:
        upstream, address = self._place(order)
        return grouped(address, _members(await self._nodes(upstream)))

    async def _weigh(self, upstream: str, address: str, weight: int) -> str:
        nodes = await self._nodes(upstream)
        new: Nodes = {address: weight}
        if isinstance(nodes, list):
            new = [{**one, "weight": weight} if _address(one) == address else one for one in nodes]
        return self._api.yes(await self._api.change("PATCH", _path(upstream), {"nodes": new}))

    async def _nodes(self, upstream: str) -> Nodes:
        """The nodes as APISIX has them. Raises GatewayError."""
        told = await self._api.read(_path(upstream))
        inner = told.get("node", told) if isinstance(told, dict) else {}
        value = inner.get("value") if isinstance(inner, dict) else None
        if not isinstance(value, dict):
            raise GatewayRefused(f"{self._api.name} answered what is no upstream. {ADVICE[405]}")
        if "nodes" not in value:
            raise GatewayRefused(
                f"{self._api.name} looks up the nodes of upstream {upstream} by service discovery, which has the last "
                "word on them. Take the node out there"
            )
        nodes = value["nodes"]
        if not _readable(nodes):
            raise GatewayRefused(f"{self._api.name} lists nodes of upstream {upstream} that cannot be read")
        return nodes  # type: ignore[no-any-return]  # as was just seen


def _path(upstream: str) -> str:
    return f"/apisix/admin/upstreams/{quote(upstream, safe='')}"


def _readable(nodes: Any) -> bool:
    if isinstance(nodes, dict):
        return all(weighs(weight) for weight in nodes.values())
    return isinstance(nodes, list) and all(_entry(one) for one in nodes)


def _entry(one: Any) -> bool:
    if not isinstance(one, dict) or not isinstance(one.get("host"), str):
        return False
    port = one.get("port", PORT)
    return weighs(one.get("weight")) and isinstance(port, int) and not isinstance(port, bool)


def _address(one: dict[str, Any]) -> str:
    return f"{one['host']}:{one.get('port', PORT)}"


def _members(nodes: Nodes) -> Sequence[Member]:
    if isinstance(nodes, dict):
        return [weighed(name, weight) for name, weight in nodes.items()]
    top = max((one.get("priority", 0) for one in nodes), default=0)
    return [weighed(_address(one), one["weight"], able=one.get("priority", 0) == top) for one in nodes]
