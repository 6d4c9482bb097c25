"""The SGLang router (0.3.2): a worker has an id that changes with every addition, and calls are queued (202)."""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from quantwatch.act.router import Router
from quantwatch.act.workers import Worker
from quantwatch.errors import GatewayRefused
from quantwatch.flow.decision import Action, Order

NOT_FOUND = 404

OWN = ("priority", "cost")
"""What the router adds to the labels of an entry on its own."""

NO_MODEL = ("", "unknown")


class SglangRouter(Router):
    """A driver for sglang-router. What the list does not tell, an api_key of its own above all, does not come back."""

    name = "sglang_router"

    async def _remove(self, order: Order, entries: Sequence[Worker]) -> str:
        id_ = entries[0].id
        if id_ is None or len(entries) > 1:
            fault = "without an id" if id_ is None else "once for each of its data-parallel ranks"
            raise GatewayRefused(f"{self._link.name} lists {order.node} {fault}, so it cannot be taken out")
        answer = await self._send("DELETE", f"/workers/{quote(id_, safe='')}")
        if answer.status == NOT_FOUND:
            return f"{self._link.name} says that {order.node} has gone already"
        return self._yes(answer)

    async def _add(self, order: Order, fields: Mapping[str, Any]) -> str:
        return self._yes(await self._send("POST", "/workers", body={"url": order.node, **fields}))

    def _to_restore(self, worker: Worker) -> dict[str, Any]:
        """Model, priority, cost, labels and whether its health is asked for, as far as they are what they should be."""
        entry = worker.fields
        kept: dict[str, Any] = {}
        if worker.model not in NO_MODEL:
            kept["model_id"] = worker.model
        for key in OWN:
            if _number(entry.get(key)):
                kept[key] = entry[key]
        given = entry.get("metadata")
        labels = {key: value for key, value in given.items() if _label(key, value)} if isinstance(given, dict) else {}
        if labels:
            kept["labels"] = labels
        if entry.get("disable_health_check") is True:
            kept["disable_health_check"] = True
        return kept

    def _line(self, order: Order, fields: Mapping[str, Any]) -> str:
        if order.action is Action.ISOLATE:
            return f"DELETE '{self._link.url}/workers/ID'"
        body = shlex.quote(json.dumps({"url": order.node, **fields}))
        return f"POST '{self._link.url}/workers' -H 'Content-Type: application/json' -d {body}"


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _label(key: object, value: object) -> bool:
    return isinstance(key, str) and isinstance(value, str) and key not in OWN
