"""The KL of single positions, cell by cell."""

import itertools
import math

import pytest
import torch

from quantwatch.flow.divergence import KL_BOUNDS, Evidence
from quantwatch.measure.compare import Scope, measure
from quantwatch.measure.spread import spread
from support.recordings import pairs


def test_the_bounds_are_three_a_decade() -> None:
    assert len(KL_BOUNDS) == 19
    assert (KL_BOUNDS[0], KL_BOUNDS[-1]) == (1e-5, 10.0)
    assert [b / a for a, b in itertools.pairwise(KL_BOUNDS)] == pytest.approx([2, 2.5, 2] * 6)


def test_every_position_falls_into_the_cell_that_ends_at_or_above_it() -> None:
    got = spread(torch.tensor([-1e-9, 0.0, 1e-5, 1.5e-5, 0.3, 0.5, 0.50001, 10.0, 11.0, 25.0], dtype=torch.float64))

    held = {bound: count for bound, count in zip((*KL_BOUNDS, math.inf), got.counts, strict=True) if count}
    assert held == {1e-5: 3, 2e-5: 1, 0.5: 2, 1.0: 1, 10.0: 1, math.inf: 2}
    most = {bound: one for bound, one in zip((*KL_BOUNDS, math.inf), got.largest, strict=True) if not math.isnan(one)}
    assert most == {1e-5: 1e-5, 2e-5: 1.5e-5, 0.5: 0.5, 1.0: 0.50001, 10.0: 10.0, math.inf: 25.0}
    assert got.total == pytest.approx(47.300025, abs=1e-4)


def test_no_position_at_all_leaves_every_cell_empty() -> None:
    got = spread(torch.empty(0, dtype=torch.float64))
    assert (sum(got.counts), got.total) == (0, 0.0)
    assert all(math.isnan(one) for one in got.largest)


def test_a_measured_node_brings_its_spread() -> None:
    got = measure(pairs("int8-w8a8-outlier"), scope=Scope.CONTINUATION, evidence=Evidence.CENSUS)

    assert got.spread is not None
    assert sum(got.spread.counts) == got.positions == 240
    assert got.spread.total == pytest.approx(got.kl_mean.value * got.positions)
    assert max(one for one in got.spread.largest if not math.isnan(one)) == got.kl_max
