"""Simulated nodes: what a proposed limit is worth, run after run.

The unit is a prompt's mean KL: a pool of 200 prompts with log-normal levels (0.8), log-normal scatter within a prompt
(0.35), and an effect of 6 % on a whole cycle, as load has. Every calibration gets a pool of its own.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from quantwatch.config.limits import Scheme, limits_for
from quantwatch.flow.calibration import Level, Noise
from quantwatch.flow.divergence import Divergence, Estimate
from quantwatch.flow.verdict import Limit, Metric, Quality
from quantwatch.judge.confidence import interval_level
from quantwatch.judge.propose import Ground, propose
from quantwatch.judge.threshold import findings
from quantwatch.measure.interval import clustered_mean
from quantwatch.measure.levels import Cycles, levels
from quantwatch.measure.slices import Rows, Traits
from support.stored import divergence

POOL, CYCLES, DRAW = 200, 8, 24
LEVEL = 0.03
CALIBRATIONS = 40
SURE = interval_level(0.95, tests=6 * 3, looks=3)
"""As a run is judged: six task sets, three critical limits, three sizes of the draw."""

NAMES = [f"p{i}" for i in range(POOL)]
NOTHING = torch.zeros(2, dtype=torch.float64)


def rows(prompts: Tensor, kl: Tensor) -> Rows:
    """One position a draw."""
    n = len(kl)
    none = torch.zeros(n, dtype=torch.int64)
    return Rows(
        clusters=torch.arange(n),
        depth=none,
        protocol=none,
        kl=kl,
        log_ratio=torch.zeros_like(kl),
        known=none == 0,
        same_top=none == 0,
        prompt_ids=[NAMES[i] for i in prompts.tolist()],
        traits=[Traits()] * n,
        ranks=[None] * n,
    )


QUIET = {Noise.COLD: [rows(torch.arange(2), NOTHING)]}


class World:
    """One pool and the draws from it."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        prompts = self._random.lognormal(0, 0.8, POOL)
        self._levels = prompts / prompts.mean() * LEVEL

    def cycle(self, draw: int, worse: float = 1.0) -> Rows:
        """One run: a position a draw, since only the mean of a prompt matters."""
        drawn = self._random.integers(0, POOL, draw)
        within = self._random.lognormal(-(0.35**2) / 2, 0.35, draw)
        kl = self._levels[drawn] * worse * within * self._random.lognormal(-(0.06**2) / 2, 0.06)
        return rows(torch.tensor(drawn), torch.tensor(kl))


def judged(one: Rows) -> Estimate:
    """As a run is judged: every draw is a unit, and the interval is that of the family-wise level."""
    return clustered_mean(one.kl, one.clusters, level=SURE)


def as_run(kl: Estimate, draw: int) -> Divergence:
    return replace(divergence(), kl_mean=kl, prompts=draw, distinct_prompts=draw)


@cache
def calibrations() -> tuple[tuple[World, tuple[Level, ...]], ...]:
    """Pools, each with the levels of its healthy node."""
    found = []
    for seed in range(CALIBRATIONS):
        world = World(seed)
        samples = [world.cycle(DRAW) for _ in range(CYCLES)]
        single = [as_run(judged(one), DRAW) for one in samples]
        found.append((world, levels(Cycles(single, samples, QUIET, (1 - SURE) / 2))))
    return tuple(found)


def worlds(scheme: Scheme) -> Iterator[tuple[World, Limit]]:
    """Pools, each with the limit on mean KL that is proposed from its healthy node."""
    for world, found in calibrations():
        proposals = propose(found, Ground(scheme.value, CYCLES, 100, limits_for(scheme)))
        limit = next(one.limit for one in proposals if one.level.metric is Metric.KL_MEAN)
        assert limit is not None
        yield world, limit


def share(scheme: Scheme, worse: float, draw: int, *qualities: Quality, runs: int = 10) -> float:
    """Of the runs of a node at a multiple of the healthy level, so many a calibration, those that end so."""
    met = 0
    for world, limit in worlds(scheme):
        for _ in range(runs):
            run = as_run(judged(world.cycle(draw, worse)), draw)
            (finding,) = findings(run, {Metric.KL_MEAN: limit})
            met += finding.quality in qualities
    return met / (CALIBRATIONS * runs)


@pytest.mark.parametrize("scheme", [Scheme.INT4, Scheme.INT8])
@pytest.mark.parametrize("draw", [24, 96])
def test_a_healthy_node_hardly_ever_breaches(scheme: Scheme, draw: int) -> None:
    assert share(scheme, 1.0, draw, Quality.DEGRADED, runs=50) <= 0.001


@pytest.mark.parametrize("scheme", [Scheme.INT4, Scheme.INT8])
def test_a_healthy_node_hardly_ever_warns(scheme: Scheme) -> None:
    assert share(scheme, 1.0, 24, Quality.WARN, Quality.INCONCLUSIVE) <= 0.03


def test_a_4_bit_node_at_three_times_its_level_is_never_called_ok() -> None:
    assert share(Scheme.INT4, 3.0, 24, Quality.OK) <= 0.05


def test_a_4_bit_node_at_three_times_its_level_breaches_in_every_other_enlarged_run() -> None:
    """With the level of the whole family: half of the runs at 96 prompts, nearly all at 384."""
    assert share(Scheme.INT4, 3.0, 96, Quality.DEGRADED) >= 0.4
    assert share(Scheme.INT4, 3.0, 384, Quality.DEGRADED, runs=3) >= 0.85


@pytest.mark.parametrize(("scheme", "worse"), [(Scheme.INT4, 4.0), (Scheme.INT8, 8.0)])
def test_a_node_at_twice_its_critical_limit_breaches_in_nearly_every_enlarged_run(scheme: Scheme, worse: float) -> None:
    assert share(scheme, worse, 96, Quality.DEGRADED) >= 0.9


def test_an_8_bit_node_is_left_alone_at_three_times_its_level_and_warned_of() -> None:
    """A rung of the ladder is a factor of 4 there."""
    assert share(Scheme.INT8, 3.0, 24, Quality.DEGRADED) <= 0.01
    assert share(Scheme.INT8, 3.0, 24, Quality.OK) <= 0.1
