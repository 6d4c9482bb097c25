"""Assembles one Divergence from what both servers said about the same sequences."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from quantwatch.flow.distribution import Distribution
from quantwatch.flow.divergence import Divergence, Estimate, Estimator, Evidence
from quantwatch.flow.verdict import Interval
from quantwatch.measure.agreement import same_top
from quantwatch.measure.interval import clustered_mean, clustered_quantile
from quantwatch.measure.kl import Shared, align, bucket
from quantwatch.measure.listed import Listed, listed
from quantwatch.measure.perplexity import perplexity, token_logprobs

COVERAGE_LIMIT = 0.5
"""Under this much baseline probability on shared tokens a position's bound says little."""


class Scope(StrEnum):
    """Which positions count. Decision-grade numbers come from continuation positions only."""

    CONTINUATION = "continuation"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Pair:
    """Both servers' distributions of one drawn sequence."""

    baseline: Distribution
    node: Distribution

    def __post_init__(self) -> None:
        ours, theirs = self.baseline, self.node
        for what in ("prompt_id", "mode", "k", "prompt_length", "positions"):
            if getattr(ours, what) != getattr(theirs, what):
                raise ValueError(f"{ours.prompt_id}: the two sides differ in {what} and cannot be compared")


@dataclass(frozen=True, slots=True)
class PositionValues:
    """Numbers of n usable positions: clusters (n,) int64, the others (n,) float64 or bool."""

    clusters: Tensor
    kl: Tensor
    same_top: Tensor
    known: Tensor
    logprob_baseline: Tensor
    logprob_node: Tensor
    tail_baseline: Tensor
    tail_node: Tensor
    coverage: Tensor


def measure(pairs: Sequence[Pair], *, scope: Scope, evidence: Evidence) -> Divergence:
    """Compare a node with its baseline over the drawn sequences; a prompt drawn twice counts twice.

    Raises ValueError for no pairs or pairs of mixed k or mode.
    """
    if not pairs:
        raise ValueError("nothing to compare: no sequence was answered by both sides")
    modes = {pair.baseline.mode for pair in pairs}
    if len(modes) > 1:
        raise ValueError(f"a comparison never mixes modes, got {sorted(modes)}")
    values = position_values(pairs, scope)
    ratio = clustered_mean((values.logprob_baseline - values.logprob_node)[values.known], values.clusters[values.known])
    return Divergence(
        estimator=Estimator.BUCKET,
        mode=modes.pop(),
        k=pairs[0].baseline.k,
        evidence=evidence,
        prompts=len(pairs),
        distinct_prompts=len({pair.baseline.prompt_id for pair in pairs}),
        positions=len(values.kl),
        kl_mean=clustered_mean(values.kl, values.clusters),
        kl_p99=clustered_quantile(values.kl, values.clusters, 0.99),
        kl_median=_or_nan(values.kl, Tensor.median),
        kl_max=_or_nan(values.kl, Tensor.max),
        perplexity_baseline=perplexity(values.logprob_baseline[values.known]),
        perplexity_node=perplexity(values.logprob_node[values.known]),
        perplexity_ratio=_exp(ratio),
        top1_agreement=_share(clustered_mean(values.same_top.double(), values.clusters)),
        tail_mass_baseline=float(values.tail_baseline.mean()),
        tail_mass_node=float(values.tail_node.mean()),
        coverage=float(values.coverage.mean()),
        uninformative_positions=int((values.coverage < COVERAGE_LIMIT).sum()),
        corrupted_positions=sum(len(pair.node.marks) for pair in pairs),
    )


def position_values(pairs: Sequence[Pair], scope: Scope) -> PositionValues:
    """Numbers of every usable position: in scope and free of corruption marks on both sides."""
    keep = torch.cat([_usable(pair, scope) for pair in pairs])
    sizes = torch.tensor([len(pair.baseline) for pair in pairs])
    clusters = torch.arange(len(pairs)).repeat_interleave(sizes)[keep]
    baseline = listed([pair.baseline for pair in pairs]).rows(keep)
    node = listed([pair.node for pair in pairs]).rows(keep)
    shared = align(baseline, node)
    tokens = token_logprobs(baseline, node)
    return PositionValues(
        clusters=clusters,
        kl=bucket(shared),
        same_top=same_top(baseline, node),
        known=tokens.known,
        logprob_baseline=tokens.baseline,
        logprob_node=tokens.node,
        tail_baseline=_tail_mass(baseline),
        tail_node=_tail_mass(node),
        coverage=_coverage(shared),
    )


def _usable(pair: Pair, scope: Scope) -> Tensor:
    positions = torch.tensor(pair.baseline.positions)
    first = pair.baseline.prompt_length if scope is Scope.CONTINUATION else 0
    keep = positions >= first
    for mark in (*pair.baseline.marks, *pair.node.marks):
        keep[mark.row] = False
    return keep


def _tail_mass(side: Listed) -> Tensor:
    """Probability outside the listed tokens: (n,)."""
    return (1.0 - (side.logprobs.exp() * side.held).sum(1)).clamp(min=0.0)


def _coverage(shared: Shared) -> Tensor:
    return (shared.p.exp() * shared.both).sum(1).clamp(max=1.0)


def _or_nan(values: Tensor, function: Callable[[Tensor], Tensor]) -> float:
    return float(function(values)) if len(values) else math.nan


def _exp(estimate: Estimate) -> Estimate:
    """Exponentiate a mean log ratio and its interval; what a float cannot hold is infinite."""
    interval = estimate.interval
    if interval is not None:
        interval = Interval(_bounded_exp(interval.low), _bounded_exp(interval.high), interval.level)
    return Estimate(_bounded_exp(estimate.value), interval)


def _bounded_exp(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float64).exp())


def _share(estimate: Estimate) -> Estimate:
    """Keep the interval of a share within 0..1."""
    interval = estimate.interval
    if interval is not None:
        interval = Interval(max(interval.low, 0.0), min(interval.high, 1.0), interval.level)
    return Estimate(estimate.value, interval)
