"""Limits out of a healthy node's measured levels, or the reason why there are none. A proposal; nothing adopts it.

Everything is a distance d from "equal to the baseline" (flow.calibration): KL in nats, |ln perplexity ratio|,
1 - top-1 agreement. Of a metric, over all cycles:

    m       pooled distance, far its far end (95 % over prompts)
    noise   largest far end of the same metric of a server against itself
    near    prediction bound for the near end of one more healthy run, but for the chance that the family-wise level
            leaves to this metric; value the same for the run's number, but for 1 %

    critical = max(r * m, far, near, floor)
    warn     = min(max(sqrt(m * critical), value), critical),  never under noise or floor / 2; then critical >= warn

r: 2 for 4-bit, 4 for 8-bit schemes. One rung down llama.cpp's ladder of formats is a factor of 2.3 at 4 bits (q4_K_M to
q4_0) and of 4 at 8 bits (q8_0 to q6_K), while kernels, drivers and load move KL by a few percent. A run breaches when
its near end is beyond critical, so the error of a single run is accounted for there and not once more in r. sqrt(m *
critical) is half way on a logarithmic scale. floor: what no kernel noise reaches (the same weights on other kernels
differ by up to about 5e-4 nats: llama.cpp's own CUDA f16 against its stored f16).

A faulty node must not become the new normal: none is proposed from a node that showed broken numbers or changed
meanwhile, from a metric over PLAUSIBLE times the shipped critical distance, or from one on which the node is as far
from itself as from its baseline.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quantwatch.flow.calibration import Level, Noise, Proposal, at_distance, distance, far_end
from quantwatch.flow.verdict import Limit, Metric
from quantwatch.judge.threshold import LABELS

FACTOR = {"int8": 4.0, "fp8": 4.0, "int4": 2.0}
"""r by scheme."""

FLOOR = {Metric.KL_MEAN: 0.002, Metric.KL_P99: 0.02, Metric.PERPLEXITY_RATIO: 0.01, Metric.TOP1_AGREEMENT: 0.02}
"""Least critical distance."""

PLAUSIBLE = 4.0
"""A healthy small model sits several times higher than the models that the shipped limits come from; not more."""

LEAST_CYCLES = 4
"""With fewer, the spread between cycles is a guess: the t factor alone would be over 10."""

LEAST_PROMPTS = 8
"""Different prompts; with fewer the interval over prompts is a guess as well."""

LOWEST_AGREEMENT = 0.05
"""A limit under which agreement can still fall."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a proposal rests on. cycles: usable ones. prompts: different ones. shipped: the scheme's starting limits.

    fault: why nothing of this node may become a limit, found outside the numbers.
    """

    scheme: str
    cycles: int
    prompts: int
    shipped: Mapping[Metric, Limit]
    fault: str | None = None


def propose(levels: Sequence[Level], ground: Ground) -> tuple[Proposal, ...]:
    """Limits for every level, or the reason why there are none."""
    return tuple(_proposed(level, ground) for level in levels)


def _proposed(level: Level, ground: Ground) -> Proposal:
    why_not = _doubt(ground) or _implausible(level, ground) or _unstable(level)
    if why_not is not None:
        return Proposal(level, None, why_not)
    factor = FACTOR[ground.scheme]
    critical, reason = _critical(level, factor)
    warn = _warn(level, critical)
    if warn > critical:
        critical, reason = warn, "the noise floor"
    return Proposal(level, Limit(_outward(level.metric, warn), _outward(level.metric, critical)), reason)


def _doubt(ground: Ground) -> str | None:
    """What speaks against every metric."""
    if ground.fault is not None:
        return f"{ground.fault}; a faulty node must not become the new normal"
    if ground.cycles < LEAST_CYCLES:
        return f"{ground.cycles} usable cycles; {LEAST_CYCLES} are the least"
    if ground.prompts < LEAST_PROMPTS:
        return f"{ground.prompts} different prompts; {LEAST_PROMPTS} are the least"
    return None


def _implausible(level: Level, ground: Ground) -> str | None:
    value = level.pooled.value
    if not all(math.isfinite(far_end(level.metric, one)) for one in (level.pooled, *level.cycles)):
        return f"{LABELS[level.metric]} could not be computed in every cycle"
    shipped = ground.shipped.get(level.metric, Limit()).critical
    if shipped is None or distance(level.metric, value) <= PLAUSIBLE * distance(level.metric, shipped):
        return None
    most = at_distance(level.metric, PLAUSIBLE * distance(level.metric, shipped))
    side = "under" if level.metric is Metric.TOP1_AGREEMENT else "over"
    said = f"{LABELS[level.metric]} {value:.4g} is {side} {most:.4g}, {PLAUSIBLE:g} times what {ground.scheme} ships as"
    return f"{said} critical: look at this node first; a faulty node must not become the new normal"


def _unstable(level: Level) -> str | None:
    """Why the node's own noise, or the lack of its measurement, forbids a limit."""
    if Noise.COLD not in level.noise:
        return "the node was not measured against itself, so its noise is not known"
    metric = level.metric
    noisiest = max(level.noise, key=lambda kind: distance(metric, level.noise[kind].value))
    noise = distance(metric, level.noise[noisiest].value)
    if noise <= FLOOR[metric] or noise < distance(metric, level.pooled.value):
        return None
    whose = "the baseline" if noisiest is Noise.BASELINE else "the node"
    return f"{whose} is as far from itself ({level.noise[noisiest].value:.4g}) as the node from the baseline: unstable"


def _critical(level: Level, factor: float) -> tuple[float, str]:
    """The critical distance and which part of the formula gave it."""
    metric = level.metric
    middle, far = distance(metric, level.pooled.value), far_end(metric, level.pooled)
    parts = {
        f"{factor:g} times the level": factor * middle,
        "the far end of the interval": far,
        "what one more healthy run reaches": level.reach.near if level.reach is not None else 0.0,
        "the floor over kernel noise": FLOOR[metric],
    }
    chosen = max(parts, key=parts.__getitem__)
    return parts[chosen], chosen


def _warn(level: Level, critical: float) -> float:
    metric = level.metric
    half_way = math.sqrt(distance(metric, level.pooled.value) * critical)
    reached = level.reach.value if level.reach is not None else 0.0
    return max(min(max(half_way, reached), critical), noise_floor(level), FLOOR[metric] / 2)


def noise_floor(level: Level) -> float:
    """Largest distance that a server kept from itself, the far end of its interval; 0 where none was measured."""
    return max((far_end(level.metric, estimate) for estimate in level.noise.values()), default=0.0)


def _outward(metric: Metric, away: float) -> float:
    """The limit at a distance, rounded as a person would, away from the baseline."""
    match metric:
        case Metric.PERPLEXITY_RATIO:
            return math.ceil(at_distance(metric, away) * 1000) / 1000
        case Metric.TOP1_AGREEMENT:
            return max(math.floor(at_distance(metric, away) * 1000) / 1000, LOWEST_AGREEMENT)
        case _:
            digits = 2 - math.floor(math.log10(away))
            return round(math.ceil(away * 10.0**digits) / 10.0**digits, max(digits, 0))


def widest(metric: Metric, limits: Sequence[Limit]) -> Limit:
    """The widest of several limits, level by level: what all the nodes keep that they came from."""
    pick = min if metric is Metric.TOP1_AGREEMENT else max
    warns = [one.warn for one in limits if one.warn is not None]
    criticals = [one.critical for one in limits if one.critical is not None]
    return Limit(pick(warns), pick(criticals))
