"""The answer to a gateway that asks by its own health check whether a target may have traffic.

503 takes a node out of traffic, so it is said only of a node that a decision of ours has taken out. In any doubt, and
whatever is wrong with ourselves, the answer is 200. HAProxy's agent-check is answered by the same rule.
"""

from typing import Any

from quantwatch.expose.as_json import time_json
from quantwatch.flow.board import Board, SetBoard, TargetBoard
from quantwatch.flow.decision import PoolMode
from quantwatch.flow.state import Human, Routing
from quantwatch.flow.verdict import Quality

OUT_OF_TRAFFIC = frozenset({Routing.LEAVING, Routing.OUT})


def verdict_json(board: Board, name: str) -> dict[str, Any]:
    """What is known of a target; `isolated` says that the answer is 503."""
    target = board.target(name)
    if target is None:
        return cannot_tell(name, "quantwatch does not know this target, so it does not speak against it")
    why_not = _spared(board, target)
    state = target.state
    return {
        "target": name,
        "known": True,
        "isolated": why_not is None,
        "quality": target.quality.value,
        "routing": state.routing.value,
        "reason": target.reason if why_not is None else why_not,
        "decision": state.owner,
        "since": time_json(state.since),
        "task_sets": {one.state.task_set: _set(one) for one in target.sets},
    }


def cannot_tell(name: str, reason: str) -> dict[str, Any]:
    """The answer where nothing is known."""
    nothing: dict[str, Any] = {"decision": None, "since": None, "task_sets": {}}
    at = {"quality": Quality.UNKNOWN.value, "routing": None, "reason": reason}
    return {"target": name, "known": False, "isolated": False, **at, **nothing}


def agent_words(board: Board, name: str) -> str:
    """What HAProxy's agent-check is told of a target: its share of the configured weight, or nothing at all.

    Nothing leaves a server as it is: while we are starting, and for a name that we do not know. No word of ours is a
    health or an administrative state. `up` would revive a server whose own health check fails, and `ready` would undo
    the drain that a person has set.
    """
    if not board.own.restored or board.target(name) is None:
        return ""
    return "0%" if verdict_json(board, name)["isolated"] else "100%"


def _spared(board: Board, target: TargetBoard) -> str | None:
    """Why a target may have traffic; None when it may not."""
    state = target.state
    out = state.routing in OUT_OF_TRAFFIC and state.owner is not None
    if not board.own.restored:
        return "quantwatch is starting and does not know yet what it has isolated"
    if out and state.human in (Human.FORCED_OUT, Human.HELD):
        return None  # no mode of a pool changes what a person has said
    if any(one.name == state.pool and one.mode is PoolMode.OBSERVE for one in board.pools):
        return f"the pool {state.pool} is only observed; {target.reason}"
    if state.human is Human.FORCED_IN:
        return f"a person has forced it in; {target.reason}"
    return None if out else target.reason


def _set(one: SetBoard) -> dict[str, Any]:
    state = one.state
    return {
        "quality": state.quality.value,
        "last": state.last.value,
        "reason": state.reason,
        "fresh": one.fresh,
        "run": state.run,
        "at": time_json(state.at),
    }
