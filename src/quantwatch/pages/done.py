"""What was done about a node, or why nothing was."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quantwatch.errors import StoreError
from quantwatch.flow.board import Board, PoolBoard, TargetBoard
from quantwatch.flow.decision import PoolMode, Ruling
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.state import Human, Pause, Routing
from quantwatch.flow.verdict import BREACHES
from quantwatch.pages.rank import bad
from quantwatch.pages.site import Site
from quantwatch.record.archive import Archive
from quantwatch.record.decisions import StoredDecision

MOST_ASKED = 10
"""Nodes of one page of which the last decision is looked up: there are seldom more that serve and breach."""


@dataclass(frozen=True, slots=True)
class Done:
    """What to say of it. key, values: of the words, after `done.`. decision: what they speak of."""

    key: str
    values: Mapping[str, Any]
    decision: str | None = None


async def doing(site: Site, board: Board, shown: Sequence[TargetBoard]) -> Callable[[TargetBoard], Done | None]:
    """What to say of each node, as a function for templates. shown: the nodes that the page shows."""
    pools = {one.name: one for one in board.pools}
    waiting = {one.target: one for one in board.proposals}
    now, last = site.now(), await _last_decisions(site, shown)

    def of(target: TargetBoard) -> Done | None:
        state = target.state
        pausing = next((one for one in board.pauses if one.covers(state.target, state.pool, now=now)), None)
        found = done(target, pools.get(state.pool), waiting=waiting.get(state.target), pausing=pausing)
        return found if found is not None else _objected(target, last.get(state.target))

    return of


def done(
    target: TargetBoard, pool: PoolBoard | None, *, waiting: Proposal | None, pausing: Pause | None
) -> Done | None:
    """What was done about a node as far as the board tells; None where it tells nothing, or there was nothing to do."""
    state = target.state
    if state.routing is Routing.OUT:
        return Done("isolated", {}, state.owner) if state.owner is not None else Done("out", {})
    if state.routing is not Routing.IN:
        return Done(state.routing.value, {})
    if waiting is not None:
        return Done("waits", {}, waiting.decision)
    suspect = bad(target) or any(one.state.last in BREACHES and one.fresh for one in target.sets)
    return _why_not(target, pool, pausing) if suspect else None


def _why_not(target: TargetBoard, pool: PoolBoard | None, pausing: Pause | None) -> Done | None:
    if target.state.human is not Human.NONE:
        return Done("human", {})
    if pausing is not None:
        return Done("paused", {"author": pausing.author})
    if pool is not None and pool.mode in (PoolMode.OBSERVE, PoolMode.DRY_RUN):
        return Done("mode", {"mode": pool.mode})
    return None if bad(target) else Done("confirming", {})


def _objected(target: TargetBoard, last: StoredDecision | None) -> Done | None:
    """What stood in the way of the last wish to isolate a node that breaches."""
    if not bad(target) or last is None or last.ruling is not Ruling.SUPPRESSED or not last.objections:
        return None
    first = last.objections[0]
    return Done("objection", {"brake": first["brake"], "reason": first["reason"]}, last.id)


async def _last_decisions(site: Site, shown: Sequence[TargetBoard]) -> dict[str, StoredDecision]:
    """The last decision of nodes that serve and breach; none where the record cannot be read."""
    names = [one.state.target for one in shown if bad(one) and one.state.routing is Routing.IN][:MOST_ASKED]

    def look(archive: Archive) -> dict[str, StoredDecision]:
        return {name: one for name in names for one in archive.decisions(target=name, limit=1)}

    try:
        return await site.reading(look) if names else {}
    except StoreError:
        return {}
