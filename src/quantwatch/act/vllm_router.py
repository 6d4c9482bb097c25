"""The vLLM router (0.1.17): a worker is its URL, letter for letter, and every removal is answered by 200."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from quantwatch.act.router import Router
from quantwatch.act.workers import Worker
from quantwatch.flow.decision import Action, Order

KNOWN = (b"already exists", b"No worker added")
"""What a 400 says where the worker is listed: plainly, and of one with data-parallel ranks."""

_PATHS = {Action.ISOLATE: "/remove_worker", Action.RELEASE: "/add_worker"}


class VllmRouter(Router):
    """A driver for vllm-router. Removing a URL removes all of its data-parallel ranks, adding it adds them all."""

    name = "vllm_router"

    async def _remove(self, order: Order, entries: Sequence[Worker]) -> str:  # noqa: ARG002, the URL says it all
        return self._yes(await self._send("POST", _PATHS[Action.ISOLATE], query={"url": order.node}))

    async def _add(self, order: Order, fields: Mapping[str, Any]) -> str:  # noqa: ARG002, there are none
        """The router answers once the worker is well, so a node that is down lets this run into the time limit."""
        answer = await self._send("POST", _PATHS[Action.RELEASE], query={"url": order.node})
        if answer.status == 400 and any(words in answer.body for words in KNOWN):
            return f"{self._link.name} says that {order.node} is listed already"
        return self._yes(answer)

    def _to_restore(self, worker: Worker) -> dict[str, Any]:  # noqa: ARG002, the contract's signature
        """Nothing: priority, cost, model and labels are ignored when they are given."""
        return {}

    def _line(self, order: Order, fields: Mapping[str, Any]) -> str:  # noqa: ARG002, there are none
        return f"POST '{self._link.url}{_PATHS[order.action]}?url={quote(order.node, safe='')}'"
