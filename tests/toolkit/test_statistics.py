"""Streaming statistics give what the whole data would have given, whatever comes in which order."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quantwatch.toolkit.statistics import CHANNEL_BINS, TENSOR_BINS, Bins, ChannelStatistics, Moments


def some(rows: int, columns: int = 5, *, seed: int = 0, spread: float = 1.0) -> Tensor:
    """Heavy-tailed numbers whose columns differ in size and mean."""
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=chance) ** 3
    return x * 10 ** (spread * torch.randn(columns, generator=chance)) + torch.arange(columns)


def seen(*parts: Tensor) -> ChannelStatistics:
    made = ChannelStatistics(parts[0].shape[-1])
    for part in parts:
        made.add(part)
    return made


def test_moments_of_four_numbers_by_hand() -> None:
    """1 2 3 6: mean 3, away -2 -1 0 3; squares 14, cubes 18, fourth powers 98; kurtosis 4 * 98 / 14^2 = 2."""
    made = Moments.of(torch.tensor([[1.0], [2.0], [3.0], [6.0]]))
    assert (made.count, float(made.mean)) == (4, 3.0)
    assert [float(one) for one in (made.second, made.third, made.fourth)] == [14.0, 18.0, 98.0]
    assert float(made.kurtosis()) == pytest.approx(2.0)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 1000))
def test_moments_joined_are_those_of_the_whole(sizes: list[int], seed: int) -> None:
    parts = [some(size, seed=seed + i) for i, size in enumerate(sizes)]
    joined = Moments.of(parts[0])
    for part in parts[1:]:
        joined = joined.joined(Moments.of(part))
    whole = Moments.of(torch.cat(parts))
    assert joined.count == whole.count
    for name in ("mean", "second", "third", "fourth"):
        scale = float(whole.fourth.max()) if name == "fourth" else float(getattr(whole, name).abs().max())
        torch.testing.assert_close(getattr(joined, name), getattr(whole, name), rtol=1e-9, atol=1e-9 * scale + 1e-12)


def test_columns_taken_as_one_are_one_long_column() -> None:
    x = some(50)
    as_one, whole = Moments.of(x).over_all(), Moments.of(x.reshape(-1, 1))
    assert as_one.count == whole.count
    for name in ("mean", "second", "third", "fourth"):
        torch.testing.assert_close(getattr(as_one, name), getattr(whole, name), rtol=1e-9, atol=1e-9)


def test_a_constant_has_no_kurtosis_and_a_normal_distribution_has_three() -> None:
    assert math.isnan(float(Moments.of(torch.full((9, 1), 0.1)).kurtosis()))
    normal = torch.randn(200_000, 1, generator=torch.Generator().manual_seed(0))
    assert float(Moments.of(normal).kurtosis()) == pytest.approx(3.0, abs=0.1)


def test_edges_of_the_bins_by_hand() -> None:
    """Four bins an octave from 2^-16: the second begins at 1.25 times it, 1.0 begins the 65th."""
    edges = CHANNEL_BINS.edges()
    assert len(edges) == 129
    assert edges[:3].tolist() == [0.0, 1.25 * 2**-16, 1.5 * 2**-16]
    assert edges[64:69].tolist() == [1.0, 1.25, 1.5, 1.75, 2.0]
    assert edges[-1] == 2.0**16


@pytest.mark.parametrize("bins", [CHANNEL_BINS, TENSOR_BINS])
def test_a_size_stands_between_the_edges_of_its_bin(bins: Bins) -> None:
    sizes = 10 ** (6 * torch.rand(5000, generator=torch.Generator().manual_seed(0)) - 4)
    sizes = torch.cat([sizes, bins.edges()[1:-1].float()])
    index, edges = bins.index(sizes), bins.edges()
    assert bool((edges[index] <= sizes).all())
    assert bool((sizes < edges[index + 1]).all())


def test_sizes_beyond_the_bins_are_counted_at_their_ends() -> None:
    assert CHANNEL_BINS.index(torch.tensor([0.0, 1e-40, 1e-6, 7e4, 3e38])).tolist() == [0, 0, 0, 127, 127]


def test_quantile_and_share_by_hand() -> None:
    """Four sizes from 1.0 to 1.25 and four from 2.0 to 2.5: the median ends the first bin."""
    counts = torch.zeros(1, CHANNEL_BINS.number)
    counts[0, 64], counts[0, 68] = 4, 4
    assert float(CHANNEL_BINS.quantile(counts, 0.5)) == pytest.approx(1.25)
    assert float(CHANNEL_BINS.quantile(counts, 0.25)) == pytest.approx(1.125)
    assert float(CHANNEL_BINS.quantile(counts, 0.75)) == pytest.approx(2.25)
    limits = torch.tensor([1.125], dtype=torch.float64)
    assert float(CHANNEL_BINS.share_up_to(counts, limits)) == pytest.approx(0.25)


def test_nothing_counted_is_all_within_any_limit() -> None:
    counts = torch.zeros(2, CHANNEL_BINS.number)
    assert CHANNEL_BINS.share_up_to(counts, torch.zeros(2, dtype=torch.float64)).tolist() == [1.0, 1.0]
    assert CHANNEL_BINS.quantile(counts, 0.5).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_a_quantile_is_within_its_bin(share: float) -> None:
    x = some(4000, 3, seed=2)
    made = seen(x)
    truth = x.abs().double().quantile(share, dim=0)
    assert bool(((CHANNEL_BINS.quantile(made.counts, share) / truth - 1).abs() < 1 / 4).all())
    whole = float(TENSOR_BINS.quantile(made.whole.unsqueeze(0), share))
    assert whole == pytest.approx(float(x.abs().double().flatten().quantile(share)), rel=1 / 100)


def test_pieces_give_what_the_whole_gives() -> None:
    x = some(60)
    by_piece, whole = seen(x[:7].view(1, 7, 5), x[7:8], x[8:].view(2, 26, 5)), seen(x)
    assert torch.equal(by_piece.least, whole.least)
    assert torch.equal(by_piece.absmax, x.abs().amax(0))
    assert torch.equal(by_piece.counts, whole.counts)
    assert torch.equal(by_piece.whole, whole.whole)
    assert by_piece.tokens == whole.tokens == 60
    assert by_piece.by_token[8].zeros == whole.by_token[8].zeros


def test_memory_does_not_grow_with_tokens() -> None:
    made = seen(some(4))
    before = sum(one.numel() for one in (made.counts, made.whole, made.least, made.most))
    for seed in range(20):
        made.add(some(50, seed=seed))
    assert sum(one.numel() for one in (made.counts, made.whole, made.least, made.most)) == before


def test_scales_of_a_token_by_hand() -> None:
    """max 127 and 254: steps of 1 and 2. 0.5 and 1.0 round to 0 (to even), 1.4 and 2.9 to 1."""
    made = seen(torch.tensor([[127.0, 0.5, 1.4, -3.0], [254.0, 1.0, -2.9, 6.0]]))
    token = made.by_token[8]
    assert token.total == pytest.approx(3.0)
    assert token.largest == pytest.approx(2.0)
    assert (token.zeros, token.small) == (2, 4)


def test_what_is_not_finite_stops_the_counting() -> None:
    made = seen(torch.ones(2, 3), torch.tensor([[1.0, math.nan, 0.0]]), torch.ones(4, 3))
    assert made.broken
    assert made.tokens == 2


def test_no_token_changes_nothing() -> None:
    made = seen(torch.empty(0, 3))
    assert made.tokens == 0
    assert not made.broken


def test_zeros_are_scaled_by_something() -> None:
    made = seen(torch.zeros(2, 3))
    assert (made.by_token[4].zeros, made.by_token[4].total) == (6, 0.0)
