"""Everything known about a target on a task set -> one verdict with its reasons."""

from collections import Counter
from collections.abc import Mapping, Sequence

from quantwatch.flow.divergence import Divergence
from quantwatch.flow.observation import Missing, Observation
from quantwatch.flow.verdict import Quality, Verdict, worst
from quantwatch.judge.canary import warnings
from quantwatch.judge.threshold import Limits, Part, findings

MAX_MISSING = 0.2
"""When more of the draw than this is missing, the rest does not stand for the pool, and "ok" would be a guess."""

MAX_BLIND = 0.5
"""When more of the positions than this are uninformative, a small KL bound means nothing."""


def conclude(
    observation: Observation,
    divergence: Divergence | None,
    limits: Limits,
    parts: Mapping[Part, Limits] | None = None,
) -> Verdict:
    """The verdict on one task set. parts: limits of its parts, by dimension and value.

    Confirmed corruption comes first; an obstacle makes every number meaningless; a proven breach stands even when part
    of the draw is missing, while a clean bill does not.
    """
    if observation.confirmed:
        return Verdict(Quality.CORRUPTED, (seen_twice(observation.corruption),))
    if observation.obstacle is not None:
        return Verdict(observation.obstacle.quality, (observation.obstacle.reason,))
    if divergence is None:
        return _nothing_measured(observation)
    found = findings(divergence, limits, parts)
    doubts = _doubts(observation) + _blindness(divergence)
    quality = worst([finding.quality for finding in found] + [quality for quality, _ in doubts] or [Quality.OK])
    told = [(finding.quality, finding.reason) for finding in found if finding.quality is not Quality.OK] + doubts
    told.sort(key=lambda one: one[0] is not quality)
    reasons = tuple(reason for _, reason in told)
    return Verdict(quality, reasons or ("all numbers are within their limits",), found)


def seen_twice(sign: str | None) -> str:
    """The sentence for a sign of broken numbers that a second probe confirmed."""
    return f"{sign} (seen twice)"


def seen_once(sign: str) -> str:
    """The sentence for a sign of broken numbers that stands alone."""
    return f"{sign} (not confirmed by a second probe)"


def _nothing_measured(observation: Observation) -> Verdict:
    if observation.corruption is not None:
        return Verdict(Quality.INCONCLUSIVE, (seen_once(observation.corruption),))
    if not observation.missing:
        return Verdict(Quality.SKIPPED, ("nothing was asked before the run ended",))
    return Verdict(_most(observation.missing), tuple(summary(observation.missing)))


def _doubts(observation: Observation) -> list[tuple[Quality, str]]:
    """Reasons besides the limits why the set may not pass."""
    doubts = []
    if observation.corruption is not None:
        doubts.append((Quality.INCONCLUSIVE, seen_once(observation.corruption)))
    missing = sum(one.weight for one in observation.missing)
    if missing > MAX_MISSING * observation.drawn:
        told = "; ".join(summary(observation.missing))
        doubts.append(
            (_most(observation.missing), f"{missing} of {observation.drawn} drawn prompts are missing: {told}")
        )
    doubts += [(Quality.WARN, said) for said in warnings(observation.canary)]
    if observation.interrupted:
        said = f"interrupted after {observation.measured} of {observation.drawn} drawn prompts"
        doubts.append((Quality.INCONCLUSIVE, said))
    return doubts


def _blindness(divergence: Divergence) -> list[tuple[Quality, str]]:
    """A bound over positions where hardly any token is shared says nothing, so it cannot clear a node."""
    blind, all_ = divergence.uninformative_positions, divergence.positions
    if blind <= MAX_BLIND * all_:
        return []
    said = f"at {blind} of {all_} positions the lists share too little for the bound to say much; raise k"
    return [(Quality.INCONCLUSIVE, said)]


def _most(missing: Sequence[Missing]) -> Quality:
    """The kind of trouble that took most draws."""
    counts: Counter[Quality] = Counter()
    for one in missing:
        counts[one.quality] += one.weight
    return counts.most_common(1)[0][0]


def summary(missing: Sequence[Missing], *, most: int = 3) -> list[str]:
    """The distinct reasons, the commonest first, with how many prompts each took."""
    counts = Counter(one.reason for one in missing)
    told = [reason if times == 1 else f"{reason} ({times} prompts)" for reason, times in counts.most_common(most)]
    more = len(counts) - most
    return [*told, f"and {more} further reasons"] if more > 0 else told
