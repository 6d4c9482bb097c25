"""A candidate against the running node on the same prompts: paired differences, with the prompt as unit.

What a prompt makes hard, it makes hard for both, so the difference on the same positions has a much smaller error than
the two means have. Bounds are one-sided, from Student's t over prompts (measure/interval.py).
"""

from collections.abc import Sequence

from torch import Tensor

from quantwatch.flow.acceptance import Bounded, Paired
from quantwatch.measure.compare import Pair, Scope, position_values
from quantwatch.measure.interval import clustered_mean

CONFIDENCE = 0.95
"""One-sided, at each end."""


def paired(
    candidate: Sequence[Pair], running: Sequence[Pair], *, scope: Scope, drawn: int, comparisons: int
) -> Paired | None:
    """Candidate minus running node over the prompts that both answered soundly; None where there are none.

    The upper bounds hold with CONFIDENCE each: to pass, all of them must hold, which needs no correction. The lower
    bounds hold with 1 - (1 - CONFIDENCE) / comparisons each, so that all of them hold together (Bonferroni), since one
    of them is enough to fail.
    """
    theirs = {pair.baseline.prompt_id: pair for pair in running if not pair.node.marks}
    ours = [pair for pair in candidate if not pair.node.marks and pair.baseline.prompt_id in theirs]
    if not ours:
        return None
    a = position_values(ours, scope)
    b = position_values([theirs[pair.baseline.prompt_id] for pair in ours], scope)
    known = a.known & b.known
    return Paired(
        drawn=drawn,
        prompts=len(ours),
        distinct_prompts=len({pair.baseline.prompt_id for pair in ours}),
        positions=len(a.kl),
        kl_mean=_bounded(a.kl - b.kl, a.clusters, comparisons),
        log_perplexity=_bounded((b.logprob_node - a.logprob_node)[known], a.clusters[known], comparisons),
        top1=_bounded(b.same_top.double() - a.same_top.double(), a.clusters, comparisons),
    )


def _bounded(differences: Tensor, clusters: Tensor, comparisons: int) -> Bounded:
    """A mean difference: (n,) float64 over clusters (n,) int64; infinite bounds for a single prompt."""
    above = clustered_mean(differences, clusters, level=2 * CONFIDENCE - 1)
    below = clustered_mean(differences, clusters, level=1 - 2 * (1 - CONFIDENCE) / comparisons)
    if above.interval is None or below.interval is None:
        return Bounded(above.value)
    return Bounded(above.value, below.interval.low, above.interval.high)
