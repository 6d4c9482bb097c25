"""Kong by its Admin API: the weight of a target in an upstream.

Exchange: `PATCH /upstreams/UPSTREAM/targets/HOST:PORT {"weight": 0}`. By the source, `GET` of a target of weight 0
answers 404 and `/targets` leaves it out, as if it had never been there: `GET /upstreams/UPSTREAM/targets/all` alone
tells. `GET /upstreams/UPSTREAM/health` says of the others HEALTHY, UNHEALTHY, HEALTHCHECKS_OFF or DNS_ERROR. Marking a
target `unhealthy` instead needs active checks (else 400) and is gone once a check passes. Without a database the Admin
API is read-only and answers 405.
"""

import json
import shlex
from typing import Any
from urllib.parse import quote

from quantwatch.act.switched import Group, grouped
from quantwatch.act.weighted import Weighted, weighed, weighs
from quantwatch.errors import GatewayRefused
from quantwatch.flow.decision import Action, Order

PAGE = "1000"
"""As many as Kong gives on one page; an upstream of more is not read."""

UNABLE = ("UNHEALTHY", "DNS_ERROR")

ADVICE = {
    400: "Look at the target's gateway_name and at Kong's log",
    401: "Look at gateway.api_key; it is sent as Kong-Admin-Token",
    403: "Look at gateway.api_key; its role must be allowed to change targets",
    404: "Look at gateway.url, and at the upstream in gateway.upstream or the target's gateway_name",
    405: "Without a database Kong's Admin API is read-only, as it is on a data plane: give gateway.url of the control "
    "plane, or change the declarative file by driver file",
}


class KongDriver(Weighted):
    """A driver for one Kong. A gateway_name is `HOST:PORT` or `UPSTREAM/HOST:PORT`."""

    name = "kong"

    async def by_hand(self, order: Order) -> str:
        """The order as one line in a shell; what weight a target had is not told."""
        weight = "0" if order.action is Action.ISOLATE else "WEIGHT"
        body = shlex.quote(json.dumps({"weight": weight}).replace(f'"{weight}"', weight))
        head = "-H 'Kong-Admin-Token: ...' -H 'Content-Type: application/json'"
        return f"curl {head} -X PATCH '{self._api.link.url}{_path(*self._place(order))}' -d {body}"

    async def _group(self, order: Order) -> Group:
        upstream, address = self._place(order)
        rows = await self._rows(f"/upstreams/{quote(upstream, safe='')}/targets/all")
        # Kong before 2.2 keeps what a target was before as rows of their own
        weights = {row["target"]: row["weight"] for row in sorted(rows, key=_since)}
        ill = await self._ill(upstream)
        return grouped(address, [weighed(name, one, able=name not in ill) for name, one in weights.items()])

    async def _weigh(self, upstream: str, address: str, weight: int) -> str:
        return self._api.yes(await self._api.change("PATCH", _path(upstream, address), {"weight": weight}))

    async def _ill(self, upstream: str) -> set[str]:
        """Targets that get nothing whatever their weight is; none where Kong does not tell, as a control plane."""
        try:
            rows = await self._rows(f"/upstreams/{quote(upstream, safe='')}/health")
        except GatewayRefused:
            return set()
        return {row["target"] for row in rows if row.get("health") in UNABLE}

    async def _rows(self, path: str) -> list[dict[str, Any]]:
        told = await self._api.read(path, query={"size": PAGE})
        rows = told.get("data") if isinstance(told, dict) else None
        if not isinstance(rows, list) or not all(_row(one) for one in rows):
            raise GatewayRefused(f"{self._api.name} answered what is no list of targets. {ADVICE[404]}")
        if told.get("next") is not None:
            raise GatewayRefused(f"{self._api.name} lists more than {PAGE} targets in one upstream, which is not read")
        return rows


def _path(upstream: str, address: str) -> str:
    return f"/upstreams/{quote(upstream, safe='')}/targets/{quote(address, safe='')}"


def _row(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("target"), str) and weighs(one.get("weight"))


def _since(row: dict[str, Any]) -> float:
    created = row.get("created_at", 0)
    return float(created) if isinstance(created, int | float) else 0.0
