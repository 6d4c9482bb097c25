"""The numbers of one node on one task set over time, as the charts of its page ask for them."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from quantwatch.expose.replies import json_reply
from quantwatch.flow.state import Axis, Transition
from quantwatch.flow.verdict import Metric
from quantwatch.pages.site import HEADERS, Site
from quantwatch.record.archive import Archive
from quantwatch.record.series import LATENCY, Point, Stretch

CHARTS = (Metric.KL_MEAN.value, Metric.PERPLEXITY_RATIO.value, Metric.TOP1_AGREEMENT.value, LATENCY)
"""One chart each, in this order."""

RANGES = {
    "6h": timedelta(hours=6),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "90d": timedelta(days=90),
}
USUAL = "24h"

MARKED = frozenset({Axis.QUALITY, Axis.ROUTING, Axis.HUMAN, Axis.WEIGHT})


def chosen_range(request: Request) -> str:
    """The range that a request asks for; the usual one where it asks for none of ours."""
    given = request.query_params.get("range", "")
    return given if given in RANGES else USUAL


async def series(site: Site, request: Request) -> Response:
    """Every chart of a node and a task set, thinned out, and what changed meanwhile. Raises StoreError."""
    name, until = chosen_range(request), site.now() + timedelta(seconds=1)
    stretch = Stretch(request.path_params["target"], request.query_params.get("set", ""), until - RANGES[name], until)

    def look(archive: Archive) -> tuple[list[list[Point]], list[Transition]]:
        return [archive.series(stretch, one) for one in CHARTS], archive.marks(stretch)

    drawn, marks = await site.reading(look)
    content = {
        "from": int(stretch.since.timestamp()),
        "to": int(until.timestamp()),
        "charts": {one: _columns(points) for one, points in zip(CHARTS, drawn, strict=True)},
        "marks": [_mark(one) for one in reversed(marks) if _drawn(one)],
    }
    return await asyncio.to_thread(json_reply, content, headers=HEADERS)


def _drawn(one: Transition) -> bool:
    """Whether a change is marked: that a person asked for a run, or resumed, leaves what was said as it is."""
    return one.axis in MARKED and not (one.axis is Axis.HUMAN and one.old == one.new)


def _columns(points: Sequence[Point]) -> dict[str, list[Any]]:
    """Points as columns, which is what the library draws; numbers as short as the eye can tell them apart."""
    names = ("value", "low", "high", "warn", "critical")
    columns = {name: [_short(getattr(one, name)) for one in points] for name in names}
    return {"at": [round(one.at.timestamp()) for one in points], **columns}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _mark(one: Transition) -> dict[str, Any]:
    return {"at": round(one.at.timestamp()), "axis": one.axis.value, "old": one.old, "new": one.new}
