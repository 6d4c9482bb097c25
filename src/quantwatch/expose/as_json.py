"""A board as JSON, schema 1: what `quantwatch status` and the admin API show. What is unknown is null, never NaN."""

import math
from datetime import datetime
from typing import Any

from quantwatch import __version__
from quantwatch.flow.as_json import handshake_json, identity_json, load_json
from quantwatch.flow.board import BaselineBoard, Board, PoolBoard, SelfBoard, SetBoard, TargetBoard
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.reference import ReferenceStanding
from quantwatch.flow.state import Pause


def board_json(board: Board) -> dict[str, Any]:
    """The whole picture, ready for json.dumps."""
    return {
        "schema": 1,
        "quantwatch": __version__,
        "ready": board.ready,
        "not_ready": not_ready(board),
        "own": _own(board.own),
        "baseline": _baseline(board.baseline),
        "pools": [_pool(one) for one in board.pools],
        "targets": [_target(one) for one in board.targets],
        "pauses": [pause_json(one) for one in board.pauses],
        "proposals": [proposal_json(one) for one in board.proposals],
    }


def not_ready(board: Board) -> list[str]:
    """Why the daemon is not ready; empty when it is."""
    reasons = [] if board.own.restored else ["the recorded state has not been read yet"]
    trouble = board.own.store_trouble
    return reasons if trouble is None else [*reasons, f"the store cannot be written: {trouble}"]


def pause_json(pause: Pause) -> dict[str, Any]:
    """One pause; until is null where it has no end."""
    return {
        "id": pause.id,
        "scope": pause.scope,
        "reason": pause.reason,
        "author": pause.author,
        "since": time_json(pause.since),
        "until": time_json(pause.until),
        "review": time_json(pause.review),
    }


def proposal_json(one: Proposal) -> dict[str, Any]:
    """What waits for a person."""
    return {
        "decision": one.decision,
        "action": one.action.value,
        "target": one.target,
        "pool": one.pool,
        "reason": one.reason,
        "task_set": one.task_set,
        "evidence": one.evidence,
        "objections": one.objections,
        "opened": time_json(one.opened),
        "expires": time_json(one.expires),
    }


def time_json(at: datetime | None) -> str | None:
    """A time in ISO 8601."""
    return None if at is None else at.isoformat(timespec="seconds")


def _own(own: SelfBoard) -> dict[str, Any]:
    return {
        "started": time_json(own.started),
        "config_digest": own.config_digest,
        "reload_ok": own.reload_ok,
        "reloaded": time_json(own.reloaded),
        "restored": own.restored,
        "store_trouble": own.store_trouble,
        "gateway_trouble": own.gateway_trouble,
        "unwritten_runs": own.unwritten,
        "open_intents": own.open_intents,
        "notices_waiting": dict(own.notices_waiting),
        "loop_lag_seconds": _finite(own.lag),
    }


def _baseline(baseline: BaselineBoard) -> dict[str, Any]:
    return {
        "identity": identity_json(baseline.identity),
        "sound": baseline.sound,
        "trouble": baseline.trouble,
        "checked": time_json(baseline.checked),
        "drift_nats": _finite(baseline.drift),
        "answers": baseline.answers,
        "references": [_reference(one) for one in baseline.references],
    }


def _reference(one: ReferenceStanding) -> dict[str, Any]:
    return {
        "task_set": one.task_set,
        "state": one.state.value,
        "made": time_json(one.made),
        "sha256": one.digest or None,
        "trouble": one.trouble,
        "checked": time_json(one.checked),
        "drift_nats": _finite(one.drift),
    }


def _pool(pool: PoolBoard) -> dict[str, Any]:
    return {
        "pool": pool.name,
        "mode": pool.mode.value,
        "targets": pool.targets,
        "isolated": pool.isolated,
        "max_isolated": pool.allowed,
        "storm": pool.storm,
        "state": pool.stands.state.value,
        "reason": pool.stands.reason,
        "since": time_json(pool.stands.since),
        "cooldown_until": time_json(pool.stands.until),
        "missing": None if pool.missing is None else list(pool.missing),
        "rungs": list(pool.rungs),
        "rung": pool.rung,
    }


def _target(target: TargetBoard) -> dict[str, Any]:
    state = target.state
    return {
        "target": state.target,
        "pool": state.pool,
        "quality": target.quality.value,
        "reason": target.reason,
        "routing": state.routing.value,
        "human": state.human.value,
        "human_author": state.human_author,
        "human_reason": state.human_reason,
        "human_since": time_json(state.human_since),
        "human_until": time_json(state.human_until),
        "vouched": time_json(state.vouched),
        "decision": state.owner,
        "since": time_json(state.since),
        "verified": target.verified,
        "ejections": state.ejections,
        "hold_until": time_json(target.hold_until),
        "probation_until": time_json(target.probation_until),
        "well_since": time_json(state.well_since),
        "lane": state.lane,
        "scheme": target.scheme,
        "gateway_name": target.gateway_name,
        "identity": identity_json(target.identity),
        "handshake": None if target.handshake is None else handshake_json(target.handshake),
        "running": target.running,
        "queued": target.queued,
        "weight": None if target.weight is None else target.weight / 100,
        "left": target.left,
        "task_sets": [_set(one) for one in target.sets],
    }


def _set(one: SetBoard) -> dict[str, Any]:
    state = one.state
    return {
        "task_set": state.task_set,
        "quality": state.quality.value,
        "since": time_json(one.since),
        "last": state.last.value,
        "reason": state.reason,
        "fresh": one.fresh,
        "breaches": state.breaches,
        "clean": state.clean,
        "undecided": state.undecided,
        "run": state.run,
        "at": time_json(state.at),
        "success": time_json(one.success),
        "load_before": load_json(one.loads[0]),
        "load_after": load_json(one.loads[1]),
        "period_seconds": _finite(one.period),
        "limits": {metric.value: {"warn": at.warn, "critical": at.critical} for metric, at in one.limits.items()},
        "numbers": _finite(dict(one.numbers)),
    }


def _finite(value: Any) -> Any:
    """A copy in which numbers that JSON has no word for are null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value
