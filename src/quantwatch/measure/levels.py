"""Levels of a node over several cycles: pooled with prompts as units, the spread between cycles, and the shape."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quantwatch.flow.calibration import (
    BINS,
    BINS_A_DECADE,
    LOWEST_DECADE,
    Level,
    Noise,
    PartLevels,
    Reach,
    Spread,
    distance,
    near_end,
)
from quantwatch.flow.divergence import Dimension, Divergence, Estimate, Slice
from quantwatch.flow.verdict import Interval, Metric
from quantwatch.measure.compare import Pair, Scope, position_values, rows_of
from quantwatch.measure.interval import (
    clustered_mean,
    clustered_quantile,
    exponential,
    quantile,
    share,
    student_quantile,
)
from quantwatch.measure.slices import Rows, slices

VALUE_CHANCE = 0.01
"""How often a healthy run may exceed the bound on its value; a warning costs nobody anything."""


def sample(pairs: Sequence[Pair]) -> Rows:
    """Continuation positions of the pairs, small enough to keep for every cycle. Raises ValueError for no pairs."""
    if not pairs:
        raise ValueError("nothing to pool: no sequence was answered twice")
    return rows_of(pairs, position_values(pairs, Scope.CONTINUATION))


def joined(samples: Sequence[Rows]) -> Rows:
    """Several cycles as one with the prompt as the unit: drawn twice, in one cycle or in two, it is one cluster.

    Where several data-parallel ranks answered, a prompt is a unit at each of them.
    """
    draws = [
        (name, rank, traits)
        for one in samples
        for name, rank, traits in zip(one.prompt_ids, one.ranks, one.traits, strict=True)
    ]
    units = {(name, rank): traits for name, rank, traits in draws}
    place = {unit: i for i, unit in enumerate(units)}
    clusters = [
        torch.tensor([place[unit] for unit in zip(one.prompt_ids, one.ranks, strict=True)])[one.clusters]
        for one in samples
    ]
    return Rows(
        clusters=torch.cat(clusters),
        prompt_ids=[name for name, _ in units],
        traits=list(units.values()),
        ranks=[rank for _, rank in units],
        **{name: torch.cat([getattr(one, name) for one in samples]) for name in _COLUMNS},
    )


_COLUMNS = ("depth", "protocol", "kl", "log_ratio", "known", "same_top")


def estimates(whole: Rows) -> dict[Metric, Estimate]:
    """Every metric of a joined sample, with 95 % intervals over prompts (interval.clustered_mean)."""
    ratio = clustered_mean(whole.log_ratio[whole.known], whole.clusters[whole.known])
    return {
        Metric.KL_MEAN: clustered_mean(whole.kl, whole.clusters),
        Metric.KL_P99: clustered_quantile(whole.kl, whole.clusters, 0.99),
        Metric.PERPLEXITY_RATIO: exponential(ratio),
        Metric.TOP1_AGREEMENT: share(clustered_mean(whole.same_top.double(), whole.clusters)),
    }


@dataclass(frozen=True, slots=True)
class Cycles:
    """What all cycles gave. single: each as it is judged. samples: their positions. noise: servers against themselves.

    chance: as in Reach.near_chance.
    """

    single: Sequence[Divergence]
    samples: Sequence[Rows]
    noise: Mapping[Noise, Sequence[Rows]]
    chance: float


def levels(cycles: Cycles) -> tuple[Level, ...]:
    """Every metric over all cycles. Raises ValueError for no cycle."""
    floors = {kind: estimates(joined(some)) for kind, some in cycles.noise.items() if some}
    single = [_by_metric(one) for one in cycles.single]
    return _levels(estimates(joined(cycles.samples)), single, floors, cycles.chance)


def part_levels(cycles: Cycles) -> tuple[PartLevels, ...]:
    """The same for every part of the task set that has positions, without p99."""
    floors = {kind: _parts(joined(some)) for kind, some in cycles.noise.items() if some}
    single = [{_key(part): part for part in one.slices} for one in cycles.single]
    found = []
    for key, whole in _parts(joined(cycles.samples)).items():
        mine = [_by_metric(parts[key]) for parts in single if key in parts]
        noise = {kind: _by_metric(parts[key]) for kind, parts in floors.items() if key in parts}
        of_part = _levels(_by_metric(whole), mine, noise, cycles.chance)
        found.append(PartLevels(*key, whole.distinct_prompts, whole.positions, len(mine), of_part))
    return tuple(found)


def _parts(whole: Rows) -> dict[tuple[Dimension, str], Slice]:
    return {_key(part): part for part in slices(whole, level=0.95)}


def _key(part: Slice) -> tuple[Dimension, str]:
    return part.dimension, part.value


def _by_metric(numbers: Divergence | Slice) -> dict[Metric, Estimate]:
    """The estimates that carry limits; a part has no p99."""
    return {metric: getattr(numbers, metric.value) for metric in Metric if hasattr(numbers, metric.value)}


def _levels(
    pooled: Mapping[Metric, Estimate],
    cycles: Sequence[Mapping[Metric, Estimate]],
    noise: Mapping[Noise, Mapping[Metric, Estimate]],
    chance: float,
) -> tuple[Level, ...]:
    found = []
    for metric, estimate in pooled.items():
        single = tuple(one[metric] for one in cycles)
        whole = estimate if estimate.interval is not None else over_cycles(estimate.value, single)
        floors = {kind: one[metric] for kind, one in noise.items()}
        found.append(Level(metric, whole, single, floors, reach(metric, single, chance)))
    return tuple(found)


def over_cycles(value: float, cycles: Sequence[Estimate], *, level: float = 0.95) -> Estimate:
    """A pooled value that has no interval over prompts, with the t interval over its cycles, stretched to hold it."""
    if len(cycles) < 2:
        return Estimate(value)
    center, half = _t_interval([one.value for one in cycles], level)
    return Estimate(value, Interval(min(value, center - half), max(value, center + half), level))


def reach(metric: Metric, cycles: Sequence[Estimate], chance: float) -> Reach | None:
    """Upper prediction bounds for one more cycle, None under two of them.

    mean + t(1 - chance; n - 1) * s * sqrt(1 + 1/n) over the n cycles: one-sided, for a new observation of the same
    normal distribution (Hahn and Meeker, Statistical Intervals, chapter 4). s holds the draw of the prompts and the
    effect that load has on a whole cycle.
    """
    if len(cycles) < 2:
        return None
    values = [distance(metric, one.value) for one in cycles]
    near = [near_end(metric, one) for one in cycles]
    return Reach(_predicted(values, VALUE_CHANCE), _predicted(near, chance), VALUE_CHANCE, chance)


def _predicted(values: Sequence[float], chance: float) -> float:
    if not all(math.isfinite(value) for value in values):
        return math.inf
    n = len(values)
    mean = sum(values) / n
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    return mean + student_quantile(1.0 - 2.0 * chance, n - 1) * spread * math.sqrt(1 + 1 / n)


def _t_interval(values: Sequence[float], level: float) -> tuple[float, float]:
    n = len(values)
    mean = sum(values) / n
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    return mean, student_quantile(level, n - 1) * spread / math.sqrt(n)


def by_prompt(whole: Rows) -> Tensor:
    """Mean KL of every unit of a joined sample: (m,) float64 nats; only those with a usable position."""
    units = len(whole.prompt_ids)
    sums = torch.zeros(units, dtype=torch.float64).index_add_(0, whole.clusters, whole.kl)
    sizes = torch.bincount(whole.clusters, minlength=units)
    return sums[sizes > 0] / sizes[sizes > 0]


def spread(name: str, values: Tensor) -> Spread:
    """How KL values spread over logarithmic bins. values: (n,) float64; a rounding below 0 counts as 0."""
    above = values[values > 0]
    places = ((above.log10() - LOWEST_DECADE) * BINS_A_DECADE).floor().clamp(0, BINS - 1).long()
    return Spread(
        name,
        tuple(torch.bincount(places, minlength=BINS).tolist()),
        zeros=len(values) - len(above),
        median=quantile(values, 0.5),
        p99=quantile(values, 0.99),
        largest=quantile(values, 1.0),
    )
