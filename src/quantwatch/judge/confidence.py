"""How sure each of many intervals must be, so that all of them together keep the stated level.

A round holds every task set of a target against all of its critical limits, and a draw that cannot decide is enlarged
and looked at again. A healthy target breaches some limit in a round with probability 1 - confidence at most, when each
of the one-sided tests is wrong with probability (1 - confidence) / (tests x looks) at most: the union bound
(Bonferroni), which holds under any dependence.
"""

from collections.abc import Mapping

from quantwatch.flow.verdict import Limit, Metric, Quality, Verdict


def interval_level(confidence: float, *, tests: int, looks: int = 1) -> float:
    """Two-sided level of each interval; a breach looks at one end only, so half of what is outside counts.

    confidence: of the whole round, within 0.5 and 1. tests: critical limits of all task sets. looks: sizes of the draw
    at which an interval may be looked at.
    """
    return 1.0 - 2.0 * (1.0 - confidence) / (max(tests, 1) * max(looks, 1))


def critical_limits(limits: Mapping[Metric, Limit]) -> int:
    """How many of the limits can be breached."""
    return sum(1 for limit in limits.values() if limit.critical is not None)


def draw_sizes(draw: int, at_most: int) -> tuple[int, ...]:
    """The sizes at which a draw is looked at: each twice the one before, the last not over `at_most`, 24 48 96.

    They are fixed in advance, so that enlarging a draw because it could not decide does not make breaches likelier.
    """
    sizes = [draw]
    while sizes[-1] < at_most:
        sizes.append(min(2 * sizes[-1], at_most))
    return tuple(sizes)


def enlarged(sizes: tuple[int, ...], verdict: Verdict, *, now: int) -> int | None:
    """The size at which a draw that could not decide is looked at next; None where none is allowed that would decide.

    now: prompts drawn so far. The finding that is cheapest to decide is decided first: a breach of one limit is one.
    """
    needed = [finding.needed for finding in verdict.findings if finding.needed is not None]
    if verdict.quality is not Quality.INCONCLUSIVE or not needed:
        return None
    return next((size for size in sizes if size > now and size >= min(needed)), None)
