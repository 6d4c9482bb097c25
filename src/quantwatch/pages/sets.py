"""Golden sets: what is asked, and how each node stands on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from quantwatch.flow.board import Board, SetBoard, TargetBoard
from quantwatch.flow.verdict import BREACHES, Quality, severity
from quantwatch.pages.listing import sheet
from quantwatch.pages.rank import worst_finding
from quantwatch.pages.site import Site


@dataclass(frozen=True, slots=True)
class Standing:
    """One node on the task set."""

    target: TargetBoard
    on: SetBoard


def routes(site: Site) -> Sequence[BaseRoute]:
    """The list of golden sets, and the page of one."""

    async def every(request: Request) -> Response:
        board = site.board()
        values: dict[str, Any] = {
            "standings": {one.name: standings(board, one.name) for one in board.task_sets},
            "bad": _bad,
        }
        return await site.page(request, "sets.html", **values)

    async def page(request: Request) -> Response:
        board, name = site.board(), request.path_params["task_set"]
        found = next((one for one in board.task_sets if one.name == name), None)
        if found is None:
            raise HTTPException(404)
        golden = site.golden(name) if site.prompts() != "off" else None
        values: dict[str, Any] = {
            "board": board,
            "task_set": found,
            "nodes": sheet(standings(board, name), request.query_params.get("page")),
            "reference": next((one for one in board.baseline.references if one.task_set == name), None),
            "golden": None if golden is None else sheet(golden, request.query_params.get("prompts")),
            "worst_finding": worst_finding,
        }
        return await site.page(request, "set.html", **values)

    return [Route("/sets", every), Route("/sets/{task_set:path}", page)]


def standings(board: Board, task_set: str) -> list[Standing]:
    """Every node that is asked about a task set, the worst first."""
    found = [Standing(one, on) for one in board.targets for on in one.sets if on.state.task_set == task_set]
    return sorted(found, key=lambda one: (-severity(one.on.state.quality), one.target.state.target))


def _bad(found: Sequence[Standing]) -> dict[str, int]:
    """How many nodes breach on a task set, and how many are well."""
    states = [one.on.state.quality for one in found]
    return {"bad": sum(one in BREACHES for one in states), "ok": sum(one is Quality.OK for one in states)}
