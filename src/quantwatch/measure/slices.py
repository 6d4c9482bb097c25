"""The numbers of parts of a task set: by depth, length, language, protocol tokens and rank."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quantwatch.flow.divergence import Dimension, Slice
from quantwatch.measure.interval import clustered_mean, exponential, share

EARLY, MIDDLE = 16, 64
"""Tokens of the answer at which `early` and `middle` end."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of one drawn sequence. protocol: positions whose token belongs to a protocol; None: not known."""

    language: str | None = None
    length: str | None = None
    protocol: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """The positions of all pairs, one below the other.

    clusters: (n,) int64, which draw. depth: (n,) int64, index of the token in the answer, negative in the prompt. kl:
    (n,) nats. log_ratio: (n,) baseline minus node log-probability of the own token, where known, (n,) bool. same_top:
    (n,) bool. prompt_ids, traits, ranks: by draw.
    """

    clusters: Tensor
    depth: Tensor
    protocol: Tensor
    kl: Tensor
    log_ratio: Tensor
    known: Tensor
    same_top: Tensor
    prompt_ids: Sequence[str]
    traits: Sequence[Traits]
    ranks: Sequence[int | None]


PROTOCOL_UNKNOWN, PROTOCOL_NO, PROTOCOL_YES = -1, 0, 1


def slices(rows: Rows, *, level: float) -> tuple[Slice, ...]:
    """Every part that has positions, in the order of Dimension. level: of the two-sided intervals over prompts."""
    return tuple(_slice(rows, *part, level=level) for part in _parts(rows) if bool(part[2].any()))


def _parts(rows: Rows) -> Iterator[tuple[Dimension, str, Tensor]]:
    depth = rows.depth
    yield Dimension.DEPTH, "early", (depth >= 0) & (depth < EARLY)
    yield Dimension.DEPTH, "middle", (depth >= EARLY) & (depth < MIDDLE)
    yield Dimension.DEPTH, "late", depth >= MIDDLE
    yield from _by_draw(rows, Dimension.LENGTH, [one.length for one in rows.traits])
    yield from _by_draw(rows, Dimension.LANGUAGE, [one.language for one in rows.traits])
    yield Dimension.PROTOCOL, "yes", rows.protocol == PROTOCOL_YES
    yield Dimension.PROTOCOL, "no", rows.protocol == PROTOCOL_NO
    yield from _by_draw(rows, Dimension.RANK, [None if one is None else str(one) for one in rows.ranks])


def _by_draw(rows: Rows, dimension: Dimension, values: Sequence[str | None]) -> Iterator[tuple[Dimension, str, Tensor]]:
    for value in sorted({one for one in values if one is not None}):
        yield dimension, value, torch.tensor([one == value for one in values])[rows.clusters]


def _slice(rows: Rows, dimension: Dimension, value: str, keep: Tensor, *, level: float) -> Slice:
    clusters, told = rows.clusters[keep], keep & rows.known
    draws = torch.unique(clusters).tolist()
    return Slice(
        dimension=dimension,
        value=value,
        prompts=len(draws),
        distinct_prompts=len({rows.prompt_ids[draw] for draw in draws}),
        positions=len(clusters),
        kl_mean=clustered_mean(rows.kl[keep], clusters, level=level),
        perplexity_ratio=exponential(clustered_mean(rows.log_ratio[told], rows.clusters[told], level=level)),
        top1_agreement=share(clustered_mean(rows.same_top[keep].double(), clusters, level=level)),
    )
