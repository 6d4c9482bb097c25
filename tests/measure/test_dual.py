"""The dual is a bound at any multipliers; at the best ones a pair of distributions attains it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quantwatch.measure.bounds import sharp, unknown
from quantwatch.measure.dual import Multipliers, Unknown, dual, solve
from quantwatch.measure.kl import FLOAT32, FLOAT64, align
from quantwatch.measure.listed import Listed
from support.vocabulary import full_kl, rounded, top

CASES = [
    pytest.param(k, wide, size, spread, noise, id=f"{k} of {wide} of {size}, noise {noise}")
    for k, wide, size, spread, noise in [
        (1, 1, 12, 1.0, 1.0),
        (1, 6, 12, 3.0, 4.0),
        (2, 2, 30, 2.0, 3.0),
        (3, 3, 60, 4.0, 6.0),
        (3, 10, 60, 1.0, 2.0),
        (5, 5, 60, 1.0, 0.5),
        (5, 12, 60, 4.0, 3.0),
        (8, 8, 40, 2.0, 3.0),
        (20, 20, 80, 4.0, 6.0),
        (20, 27, 80, 4.0, 6.0),
    ]
]
EACH_CASE = pytest.mark.parametrize(("k", "wide", "size", "spread", "noise"), CASES)
ROWS = 30


def lists(seed: int, k: int, wide: int, *, size: int, spread: float, noise: float) -> tuple[Listed, Listed, Tensor]:
    """Lists of a small vocabulary, where the listed tokens can take nearly all; and the truth."""
    g = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(ROWS, size, generator=g, dtype=torch.float64)
    strength = noise * torch.rand(ROWS, 1, generator=g, dtype=torch.float64)
    shifted = logits + strength * torch.randn(ROWS, size, generator=g, dtype=torch.float64)
    own = torch.randint(size, (ROWS,), generator=g)
    p, q = logits.log_softmax(1), shifted.log_softmax(1)
    return top(p, wide, own=own if seed % 2 else None), top(q, k, own=own if seed % 3 else None), full_kl(p, q)


def problem(baseline: Listed, node: Listed, *, rounding: float = FLOAT64) -> Unknown:
    return unknown(baseline, node, align(baseline, node), rounding=rounding)


# ------------------------------------------------------------------ weak duality


@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, 12),
    logs=st.tuples(st.floats(-30, 30), st.floats(-30, 30)),
    printed=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_any_multipliers_give_a_bound(seed: int, k: int, logs: tuple[float, float], printed: bool) -> None:
    """So whatever a solver returns, the figure is not over the truth."""
    baseline, node, truth = lists(seed, k, k + seed % 5, size=40, spread=2.0, noise=3.0)
    if printed:
        baseline, node = rounded(baseline), rounded(node)
    at = Multipliers(*(torch.full((ROWS,), math.exp(one), dtype=torch.float64) for one in logs))

    value = dual(problem(baseline, node, rounding=FLOAT32 if printed else FLOAT64), at)

    assert float((value - truth).max()) <= (1e-6 if printed else 1e-9)


@pytest.mark.parametrize("steps", [0, 1, 2])
@EACH_CASE
def test_a_solver_that_is_cut_short_loosens_the_bound_and_never_breaks_it(
    k: int, wide: int, size: int, spread: float, noise: float, steps: int
) -> None:
    baseline, node, truth = lists(k + wide, k, wide, size=size, spread=spread, noise=noise)
    open_ = problem(baseline, node)

    short = dual(open_, solve(open_, steps=steps))

    assert float((short - dual(open_, solve(open_))).max()) <= 1e-12
    assert float((short - truth).max()) <= 1e-9


@EACH_CASE
def test_no_other_multipliers_give_more(k: int, wide: int, size: int, spread: float, noise: float) -> None:
    """300 cases in all against a fine grid over both multipliers, zoomed in step by step."""
    baseline, node, _ = lists(k + wide, k, wide, size=size, spread=spread, noise=noise)
    open_ = problem(baseline, node)

    torch.testing.assert_close(dual(open_, solve(open_)), _searched(open_), rtol=0, atol=1e-9)


GRID = 501


def _searched(open_: Unknown) -> Tensor:
    """The largest value over both multipliers, written down afresh and without rounding: (n,)."""
    low = high = torch.zeros(2, ROWS, 1, dtype=torch.float64)
    low, high = low - 45, high + 45
    steps = torch.linspace(0, 1, GRID, dtype=torch.float64)
    for _ in range(9):
        log_p, log_q = low + (high - low) * steps
        value, i, j = _best_of_grid(open_, log_p, log_q)
        middle = torch.stack([log_p.gather(1, i), log_q.gather(1, j)])
        half = 20 * (high - low) / GRID
        low, high = middle - half, middle + half
    return open_.seen + value.squeeze(1)


def _best_of_grid(open_: Unknown, log_p: Tensor, log_q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Over all pairs with the second multiplier not over the first: the value, and where on both axes, each (n, 1)."""
    p, q = open_.p.unsqueeze(1), open_.q.unsqueeze(1)
    free_q = torch.minimum(p / log_p.exp().unsqueeze(2), open_.cap_q.view(-1, 1, 1))
    of_p = _terms(p, free_q) - log_p.exp() * (open_.rest_q.unsqueeze(1) - free_q.sum(2))
    free_p = torch.minimum(q * log_q.exp().unsqueeze(2), open_.cap_p.view(-1, 1, 1))
    of_q = _terms(free_p, q) + (1 + log_q) * (open_.rest_p.unsqueeze(1) - free_p.sum(2))
    suffix, where = of_p.flip(1).cummax(1)
    first = torch.searchsorted(log_p.contiguous(), log_q.contiguous())
    column = first.clamp(max=GRID - 1)
    total = (suffix.flip(1).gather(1, column) + of_q).masked_fill(first == GRID, -torch.inf)
    value, j = total.max(1, keepdim=True)
    return value, GRID - 1 - where.flip(1).gather(1, column.gather(1, j)), j


def _terms(p: Tensor, q: Tensor) -> Tensor:
    return torch.where((p > 0) & (q > 0), p * (p / q.clamp(min=1e-300)).log(), 0.0).sum(2)


# ------------------------------------------------------------------ attained


@EACH_CASE
def test_some_pair_of_distributions_attains_the_bound(
    k: int, wide: int, size: int, spread: float, noise: float
) -> None:
    """The missing probabilities are filled in explicitly: both sides sum to 1, no cap is passed, and the sum is it."""
    baseline, node, _ = lists(k + wide, k, wide, size=size, spread=spread, noise=noise)
    open_ = problem(baseline, node)
    at = solve(open_)

    p, q = _completed(open_, at)

    assert float(p.min()) >= 0
    assert float(q.min()) >= 0
    torch.testing.assert_close(p.sum(1), open_.p.sum(1) + open_.rest_p, rtol=0, atol=1e-12)
    torch.testing.assert_close(q.sum(1), open_.q.sum(1) + open_.rest_q, rtol=0, atol=1e-12)
    reached = open_.seen + torch.where(p > 0, p * (p / q.clamp(min=1e-300)).log(), 0.0).sum(1)
    got = sharp(baseline, node, align(baseline, node), rounding=FLOAT64)
    torch.testing.assert_close(got, reached, rtol=0, atol=1e-9)


def _completed(open_: Unknown, at: Multipliers) -> tuple[Tensor, Tensor]:
    """Tokens of the baseline's list, of the node's, and so many further ones that each is under both caps."""
    q_of_p = torch.minimum(open_.p / at.of_p.unsqueeze(1), open_.cap_q.unsqueeze(1))
    p_of_q = torch.minimum(open_.q * at.of_q.unsqueeze(1), open_.cap_p.unsqueeze(1))
    left_p, left_q = open_.rest_p - p_of_q.sum(1), open_.rest_q - q_of_p.sum(1)
    assert float(torch.minimum(left_p, left_q).min()) >= -1e-12
    further = math.ceil(float(torch.maximum(left_p / open_.cap_p, left_q / open_.cap_q).max())) + 1
    share_p, share_q = (left.clamp(min=0).unsqueeze(1).expand(-1, further) / further for left in (left_p, left_q))
    return torch.cat([open_.p, p_of_q, share_p], 1), torch.cat([q_of_p, open_.q, share_q], 1)


def test_with_one_multiplier_for_both_sides_the_bound_would_be_loose() -> None:
    """The node's 0.35 goes to tokens 1 and 2, the baseline's 0.2 to 3 and 4; nothing is left for one common ratio."""
    values = torch.tensor([[0.4, 0.4, 1.0], [0.35, 0.3, 1.0]], dtype=torch.float64).log()
    baseline, node = (
        Listed(torch.tensor([ids]), row.unsqueeze(0), row[:1], row[1:2])
        for ids, row in zip(([1, 2, -1], [3, 4, -1]), values, strict=True)
    )
    open_ = problem(baseline, node)
    at = solve(open_)

    assert float(at.of_p / at.of_q) == pytest.approx(0.8 / 0.35 * 0.65 / 0.2)
    grid = torch.linspace(-5, 5, 2001, dtype=torch.float64).exp()
    best_common = max(float(dual(open_, Multipliers(one.view(1), one.view(1)))) for one in grid)
    assert float(dual(open_, at)) > best_common + 0.05
