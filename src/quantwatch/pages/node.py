"""One node: its three axes, its numbers over time, its runs, and what was done about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from quantwatch.errors import StoreError
from quantwatch.flow.board import Board, SetBoard, TargetBoard
from quantwatch.flow.state import Transition
from quantwatch.pages.chart import CHARTS, RANGES, chosen_range, series
from quantwatch.pages.done import doing
from quantwatch.pages.manner import Manner
from quantwatch.pages.rank import lead, worst_finding
from quantwatch.pages.site import Site
from quantwatch.pages.view import of_decisions
from quantwatch.record.archive import Archive
from quantwatch.record.decisions import DecisionLine
from quantwatch.record.series import RunLine

RUNS = 20
"""Runs on one page of the list."""

EVENTS = 20
"""Changes and decisions that are shown."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is on record of a node. older: the run after which the list goes on; None at its end."""

    runs: tuple[RunLine, ...]
    older: str | None
    count: int
    transitions: tuple[Transition, ...]
    decisions: tuple[DecisionLine, ...]

    @property
    def empty(self) -> bool:
        """Whether nothing at all is known of a node of this name."""
        return not (self.runs or self.count or self.transitions or self.decisions)


def routes(site: Site) -> Sequence[BaseRoute]:
    """The page of a node, its parts that are asked for again, and the numbers of its charts."""

    async def charts(request: Request) -> Response:
        return await series(site, request)

    async def page(request: Request) -> Response:
        part, name = request.query_params.get("part"), request.path_params["target"]
        board = site.board()
        target = board.target(name)
        values: dict[str, Any] = {"board": board, "name": name, "target": target}
        values |= {"lead": lead, "worst_finding": worst_finding}
        if part == "now":
            return await site.part(request, "node_now.html", **values, **await _standing(site, board, target))
        values |= await _on_record(site, request, target)
        values |= of_decisions(Manner.of(request).language)
        if part:
            return await site.part(request, "node_record.html", **values)
        if target is None and values["record"] is not None and values["record"].empty:
            raise HTTPException(404)
        values |= {"charts": CHARTS, "ranges": tuple(RANGES), "range": chosen_range(request)}
        return await site.page(request, "node.html", **values, **await _standing(site, board, target))

    return [Route("/nodes/{target:path}/series.json", charts), Route("/nodes/{target:path}", page)]


async def _standing(site: Site, board: Board, target: TargetBoard | None) -> dict[str, Any]:
    return {"done": await doing(site, board, [] if target is None else [target])}


async def _on_record(site: Site, request: Request, target: TargetBoard | None) -> dict[str, Any]:
    """What the store tells of a node; where it cannot be read, why: the rest of the page needs no store."""
    name, before = request.path_params["target"], request.query_params.get("before") or None
    task_set = chosen_set(target, request.query_params.get("set"))

    def look(archive: Archive) -> Record:
        found = archive.run_lines(target=name, task_set=task_set, before=before, limit=RUNS + 1)
        runs = tuple(found[:RUNS])
        return Record(
            runs=runs,
            older=runs[-1].id if len(found) > RUNS else None,
            count=archive.run_count(name, task_set),
            transitions=tuple(archive.timeline(target=name, limit=EVENTS)),
            decisions=tuple(archive.decision_lines(name, limit=EVENTS)),
        )

    values = {"set_name": task_set, "before": before, "record": None, "unreadable": None}
    try:
        return values | {"record": await site.reading(look)}
    except StoreError as exc:
        return values | {"unreadable": str(exc)}


def chosen_set(target: TargetBoard | None, given: str | None) -> str | None:
    """The task set whose numbers are shown: the one asked for, else the one that a node's quality comes from."""
    if given or target is None:
        return given or None
    leading: SetBoard | None = lead(target) or next(iter(target.sets), None)
    return None if leading is None else leading.state.task_set
