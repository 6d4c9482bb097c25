"""Matters of one target: breaches and what was done about them, its way out of traffic and back, orders that failed."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from quantwatch.flow.decision import DONE, Action, Brake, Order, Outcome, PoolMode, Result
from quantwatch.flow.notice import Matter, Topic
from quantwatch.flow.pool import whole
from quantwatch.flow.state import Human, Routing, TargetState
from quantwatch.flow.verdict import BREACHES, GOOD, Quality
from quantwatch.flows.view import View
from quantwatch.flows.watched import Watched

SOON = timedelta(minutes=1)
"""An order that ends within this is told by its end alone."""

MOVING = (Routing.LEAVING, Routing.RETURNING)
TROUBLE = frozenset({Result.REFUSED, Result.FAILED, Result.CONTRADICTED})


def of_target(target: Watched, view: View) -> Iterator[Matter]:
    """What its verdicts say, and what became of the wish to isolate it."""
    yield from _qualities(target, view)
    yield from _held(target, view)


def of_routing(state: TargetState, view: View) -> Iterator[Matter]:
    """Where it is routed, and what came of its latest order."""
    yield from _routing(state, view)
    yield from _order(state, view)


def _qualities(target: Watched, view: View) -> Iterator[Matter]:
    vouched = view.state(target).vouched
    for one in view.memory.states_of(target.name, target.sets):
        freed = one.quality is Quality.UNKNOWN and vouched is not None and (one.at is None or one.at <= vouched)
        if one.quality in BREACHES or one.quality in GOOD or freed:
            bad = one.quality in BREACHES
            yield Matter(
                Topic.QUALITY,
                f"{target.name}/{one.task_set}",
                "vouched" if freed else str(one.quality),
                one.reason,
                standing=bad,
                done=_done(target, view) if bad else "",
                target=target.name,
                pool=target.pool,
                task_set=one.task_set,
                run=one.proof or one.run,
            )


def _done(target: Watched, view: View) -> str:
    """What was done about a breach."""
    state, held = view.state(target), view.memory.held.get(target.name)
    asked = view.memory.proposals.get(target.name) or view.memory.proposals.get(whole(target.pool))
    if state.owner is not None and state.routing in (Routing.LEAVING, Routing.OUT):
        stands = "its isolation is under way" if state.routing is Routing.LEAVING else "it is out of traffic"
        return f"{stands}, decision {state.owner}"
    if state.routing is not Routing.IN:
        return f"nothing more: its routing is {state.routing} already"
    if state.human is not Human.NONE:
        return f"nothing: a person has set it to {state.human}"
    if asked is not None:
        of = " of the whole pool" if asked.of_pool else ""
        return f"nothing yet: {asked.action}{of} waits for approval, decision {asked.decision}"
    if held is not None and held.wish.action is Action.ISOLATE:
        return f"not isolated: {'; '.join(one.reason for one in held.objections)}"
    mode = view.watchlist.pools[target.pool].rules.mode
    return "nothing: its pool is only observed" if mode is PoolMode.OBSERVE else "nothing so far"


def _held(target: Watched, view: View) -> Iterator[Matter]:
    if target.name not in view.memory.held:
        return
    held = view.memory.held[target.name]
    wanted = held.wish if held is not None and held.wish.action is Action.ISOLATE else None
    brakes = [one.brake for one in held.objections] if held is not None else []
    reason = "an isolation is no longer asked for, or it was ordered"
    if wanted is not None and held is not None:
        reason = "; ".join(one.reason for one in held.objections)
    for topic, standing in (
        (Topic.WOULD_HAVE, Brake.DRY_RUN in brakes),
        (Topic.HELD_BACK, Brake.DRY_RUN not in brakes),
    ):
        yield Matter(
            topic,
            target.name,
            ", ".join(brakes),
            reason,
            standing=standing and wanted is not None,
            done=f"nothing; wanted was: {wanted.reason}" if wanted is not None else "",
            target=target.name,
            pool=target.pool,
            run=wanted.run if wanted is not None else None,
            decision=held.id if held is not None else None,
            evidence=wanted.findings if wanted is not None else (),
        )


def _routing(state: TargetState, view: View) -> Iterator[Matter]:
    order, outcome = _ended(state, view)
    facts = Matter(
        Topic.ROUTING,
        state.target,
        str(state.routing),
        order.reason if order is not None else f"its routing is {state.routing}",
        standing=state.routing is not Routing.IN,
        done=_ending(order, outcome),
        target=state.target,
        pool=state.pool,
        run=order.run if order is not None else None,
        decision=state.owner or (order.decision if order is not None else None),
        evidence=order.evidence if order is not None else (),
    )
    contradicted = state.routing is Routing.CONTRADICTED
    why = "the gateway says otherwise than the record, or a call may have taken effect without our knowing"
    reason = why if contradicted else f"its routing is {state.routing}"
    yield replace(facts, topic=Topic.CONTRADICTED, standing=contradicted, reason=reason)
    moving = state.routing in MOVING
    if not contradicted and not (moving and state.since is not None and view.now - state.since < SOON):
        yield replace(facts, reason="its order is still under way", done="", run=None, evidence=()) if moving else facts


def _ending(order: Order | None, outcome: Outcome | None) -> str:
    if order is None or outcome is None:
        return ""
    rung = f"; traffic on rung {order.rung}" if order.rung is not None and outcome.result in DONE else ""
    return f"{order.action}: {outcome.result}: {outcome.detail}{rung}"


def _ended(state: TargetState, view: View) -> tuple[Order | None, Outcome | None]:
    intent = view.memory.ended.get(state.target)
    return (None, None) if intent is None else (intent.order, intent.outcome)


def _order(state: TargetState, view: View) -> Iterator[Matter]:
    order, outcome = _ended(state, view)
    if order is None or outcome is None:
        return
    left = state.routing is not Routing.IN or view.breaches(state.target)
    yield Matter(
        Topic.ORDER,
        state.target,
        str(outcome.result),
        outcome.detail,
        standing=outcome.result in TROUBLE and left,
        done=f"{order.action} was asked of the gateway as {order.node}, {outcome.attempts} times",
        target=state.target,
        pool=state.pool,
        task_set=None,
        run=order.run,
        decision=order.decision,
        evidence=order.evidence,
    )
