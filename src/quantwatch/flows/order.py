"""An order's beginning and end, as nouns: what is sent, and where its target stands before and after."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from quantwatch.flow.decision import DONE, Action, Decision, Order, Outcome
from quantwatch.flow.state import Routing, SetState, TargetState
from quantwatch.flows.watched import Watched, WatchedPool


def order_of(
    decision: Decision,
    target: Watched,
    pool: WatchedPool,
    *,
    driver: str,
    states: Sequence[SetState],
    node: str | None = None,
) -> Order:
    """What the gateway is asked to do for a decision. node: the name under which the target was isolated, if it was."""
    wanted = decision.wish
    verdict = next((str(one.quality) for one in states if one.task_set == wanted.task_set), "ok")
    return Order(
        decision=decision.id,
        action=wanted.action,
        target=target.name,
        pool=pool.name,
        node=node or target.gateway_name,
        driver=driver,
        reason=wanted.reason,
        verdict=verdict,
        fallback=pool.fallback_name,
        task_set=wanted.task_set,
        run=wanted.run,
        evidence=wanted.findings,
        origin=decision.origin,
    )


def begun(old: TargetState, decision: Decision, order: Order, *, process: str | None) -> TargetState:
    """Where a target stands while an order is under way. process: which process of the node is taken out."""
    wanted = decision.wish
    if wanted.action is Action.RELEASE:
        return replace(old, routing=Routing.RETURNING, since=decision.at)
    lane = str(wanted.lane) if wanted.lane is not None else old.lane
    left = replace(old, routing=Routing.LEAVING, owner=decision.id, since=decision.at, gone=process, lane=lane)
    return replace(left, node=order.node, driver=order.driver, well_since=None)


def settled(old: TargetState, order: Order, outcome: Outcome, now: datetime) -> TargetState:
    """Where a target stands after an order has ended.

    What is not proven done counts as not done; where it may have been done all the same, the routing is contradicted
    and either action may follow, as the evidence asks.
    """
    isolating = order.action is Action.ISOLATE
    if outcome.result in DONE and isolating:
        return replace(old, routing=Routing.OUT, owner=order.decision, since=now, ejections=old.ejections + 1)
    if outcome.result in DONE:
        return _back(old, now)
    if outcome.doubt:
        return replace(old, routing=Routing.CONTRADICTED, since=now)
    return _back(old, now) if isolating else replace(old, routing=Routing.OUT)


def _back(old: TargetState, now: datetime) -> TargetState:
    return replace(old, routing=Routing.IN, owner=None, since=now, gone=None, lane=None, node=None, driver=None)
