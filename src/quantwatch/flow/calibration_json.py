"""A calibration as JSON, schema 1, and back: what is kept so that a later one can be held against it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from quantwatch.flow.as_json import identity_json, json_number
from quantwatch.flow.calibration import Calibrated, Level, PartProposals, Proposal, SetCalibration, Spread
from quantwatch.flow.divergence import Estimate
from quantwatch.flow.verdict import Interval, Limit, Metric

SCHEMA = 1


def calibration_json(whole: Calibrated, *, version: str) -> dict[str, Any]:
    """Everything, ready for json.dumps; numbers that do not exist are null, never NaN. version: quantwatch's own."""
    return {
        "schema": SCHEMA,
        "kind": "calibration",
        "quantwatch": version,
        "at": whole.at.isoformat(timespec="seconds"),
        "cycles_asked": whole.asked,
        "seed": whole.seed,
        "complete": whole.complete,
        "trouble": whole.trouble,
        "sets": [_set(one) for one in whole.sets],
    }


def _set(one: SetCalibration) -> dict[str, Any]:
    return {
        "target": one.target,
        "scheme": one.scheme,
        "task_set": one.task_set,
        "pool": one.pool,
        "mode": one.mode.value,
        "k": one.k,
        "estimator": one.estimator.value if one.estimator is not None else None,
        "draw": one.draw,
        "cycles": one.cycles,
        "unusable": list(one.unusable),
        "fault": one.fault,
        "noise_trouble": one.noise_trouble,
        "prompts": one.prompts,
        "positions": one.positions,
        "basis": one.basis,
        "baseline": identity_json(one.baseline),
        "node": identity_json(one.node),
        "cold_and_warm_told_apart": one.told_apart,
        "metrics": _proposals(one.proposals),
        "parts": [_part(found) for found in one.parts],
        "limits_in_force": {metric.value: _limit(limit) for metric, limit in one.in_force.items()},
        "spreads": [_spread(spread) for spread in one.spreads],
    }


def _part(found: PartProposals) -> dict[str, Any]:
    part = found.part
    return {
        "dimension": part.dimension.value,
        "value": part.value,
        "cycles": part.cycles,
        "prompts": part.prompts,
        "positions": part.positions,
        "metrics": _proposals(found.proposals),
    }


def _proposals(proposals: Sequence[Proposal]) -> dict[str, Any]:
    return {proposal.level.metric.value: _proposal(proposal) for proposal in proposals}


def _proposal(proposal: Proposal) -> dict[str, Any]:
    level, reach = proposal.level, proposal.level.reach
    return {
        **_estimate(level.pooled),
        "cycles": [_estimate(cycle) for cycle in level.cycles],
        "noise": {kind.value: _estimate(noise) for kind, noise in level.noise.items()},
        "reach": None
        if reach is None
        else {
            "value": json_number(reach.value),
            "value_chance": reach.value_chance,
            "near": json_number(reach.near),
            "near_chance": reach.near_chance,
        },
        "limit": None if proposal.limit is None else _limit(proposal.limit),
        "reason": proposal.reason,
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    ends = estimate.interval
    return {
        "value": json_number(estimate.value),
        "interval": None if ends is None else [json_number(ends.low), json_number(ends.high)],
    }


def _limit(limit: Limit) -> dict[str, float | None]:
    return {"warn": limit.warn, "critical": limit.critical}


def _spread(spread: Spread) -> dict[str, Any]:
    return {
        "name": spread.name,
        "zeros": spread.zeros,
        "counts": list(spread.counts),
        "median": json_number(spread.median),
        "p99": json_number(spread.p99),
        "largest": json_number(spread.largest),
    }


@dataclass(frozen=True, slots=True)
class Kept:
    """An earlier calibration, as far as a later one is held against it: its levels, and under which conditions."""

    at: datetime
    _sets: "Mapping[tuple[str, str], _KeptSet]"

    @classmethod
    def of(cls, document: Any) -> "Kept":
        """Read a document. Raises ValueError for anything else."""
        if not isinstance(document, dict) or document.get("kind") != "calibration":
            raise ValueError("it is no calibration; what `quantwatch calibrate --json FILE` wrote is wanted")
        if document.get("schema") != SCHEMA:
            raise ValueError(f"its schema is {document.get('schema')!r}, and {SCHEMA} is what is known here")
        try:
            sets = {(one["target"], one["task_set"]): _kept_set(one) for one in document["sets"]}
            return cls(datetime.fromisoformat(document["at"]), sets)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise ValueError(f"it is damaged: {exc!r}") from exc

    def level(self, one: SetCalibration, metric: Metric) -> Level | None:
        """The level of that target, task set and metric, None where there is none."""
        kept = self._sets.get((one.target, one.task_set))
        return kept.levels.get(metric) if kept is not None else None

    def incomparable(self, one: SetCalibration) -> str | None:
        """Why then and now are not the same thing measured in the same way, or None."""
        kept = self._sets.get((one.target, one.task_set))
        if kept is None:
            return "not calibrated then"
        estimator = one.estimator.value if one.estimator is not None else None
        now = {"mode": one.mode.value, "k": one.k, "estimator": estimator, "pool": one.pool}
        changed = [name for name, value in now.items() if kept.conditions[name] != value]
        return f"another {', '.join(changed)} then" if changed else None

    def moved(self, one: SetCalibration) -> bool:
        """Whether baseline or node had another model or version then."""
        kept = self._sets.get((one.target, one.task_set))
        return kept is not None and kept.basis != one.basis


@dataclass(frozen=True, slots=True)
class _KeptSet:
    conditions: Mapping[str, Any]
    basis: str
    levels: Mapping[Metric, Level]


def _kept_set(one: Mapping[str, Any]) -> _KeptSet:
    return _KeptSet(
        conditions={name: one[name] for name in ("mode", "k", "estimator", "pool")},
        basis=str(one["basis"]),
        levels={Metric(name): _level(Metric(name), found) for name, found in one["metrics"].items()},
    )


def _level(metric: Metric, found: Mapping[str, Any]) -> Level:
    value, ends = found["value"], found["interval"]
    interval = None if ends is None or None in ends else Interval(float(ends[0]), float(ends[1]))
    return Level(metric, Estimate(math.nan if value is None else float(value), interval), (), {})
