"""Lab nodes without sockets."""

from pathlib import Path
from typing import Any

import httpx

from quantwatch.clock import Clock, SystemClock
from quantwatch.lab.app import Node
from quantwatch.lab.build import Plan, node
from quantwatch.lab.faults import read_fault
from quantwatch.toolkit.recipe import Recipe


def lab_node(
    folder: Path,
    *,
    recipe: Recipe | None = None,
    fault: str | None = None,
    clock: Clock | None = None,
    name: str = "lab",
    **plan: Any,
) -> Node:
    """A node of the model in a folder."""
    planned = None if fault is None else read_fault(fault)
    whole = Plan(folder, recipe or Recipe(), name, fault=planned, **{"threads": 1, **plan})
    return node(whole, clock=clock or SystemClock())


async def ask(lab: Node, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
    """One request of a node: POST with a body, else GET."""
    transport = httpx.ASGITransport(app=lab.app())
    async with httpx.AsyncClient(transport=transport, base_url="http://lab") as client:
        return await (client.get(path) if body is None else client.post(path, json=body))


async def complete(lab: Node, **body: Any) -> dict[str, Any]:
    """The first choice of a completion: greedy, with token ids, unless the body says otherwise."""
    answer = await ask(lab, "/v1/completions", {"temperature": 0, "return_token_ids": True, **body})
    assert answer.status_code == 200, answer.text
    first: dict[str, Any] = answer.json()["choices"][0]
    return first
