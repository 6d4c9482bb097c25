"""A release gate's plan file -> what is asked of which server, task set by task set."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quantwatch.config.accept_plan import AcceptPlan, prompts_of
from quantwatch.config.limits import limits_for
from quantwatch.flow.acceptance import Rules
from quantwatch.flow.prompt import Prompt
from quantwatch.flow.verdict import Limit, Metric
from quantwatch.flows.load_test import LoadPlan, blocks
from quantwatch.flows.plan import Plan, planned_draw
from quantwatch.judge.confidence import critical_limits, interval_level
from quantwatch.prompts.load import load_set

CONFIDENCE = 0.95
"""Chance that a gate over all task sets calls no candidate within its limits degraded."""


@dataclass(frozen=True, slots=True)
class SetPlan:
    """One task set of the gate. load: None where no load is sent."""

    name: str
    plan: Plan
    load: LoadPlan | None

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The drawn prompts, each once."""
        (planned,) = self.plan.sets
        return tuple(item for item in planned.items if isinstance(item, Prompt))


@dataclass(frozen=True, slots=True)
class GatePlan:
    """The whole gate. load_running: whether the running node gets load too. as_json: what was asked for."""

    sets: tuple[SetPlan, ...]
    rules: Rules
    with_running: bool
    load_running: bool
    prefix_cache: bool
    as_json: Mapping[str, Any]

    @property
    def comparisons(self) -> int:
        """How many differences to the running node are judged."""
        return 3 * len(self.sets)

    @property
    def sides(self) -> int:
        """How many nodes get load."""
        return 2 if self.load_running else 1

    @property
    def steps(self) -> int:
        """How many sequences are compared and blocks of load sent."""
        loads = [one.load for one in self.sets if one.load is not None]
        return sum(one.plan.steps for one in self.sets) + sum(self.sides * len(blocks(load)) for load in loads)


def gate_plan(settings: AcceptPlan, *, file: Path, seed: int, shipped: Mapping[str, Path]) -> GatePlan:
    """Draw the prompts and put everything together. Raises ConfigError for a prompts file that cannot be used."""
    drawn = [
        _set(name, settings, path=prompts_of(settings, name, folder=file.parent, shipped=shipped), seed=seed)
        for name in settings.task_sets
    ]
    tests = sum(critical_limits(limits) for one in drawn for limits in (one.plan.limits, *one.plan.parts.values()))
    level = interval_level(CONFIDENCE, tests=tests, looks=1)
    sets = tuple(replace(one, plan=replace(one.plan, level=level)) for one in drawn)
    load = settings.load
    return GatePlan(
        sets=sets,
        rules=settings.rules(),
        with_running=settings.running is not None,
        load_running=load is not None and load.running,
        prefix_cache=load is not None and load.prefix_cache,
        as_json={
            "file": str(file),
            "digest": hashlib.sha256(settings.model_dump_json().encode()).hexdigest()[:12],
            "scheme": settings.scheme.value,
            "seed": seed,
            "task_sets": {one.name: _set_json(one) for one in sets},
            "load": None if load is None else load.model_dump(mode="json"),
            "gates": settings.gates.model_dump(mode="json"),
        },
    )


def _set(name: str, settings: AcceptPlan, *, path: Path, seed: int) -> SetPlan:
    one = settings.task_sets[name]
    planned = planned_draw(load_set(path), size=one.draw, seed=seed, mode=one.mode)
    plan = Plan(
        sets=(replace(planned, name=name),),
        limits=limits_for(settings.scheme, settings.limits, one.limits),
        parts=one.slices.values(),
        k=one.k,
        seed=seed,
        continuation_tokens=one.continuation_tokens,
        positions=one.positions,
    )
    load = None
    if settings.load is not None and name in settings.loaded:
        load = LoadPlan(settings.load.requests, settings.load.concurrency, settings.load.time_limit)
    return SetPlan(name, plan, load)


def _set_json(one: SetPlan) -> dict[str, Any]:
    (planned,) = one.plan.sets
    return {
        "pool": planned.pool,
        "draw": planned.drawn,
        "mode": planned.mode.value,
        "k": one.plan.k,
        "level": one.plan.level,
        "limits": _limits_json(one.plan.limits),
        "slices": {f"{kind} {value}": _limits_json(limits) for (kind, value), limits in one.plan.parts.items()},
    }


def _limits_json(limits: Mapping[Metric, Limit]) -> dict[str, Any]:
    return {metric.value: {"warn": limit.warn, "critical": limit.critical} for metric, limit in limits.items()}
