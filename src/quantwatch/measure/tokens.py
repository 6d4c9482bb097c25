"""Which tokens two servers disagreed about: the worst prompts of a run, position by position."""

import math
from collections.abc import Mapping, Sequence

import torch

from quantwatch.flow.distribution import Distribution
from quantwatch.flow.tokens import Candidate, PromptSeen, TokenSeen, TokensSeen
from quantwatch.measure.compare import Pair, Scope, counted, position_kl
from quantwatch.measure.listed import listed, tail_mass

PROMPTS = 8
"""Prompts of a run that are kept."""

WIDTH = 10
"""Candidates of each list that are kept."""

LONGEST = 256
"""Positions of a prompt that are kept: the window around the worst."""

Side = tuple[tuple[Candidate, ...], float | None, float]
"""Of one position at one server: the top of its list, the golden token's own log-probability, and the tail."""


def tokens_seen(pairs: Sequence[Pair], *, scope: Scope, prompts: int = PROMPTS, width: int = WIDTH) -> TokensSeen:
    """The worst prompts of a run: those with broken numbers first, then by the sum of KL over their positions.

    The run's mean KL is over positions, so that sum in nats is a prompt's part in it; by its own mean an answer of one
    token would come before one that is bad throughout. A prompt drawn twice counts once. Positions outside the scope
    and those where the baseline's own numbers are broken are left out, and so is a prompt without any other. Raises
    ValueError for a pair that does not know the golden tokens.
    """
    distinct = list({pair.baseline.prompt_id: pair for pair in pairs}.values())
    if not distinct:
        return TokensSeen((), 0)
    found = zip(distinct, position_kl(distinct, scope), strict=True)
    known = [(pair, _by_row(pair, scope, kl.tolist())) for pair, kl in found]
    worst = sorted(((pair, kls) for pair, kls in known if _shown(pair, scope)), key=_badness, reverse=True)
    return TokensSeen(tuple(_prompt(pair, kls, scope, width) for pair, kls in worst[:prompts]), len(distinct))


def _by_row(pair: Pair, scope: Scope, kls: Sequence[float]) -> dict[int, float]:
    """The KL of each usable row. kls: of these rows alone, in their order."""
    return dict(zip(counted(pair, scope).nonzero().flatten().tolist(), kls, strict=True))


def _shown(pair: Pair, scope: Scope) -> list[int]:
    """Rows in scope that the baseline can be asked about."""
    first = pair.baseline.prompt_length if scope is Scope.CONTINUATION else 0
    broken = {mark.row for mark in pair.baseline.marks}
    return [row for row, position in enumerate(pair.baseline.positions) if position >= first and row not in broken]


def _badness(one: tuple[Pair, Mapping[int, float]]) -> tuple[bool, float]:
    pair, kls = one
    return bool(pair.node.marks), math.fsum(kls.values())


def _prompt(pair: Pair, kls: Mapping[int, float], scope: Scope, width: int) -> PromptSeen:
    marks = {mark.row: f"{mark.kind}: {mark.detail}" for mark in pair.node.marks}
    rows = _window(_shown(pair, scope), kls, marks)
    sides = zip(_side(pair.baseline, rows, width), _side(pair.node, rows, width), strict=True)
    return PromptSeen(
        prompt_id=pair.baseline.prompt_id,
        mode=pair.baseline.mode,
        prompt_length=pair.baseline.prompt_length,
        kl_mean=math.fsum(kls.values()) / len(kls) if kls else math.nan,
        kl_max=max(kls.values(), default=math.nan),
        tokens=tuple(
            TokenSeen(
                position=(position := pair.baseline.positions[row]),
                id=_golden(pair, position),
                kl=kls.get(row),
                logprob_baseline=own,
                logprob_node=other,
                baseline=ours,
                node=theirs,
                tail_baseline=tail,
                tail_node=rest,
                mark=marks.get(row),
            )
            for row, ((ours, own, tail), (theirs, other, rest)) in zip(rows, sides, strict=True)
        ),
    )


def _window(rows: list[int], kls: Mapping[int, float], marks: Mapping[int, str]) -> list[int]:
    """At most LONGEST neighbouring rows with the worst in their middle, as far as there are any on both sides."""
    worst = max(range(len(rows)), key=lambda i: (rows[i] in marks, kls.get(rows[i], 0.0)))
    start = max(min(worst - LONGEST // 2, len(rows) - LONGEST), 0)
    return rows[start : start + LONGEST]


def _golden(pair: Pair, position: int) -> int:
    if position >= len(pair.sequence):
        raise ValueError(f"{pair.baseline.prompt_id}: which token stands at {position} is not known")
    return pair.sequence[position]


def _side(one: Distribution, rows: list[int], width: int) -> list[Side]:
    """What a server said at these rows, the most probable first; nothing is listed where its numbers are broken."""
    side = listed([one]).rows(torch.tensor(rows, dtype=torch.int64))
    ranked = side.logprobs.where(side.held, -math.inf).sort(dim=1, descending=True, stable=True)
    ids, values = side.ids.gather(1, ranked.indices).tolist(), ranked.values.tolist()
    held, actual = side.held.sum(1).clamp(max=width).tolist(), side.actual.tolist()
    return [
        (
            tuple(map(Candidate, ids[i][: held[i]], values[i][: held[i]])),
            None if math.isnan(actual[i]) else actual[i],
            tail,
        )
        for i, tail in enumerate(tail_mass(side.masses).tolist())
    ]
