"""The fleet at a glance: the verdict, what holds everything up, and every node, the worst first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from quantwatch.flow.board import Board, TargetBoard
from quantwatch.flow.state import Routing
from quantwatch.flow.verdict import BREACHES, CANNOT_TELL, Quality
from quantwatch.pages.done import doing
from quantwatch.pages.listing import sheet
from quantwatch.pages.rank import STATES, bad, fits, lead, ranked, serving, unverified, urgency, worst_finding
from quantwatch.pages.site import Site

NAMED = 3
"""Nodes that the verdict names."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The verdict in a sentence. key, values: of its words. named: the nodes that it is about, the worst first."""

    tone: str
    key: str
    values: dict[str, Any]
    named: tuple[TargetBoard, ...] = ()
    more: int = 0


def routes(site: Site) -> Sequence[BaseRoute]:
    """The page of the fleet, and the part of it that is asked for again."""

    async def page(request: Request) -> Response:
        board = site.board()
        targets = ranked(board.targets)
        told, listed = headline(board, targets), _listed(targets, request)
        shown = [*told.named, *listed["nodes"].rows]
        values = {"headline": told, "counts": counts(board), "done": await doing(site, board, shown), **listed}
        values |= {"board": board, "lead": lead, "worst_finding": worst_finding, "urgency": urgency}
        if request.query_params.get("part"):
            return await site.part(request, "fleet_again.html", **values)
        return await site.page(request, "fleet.html", **values)

    return [Route("/", page)]


def headline(board: Board, targets: Sequence[TargetBoard]) -> Headline:
    """What to know first: of several troubles the one that touches users most. targets: the board's, as ranked."""
    everyone = len(targets)
    if not targets:
        return Headline("dim", "fleet.verdict.empty" if board.own.restored else "fleet.verdict.starting", {})
    storms = [one.name for one in board.pools if one.storm]
    cases: tuple[tuple[str, str, Sequence[TargetBoard]], ...] = (
        ("bad", "bad", [one for one in targets if bad(one) and serving(one)]),
        ("bad", "contradicted", [one for one in targets if unverified(one)]),
        ("bad", "storm", targets if storms else []),
        ("warn", "baseline", targets if board.baseline.sound is False else []),
        ("warn", "out", [one for one in targets if one.state.routing is Routing.OUT]),
        ("warn", "moving", [one for one in targets if one.state.routing in (Routing.LEAVING, Routing.RETURNING)]),
        ("dim", "first", targets if all(_never(one) for one in targets) else []),
        ("warn", "unknown", [one for one in targets if one.quality in CANNOT_TELL]),
        ("warn", "warn", [one for one in targets if one.quality is Quality.WARN]),
    )
    for tone, key, about in cases:
        if about:
            named = tuple(about[:NAMED]) if key not in ("baseline", "first") else ()
            values = {"n": len(about), "all": everyone, "pools": ", ".join(storms)}
            more = max(0, len(about) - NAMED) if named and key != "storm" else 0
            return Headline(tone, f"fleet.verdict.{key}", values, named, more)
    return Headline("good", "fleet.verdict.good", {"all": everyone})


def counts(board: Board) -> dict[str, int]:
    """How many nodes are how."""
    found = [one.quality for one in board.targets]
    return {
        "good": sum(one is Quality.OK for one in found),
        "warn": sum(one is Quality.WARN for one in found),
        "bad": sum(one in BREACHES for one in found),
        "unknown": sum(one in CANNOT_TELL for one in found),
        "away": sum(one.state.routing is not Routing.IN for one in board.targets),
    }


def _never(target: TargetBoard) -> bool:
    return all(one.state.at is None for one in target.sets)


def _listed(targets: Sequence[TargetBoard], request: Request) -> dict[str, Any]:
    """The nodes of one page of the list, by what the query narrows it to."""
    asked = {name: request.query_params.get(name, "")[:200] for name in ("q", "pool", "state")}
    asked["state"] = asked["state"] if asked["state"] in STATES else ""
    found = [one for one in targets if _wanted(one, asked)]
    return {"asked": asked, "states": STATES, "nodes": sheet(found, request.query_params.get("page"))}


def _wanted(target: TargetBoard, asked: dict[str, str]) -> bool:
    named = asked["q"].casefold() in target.state.target.casefold()
    return named and asked["pool"] in ("", target.state.pool) and fits(target, asked["state"])
