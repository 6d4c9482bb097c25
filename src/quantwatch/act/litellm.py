"""The LiteLLM proxy (1.108): a deployment that is stored in its database can be blocked and unblocked by its id.

Exchange: `POST /model/block {"model_id": ID}` and `POST /model/unblock`, by a key that administers the proxy;
`GET /model/info` lists every deployment with `model_info.id` and `model_info.blocked`. As its source and its own
answers have it: 500 without a database, 400 for a deployment that stands in config.yaml, 403 for any other key.
"""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from quantwatch.act.contract import Unanswered
from quantwatch.act.switched import Group, Member, Switched
from quantwatch.errors import GatewayRefused
from quantwatch.flow.decision import Action, Order

PATHS = {Action.ISOLATE: "/model/block", Action.RELEASE: "/model/unblock"}
NO_DATABASE = b"DB not connected"

ADVICE = {
    400: "LiteLLM blocks only what its database holds: set general_settings.store_model_in_db and add the deployment "
    "by /model/new, not in config.yaml",
    401: "Look at gateway.api_key; it must be the master key, or one of a proxy admin",
    403: "Look at gateway.api_key; it must be the master key, or one of a proxy admin",
    404: "Look at gateway.url, and whether this LiteLLM is new enough to know /model/block",
    405: "Look at gateway.url and gateway.driver: is it LiteLLM?",
}


class LitellmDriver(Switched):
    """A driver for one LiteLLM proxy. A gateway_name is a deployment's id. Others by the same database follow later."""

    name = "litellm"

    async def names(self) -> tuple[str, ...]:
        """The id of every deployment, sorted. Raises GatewayError."""
        return tuple(sorted({one.name for _, one in await self._deployments()}))

    async def by_hand(self, order: Order) -> str:
        """The order as one line in a shell."""
        body = shlex.quote(json.dumps({"model_id": order.node}))
        head = "-H 'Authorization: Bearer ...' -H 'Content-Type: application/json'"
        return f"curl {head} -X POST '{self._api.link.url}{PATHS[order.action]}' -d {body}"

    async def _group(self, order: Order) -> Group:
        """The deployments that have the model of this one."""
        listed = await self._deployments()
        models = {model for model, one in listed if one.name == order.node}
        if not models:
            return Group(None, tuple(one for _, one in listed))
        mine = [one for _, one in listed if one.name == order.node]
        whole = Member(order.node, all(one.out for one in mine), fields={"models": sorted(models)})
        return Group(whole, tuple(one for model, one in listed if model in models and one.name != order.node))

    async def _switch(self, order: Order, group: Group, fields: Mapping[str, Any]) -> str:  # noqa: ARG002, nothing is lost
        models = group.mine.fields["models"] if group.mine is not None else []
        if order.action is Action.ISOLATE and any("*" in model for model in models):
            raise GatewayRefused(
                f"{order.node} serves the wildcard {models[0]}, which LiteLLM goes on using when it is blocked; "
                "nothing was done. Give it a model name of its own"
            )
        answer = await self._api.change("POST", PATHS[order.action], {"model_id": order.node})
        if answer.status == 500 and NO_DATABASE in answer.body:
            said = f"{self._api.no(answer)}. LiteLLM needs its database for this; is DATABASE_URL set, and up?"
            raise Unanswered(said, arrived=False)
        return self._api.yes(answer)

    async def _deployments(self) -> list[tuple[str, Member]]:
        """Every deployment with its model's name. Raises GatewayError."""
        told = await self._api.read("/model/info")
        rows = told.get("data") if isinstance(told, dict) else None
        found = [_deployment(row) for row in rows] if isinstance(rows, list) else [None]
        if None in found:
            raise GatewayRefused(f"{self._api.name} answered what is no list of deployments. {ADVICE[405]}")
        return [one for one in found if one is not None]


def _deployment(row: Any) -> tuple[str, Member] | None:
    """One row of /model/info. A deployment without `blocked` is in traffic: only what the list says counts."""
    info = row.get("model_info") if isinstance(row, dict) else None
    if not isinstance(info, dict):
        return None
    model, id_, blocked = row.get("model_name"), info.get("id"), info.get("blocked")
    if not isinstance(model, str) or not isinstance(id_, str) or not id_:
        return None
    if blocked is not None and not isinstance(blocked, bool):
        return None
    return model, Member(id_, blocked is True)
