"""Envoy's own word on a file that it reads: which hosts it drains, and whether it sends to them all the same.

Exchange with its admin interface: `GET /clusters?format=json` gives every host of a cluster with
`health_status.eds_health_status`, `GET /stats?format=json&filter=...` the cluster's gauges `membership_*` and the
counter `lb_healthy_panic`. When too few hosts are healthy (`healthy_panic_threshold`, half of them by default, those
that drain not counted) Envoy panics and sends to every host, also to one that drains; each such request is counted.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from quantwatch.act.contract import Seen
from quantwatch.act.file import FileDriver
from quantwatch.errors import ProbeError
from quantwatch.flow.decision import Order
from quantwatch.net import Link

OUT = ("DRAINING", "UNHEALTHY", "TIMEOUT")
GAUGES = ("membership_healthy", "membership_total", "membership_excluded")
PANIC = "lb_healthy_panic"


@dataclass(frozen=True, slots=True)
class Balance:
    """How a cluster stands. panics: requests so far that were sent to any host because too few are healthy."""

    healthy: int
    total: int
    excluded: int
    panics: int

    @property
    def low(self) -> bool:
        """Whether Envoy panics by its default threshold."""
        return self.healthy == 0 or 2 * self.healthy < self.total - self.excluded

    def alike(self, other: "Balance | None") -> bool:
        """Whether the same hosts were healthy then."""
        return other is not None and (other.healthy, other.total, other.excluded) == (
            self.healthy,
            self.total,
            self.excluded,
        )


class Mood(Enum):
    """Whether a cluster's drained hosts are spared. UNSURE: one more look is needed."""

    CALM = "calm"
    PANIC = "panic"
    UNSURE = "unsure"


class Cluster:
    """A cluster of one Envoy, as its admin interface shows it."""

    def __init__(self, admin: Link, name: str) -> None:
        self._admin = admin
        self._name = name
        self._last: Balance | None = None
        self._panicked = False

    async def sees(self, address: str) -> Seen:
        """How a host stands, HOST:PORT; UNKNOWN on any trouble, and for a host that is not listed."""
        try:
            status = _status(await self._json("/clusters", {}), self._name, address)
            mood = self._felt(_balance(await self._json("/stats", {"filter": self._filter}), self._name))
        except (ProbeError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return Seen.UNKNOWN
        if status is None or mood is Mood.UNSURE:
            return Seen.UNKNOWN
        return Seen.ISOLATED if status in OUT and mood is Mood.CALM else Seen.ROUTABLE

    def _felt(self, now: Balance) -> Mood:
        """Panic shows in a counter alone, so a cluster that may panic is looked at twice before it counts as calm."""
        last, self._last = self._last, now
        if not now.alike(last):
            self._panicked = False
            return Mood.UNSURE if now.low else Mood.CALM
        self._panicked = self._panicked or (last is not None and now.panics > last.panics)
        return Mood.PANIC if self._panicked else Mood.CALM

    async def _json(self, path: str, query: Mapping[str, str]) -> Any:
        answer = await self._admin.order("GET", path, query={"format": "json", **query})
        if answer.status != 200:
            raise ValueError(f"envoy answered {answer.status}")
        return json.loads(answer.body)

    @property
    def _filter(self) -> str:
        return rf"^cluster\.{re.escape(self._name)}\.({'|'.join((*GAUGES, PANIC))})$"


class EnvoyFile:
    """A file driver whose read-back is Envoy's own word."""

    name = FileDriver.name
    abilities = FileDriver.abilities

    def __init__(self, file: FileDriver, cluster: Cluster, addresses: Mapping[str, str]) -> None:
        self._file = file
        self._cluster = cluster
        self._addresses = addresses

    async def call(self, order: Order) -> str:
        """Write the file. Raises Unanswered or GatewayRefused."""
        return await self._file.call(order)

    async def observe(self, order: Order) -> Seen:
        """UNKNOWN while the file is not known; else what Envoy makes of it."""
        file = await self._file.observe(order)
        if file is Seen.UNKNOWN or order.target not in self._addresses:
            return Seen.UNKNOWN
        return await self._cluster.sees(self._addresses[order.target])


def _status(told: Any, cluster: str, address: str) -> str | None:
    """What EDS says of a host; None where the cluster does not list it."""
    hosts = [
        host for one in told["cluster_statuses"] if one["name"] == cluster for host in one.get("host_statuses", ())
    ]
    found = [host for host in hosts if _address(host["address"].get("socket_address", {})) == address]
    return str(found[0]["health_status"]["eds_health_status"]) if found else None


def _address(told: Mapping[str, Any]) -> str:
    host = str(told.get("address", ""))
    return f"[{host}]:{told.get('port_value')}" if ":" in host else f"{host}:{told.get('port_value')}"


def _balance(told: Any, cluster: str) -> Balance:
    """Raises KeyError, TypeError, ValueError for stats that lack one of these."""
    values = {one["name"]: int(one["value"]) for one in told["stats"] if "name" in one}
    healthy, total, excluded = (values[f"cluster.{cluster}.{gauge}"] for gauge in GAUGES)
    return Balance(healthy, total, excluded, values[f"cluster.{cluster}.{PANIC}"])
