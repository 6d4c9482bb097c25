"""What a calibration gathered -> levels, noise floors and proposals for every target and task set."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from quantwatch.flow.calibration import Calibrated, Noise, PartProposals, SetCalibration, Spread
from quantwatch.flow.verdict import Limit, Metric
from quantwatch.flows.calibrate import Calibration, Gathered
from quantwatch.judge.propose import Ground, propose
from quantwatch.measure.levels import Cycles, by_prompt, joined, levels, part_levels, spread

SHOWN = {Noise.BASELINE: "baseline again", Noise.COLD: "node again, cold", Noise.WARM: "node again, warm"}
"""How the noise is called in a plot."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a calibration is judged. shipped: starting limits by scheme. parts: whether to propose limits for parts."""

    at: datetime
    seed: int
    shipped: Mapping[str, Mapping[Metric, Limit]]
    parts: bool = False


def calibrated(calibration: Calibration, manner: Manner) -> Calibrated:
    """Judge everything gathered so far."""
    every = [one for many in calibration.gathered.values() for one in many]
    return Calibrated(
        at=manner.at,
        asked=calibration.wanted.cycles,
        seed=manner.seed,
        complete=calibration.done == calibration.wanted.cycles,
        sets=tuple(_calibrated(one, manner) for one in every),
        trouble=calibration.trouble,
    )


def _calibrated(one: Gathered, manner: Manner) -> SetCalibration:
    watched = one.target.sets[one.task_set]
    whole = joined(one.samples) if one.samples else None
    prompts = len(set(whole.prompt_ids)) if whole is not None else 0
    ground = Ground(one.target.scheme, len(one.samples), prompts, manner.shipped[one.target.scheme], one.fault)
    first = one.reports[0] if one.reports else None
    cycles = _cycles(one, watched.level)
    return SetCalibration(
        target=one.target.name,
        scheme=one.target.scheme,
        task_set=one.task_set,
        pool=watched.prompts.digest,
        mode=watched.mode,
        k=first.k if first is not None else watched.k,
        estimator=cycles.single[0].estimator if cycles.single else None,
        draw=watched.draw,
        cycles=len(one.samples),
        unusable=tuple(one.unusable),
        fault=one.fault,
        noise_trouble=one.noise_trouble,
        prompts=prompts,
        positions=len(whole.kl) if whole is not None else 0,
        basis=one.basis,
        baseline=one.baseline,
        node=one.node,
        told_apart=one.warm_hits > one.cold_hits,
        proposals=propose(levels(cycles), ground) if one.samples else (),
        in_force=watched.limits,
        spreads=_spreads(one),
        parts=_parts(cycles, ground) if one.samples and manner.parts else (),
    )


def _cycles(one: Gathered, level: float) -> Cycles:
    """What the levels rest on.

    level: two-sided, of every interval of a run, by the family-wise level. A breach looks at one end, so half of what
    it leaves out is the chance that one limit may have.
    """
    single = [report.divergence for report in one.reports if report.divergence is not None]
    return Cycles(single, one.samples, one.noise, (1.0 - level) / 2)


def _parts(cycles: Cycles, ground: Ground) -> tuple[PartProposals, ...]:
    """A part is proposed for from its own cycles and prompts."""
    found = part_levels(cycles)
    return tuple(
        PartProposals(part, propose(part.levels, replace(ground, cycles=part.cycles, prompts=part.prompts)))
        for part in found
    )


def _spreads(one: Gathered) -> tuple[Spread, ...]:
    """How KL spreads, from the quietest to what the limits are for: positions, then means of prompts."""
    found = [spread(SHOWN[kind], joined(one.noise[kind]).kl) for kind in Noise if kind in one.noise]
    if one.samples:
        whole = joined(one.samples)
        found += [spread("node, positions", whole.kl), spread("node, prompts", by_prompt(whole))]
    return tuple(found)
