"""Assembles one Divergence from what both servers said about the same sequences."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from torch import Tensor

from quantwatch.flow.distribution import Distribution
from quantwatch.flow.divergence import Divergence, Estimator, Evidence
from quantwatch.measure.agreement import same_top, topk_overlap
from quantwatch.measure.bounds import sharp
from quantwatch.measure.interval import clustered_mean, clustered_quantile, exponential, share
from quantwatch.measure.kl import Shared, align
from quantwatch.measure.listed import Listed, listed, positions_of, tail_mass, usable
from quantwatch.measure.perplexity import perplexity, token_logprobs
from quantwatch.measure.slices import PROTOCOL_UNKNOWN, Rows, Traits, slices
from quantwatch.measure.spread import spread
from quantwatch.measure.variation import entropy, total_variation

CHUNK = 2048
"""Positions at a time, so that the tensors in work stay in the cache."""

COVERAGE_LIMIT = 0.5
"""Under this much baseline probability on shared tokens a position's bound says little."""


class Scope(StrEnum):
    """Which positions count. Decision-grade numbers come from continuation positions only."""

    CONTINUATION = "continuation"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Pair:
    """Both servers' distributions of one drawn sequence; the baseline may list more than the node.

    sequence: its token ids, empty where nobody wants to see single tokens.
    """

    baseline: Distribution
    node: Distribution
    traits: Traits = field(default=Traits(), kw_only=True)
    sequence: tuple[int, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        ours, theirs = self.baseline, self.node
        for what in ("prompt_id", "mode", "prompt_length", "positions"):
            if getattr(ours, what) != getattr(theirs, what):
                raise ValueError(f"{ours.prompt_id}: the two sides differ in {what} and cannot be compared")
        if ours.exact:
            raise ValueError(f"{ours.prompt_id}: the baseline's list must be its own top k")
        if ours.k < theirs.k:
            raise ValueError(f"{ours.prompt_id}: the baseline's k is less than the node's and cannot be compared")


@dataclass(frozen=True, slots=True)
class PositionValues:
    """Numbers of n usable positions: clusters, depth, protocol (n,) int64, the others (n,) float64 or bool."""

    clusters: Tensor
    depth: Tensor
    protocol: Tensor
    kl: Tensor
    variation_low: Tensor
    variation_high: Tensor
    same_top: Tensor
    topk_overlap: Tensor
    entropy_baseline: Tensor
    entropy_node: Tensor
    known: Tensor
    logprob_baseline: Tensor
    logprob_node: Tensor
    tail_baseline: Tensor
    tail_node: Tensor
    coverage: Tensor


def measure(pairs: Sequence[Pair], *, scope: Scope, evidence: Evidence, level: float = 0.95) -> Divergence:
    """Compare a node with its baseline over the drawn sequences; a prompt drawn twice counts twice.

    level: of every two-sided interval. Raises ValueError for no pairs or pairs of mixed k or mode.
    """
    if not pairs:
        raise ValueError("nothing to compare: no sequence was answered by both sides")
    modes = {pair.baseline.mode for pair in pairs}
    if len(modes) > 1:
        raise ValueError(f"a comparison never mixes modes, got {sorted(modes)}")
    exact = {pair.node.exact for pair in pairs}
    if len(exact) > 1:
        raise ValueError("a comparison never mixes lists of asked ids and of the top k")
    estimator = Estimator.EXACT_IDS if exact.pop() else Estimator.SHARP
    values = position_values(pairs, scope)
    told = values.clusters[values.known]
    delta = (values.logprob_node - values.logprob_baseline)[values.known]
    return Divergence(
        estimator=estimator,
        mode=modes.pop(),
        k=pairs[0].node.k,
        evidence=evidence,
        prompts=len(pairs),
        distinct_prompts=len({pair.baseline.prompt_id for pair in pairs}),
        positions=len(values.kl),
        kl_mean=clustered_mean(values.kl, values.clusters, level=level),
        kl_p99=clustered_quantile(values.kl, values.clusters, 0.99, level=level),
        kl_median=_or_nan(values.kl, Tensor.median),
        kl_max=_or_nan(values.kl, Tensor.max),
        perplexity_baseline=perplexity(values.logprob_baseline[values.known]),
        perplexity_node=perplexity(values.logprob_node[values.known]),
        perplexity_ratio=exponential(clustered_mean(-delta, told, level=level)),
        logprob_delta=clustered_mean(delta, told, level=level),
        top1_agreement=share(clustered_mean(values.same_top.double(), values.clusters, level=level)),
        topk_overlap=float(values.topk_overlap.mean()) if estimator is Estimator.SHARP else math.nan,
        entropy_baseline=float(values.entropy_baseline.mean()),
        entropy_node=float(values.entropy_node.mean()),
        variation_low=float(values.variation_low.mean()),
        variation_high=float(values.variation_high.mean()),
        tail_mass_baseline=float(values.tail_baseline.mean()),
        tail_mass_node=float(values.tail_node.mean()),
        coverage=float(values.coverage.mean()),
        uninformative_positions=int((values.coverage < COVERAGE_LIMIT).sum()),
        corrupted_positions=sum(len(pair.node.marks) for pair in pairs),
        slices=slices(rows_of(pairs, values), level=level),
        spread=spread(values.kl),
    )


def rows_of(pairs: Sequence[Pair], values: PositionValues) -> Rows:
    """The positions with what is known of the draw that each belongs to."""
    return Rows(
        clusters=values.clusters,
        depth=values.depth,
        protocol=values.protocol,
        kl=values.kl,
        log_ratio=values.logprob_baseline - values.logprob_node,
        known=values.known,
        same_top=values.same_top,
        prompt_ids=[pair.baseline.prompt_id for pair in pairs],
        traits=[pair.traits for pair in pairs],
        ranks=[pair.node.rank for pair in pairs],
    )


def position_values(pairs: Sequence[Pair], scope: Scope) -> PositionValues:
    """Numbers of every usable position: in scope and free of corruption marks on both sides."""
    keep, clusters = _kept(pairs, scope)
    baseline, node = _listed(pairs, keep)
    parts = [_numbers(baseline.rows(one), node.rows(one)) for one in _spans(len(clusters))]
    return PositionValues(
        clusters=clusters,
        depth=torch.cat([_depth(pair) for pair in pairs])[keep],
        protocol=torch.cat([_protocol(pair) for pair in pairs])[keep],
        **{name: torch.cat([part[name] for part in parts]) for name in parts[0]},
    )


def position_kl(pairs: Sequence[Pair], scope: Scope) -> list[Tensor]:
    """The bound of every usable position alone, as position_values has it: of each pair (n,) float64 nats."""
    keep, clusters = _kept(pairs, scope)
    baseline, node = _listed(pairs, keep)
    parts = [(baseline.rows(one), node.rows(one)) for one in _spans(len(clusters))]
    kl = torch.cat([sharp(ours, theirs, align(ours, theirs)) for ours, theirs in parts])
    return list(torch.split(kl, torch.bincount(clusters, minlength=len(pairs)).tolist()))


def _kept(pairs: Sequence[Pair], scope: Scope) -> tuple[Tensor, Tensor]:
    """Which of all rows are usable: (n,) bool; and the pair of each of these: (m,) int64."""
    keep = torch.cat([counted(pair, scope) for pair in pairs])
    sizes = torch.tensor([len(pair.baseline) for pair in pairs])
    return keep, torch.arange(len(pairs)).repeat_interleave(sizes)[keep]


def _listed(pairs: Sequence[Pair], keep: Tensor) -> tuple[Listed, Listed]:
    baseline = listed([pair.baseline for pair in pairs]).rows(keep)
    return baseline, listed([pair.node for pair in pairs]).rows(keep)


def _spans(positions: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, max(positions, 1), CHUNK)]


def _numbers(baseline: Listed, node: Listed) -> dict[str, Tensor]:
    """The numbers of each position, by the name that PositionValues gives them."""
    shared = align(baseline, node)
    variation_low, variation_high = total_variation(baseline, node, shared)
    tokens = token_logprobs(baseline, node)
    return {
        "kl": sharp(baseline, node, shared),
        "variation_low": variation_low,
        "variation_high": variation_high,
        "same_top": same_top(baseline, node, shared),
        "topk_overlap": topk_overlap(baseline, node, shared),
        "entropy_baseline": entropy(baseline),
        "entropy_node": entropy(node),
        "known": tokens.known,
        "logprob_baseline": tokens.baseline,
        "logprob_node": tokens.node,
        "tail_baseline": tail_mass(baseline.masses),
        "tail_node": tail_mass(node.masses),
        "coverage": _coverage(shared),
    }


def counted(pair: Pair, scope: Scope) -> Tensor:
    """Which rows of a pair are usable, and so among its position_values in their order: (n,) bool."""
    first = pair.baseline.prompt_length if scope is Scope.CONTINUATION else 0
    return usable(pair.baseline, first=first) & usable(pair.node, first=first)


def _depth(pair: Pair) -> Tensor:
    return positions_of(pair.baseline) - pair.baseline.prompt_length


def _protocol(pair: Pair) -> Tensor:
    marked = pair.traits.protocol
    if marked is None:
        return torch.full((len(pair.baseline),), PROTOCOL_UNKNOWN)
    return torch.tensor([int(position in marked) for position in pair.baseline.positions], dtype=torch.int64)


def _coverage(shared: Shared) -> Tensor:
    return (shared.p.exp() * shared.both).sum(1).clamp(max=1.0)


def _or_nan(values: Tensor, function: Callable[[Tensor], Tensor]) -> float:
    return float(function(values)) if len(values) else math.nan
