"""Levels over cycles: prompts as units, noise floors, prediction bounds, histograms."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from scipy import stats

from quantwatch.flow.calibration import BINS, Level, Noise, at_distance, distance, drift, far_end, near_end
from quantwatch.flow.divergence import Dimension, Divergence, Estimate, Slice
from quantwatch.flow.verdict import Interval, Metric
from quantwatch.measure.levels import (
    Cycles,
    by_prompt,
    estimates,
    joined,
    levels,
    over_cycles,
    part_levels,
    reach,
    sample,
    spread,
)
from quantwatch.measure.slices import Rows, Traits
from support.recordings import pairs
from support.stored import divergence


def positions(kl: dict[str, Sequence[float]], *, ratio: float = 0.0, same: bool = True, depth: int = 0) -> Rows:
    """Positions of prompts by name, each drawn once."""
    names = list(kl)
    values = torch.tensor([value for some in kl.values() for value in some], dtype=torch.float64)
    return Rows(
        clusters=torch.tensor([i for i, name in enumerate(names) for _ in kl[name]]),
        depth=torch.full((len(values),), depth),
        protocol=torch.full((len(values),), -1),
        kl=values,
        log_ratio=torch.full_like(values, ratio),
        known=values >= 0,
        same_top=torch.full_like(values, float(same)) > 0,
        prompt_ids=names,
        traits=[Traits(language="en" if name < "c" else "zh") for name in names],
        ranks=[None] * len(names),
    )


def of(*values: float, half: float = 0.0) -> list[Estimate]:
    return [Estimate(value, Interval(value - half, value + half)) for value in values]


def test_a_prompt_in_two_cycles_is_one_unit() -> None:
    whole = joined([positions({"a": [0.1], "b": [0.3]}), positions({"b": [0.5], "c": [0.7]})])

    assert whole.prompt_ids == ["a", "b", "c"]
    assert whole.clusters.tolist() == [0, 1, 1, 2]
    assert [traits.language for traits in whole.traits] == ["en", "en", "zh"]
    assert by_prompt(whole).tolist() == pytest.approx([0.1, 0.4, 0.7])


def test_a_prompt_drawn_twice_in_a_cycle_is_one_unit() -> None:
    drawn = replace(positions({"a": [0.1], "b": [0.3], "c": [0.4]}), prompt_ids=["a", "a", "b"])
    assert joined([drawn]).clusters.tolist() == [0, 0, 1]


def test_a_prompt_is_a_unit_at_each_rank_that_answered() -> None:
    one, two = positions({"a": [0.1]}), replace(positions({"a": [0.3]}), ranks=[1])
    assert joined([one, two]).clusters.tolist() == [0, 1]


def test_twice_the_same_cycle_makes_nothing_surer() -> None:
    one = positions({"a": [0.1, 0.2], "b": [0.3], "c": [0.9]})
    once, twice = estimates(one)[Metric.KL_MEAN].interval, estimates(joined([one, one]))[Metric.KL_MEAN].interval
    assert once is not None
    assert twice is not None
    assert (twice.low, twice.high) == pytest.approx((once.low, once.high))


def test_every_metric_is_estimated_in_its_own_unit() -> None:
    got = estimates(positions({"a": [0.1, 0.3], "b": [0.2]}, ratio=0.5, same=False))

    assert got[Metric.KL_MEAN].value == pytest.approx(0.2)
    assert got[Metric.KL_P99].value == pytest.approx(0.3)
    assert got[Metric.PERPLEXITY_RATIO].value == pytest.approx(math.exp(0.5))
    assert got[Metric.TOP1_AGREEMENT].value == 0.0


def test_tokens_that_the_baseline_does_not_list_stay_out_of_the_ratio() -> None:
    one = positions({"a": [0.1, 0.1], "b": [0.1]})
    one.known[0] = False
    one.log_ratio[0] = 7.0
    one.log_ratio[1:] = 0.2
    assert estimates(one)[Metric.PERPLEXITY_RATIO].value == pytest.approx(math.exp(0.2))


def test_shares_stay_within_0_and_1() -> None:
    one = positions({"a": [0.1], "b": [0.1], "c": [0.1]})
    one.same_top[0] = False
    interval = estimates(one)[Metric.TOP1_AGREEMENT].interval
    assert interval is not None
    assert 0.0 <= interval.low < interval.high <= 1.0


def test_the_prediction_bound_is_that_of_the_textbook() -> None:
    values = [0.011, 0.014, 0.009, 0.012, 0.013]
    got = reach(Metric.KL_MEAN, of(*values, half=0.002), 0.001)
    assert got is not None
    mean, sd = torch.tensor(values).mean().item(), torch.tensor(values).std().item()
    factor = math.sqrt(1 + 1 / 5)

    assert got.value == pytest.approx(mean + stats.t.ppf(0.99, 4) * sd * factor, rel=1e-4)
    assert got.near == pytest.approx(mean - 0.002 + stats.t.ppf(0.999, 4) * sd * factor, rel=1e-4)


def test_one_cycle_predicts_nothing() -> None:
    assert reach(Metric.KL_MEAN, of(0.01), 0.001) is None


def test_without_prompts_enough_the_interval_of_p99_comes_from_the_cycles() -> None:
    got = over_cycles(0.30, of(0.20, 0.22, 0.24))
    assert got.interval is not None

    assert got.interval.high == 0.30  # stretched to hold the pooled value
    assert got.interval.low == pytest.approx(0.22 - stats.t.ppf(0.975, 2) * 0.02 / math.sqrt(3))


def run(kl_mean: float, **parts: float) -> Divergence:
    """A cycle as it was judged, with parts by depth."""
    one = Estimate(kl_mean)
    whole = replace(divergence(), kl_mean=one, kl_p99=one, perplexity_ratio=one, top1_agreement=one)
    cut = [
        Slice(Dimension.DEPTH, name, 2, 2, 2, Estimate(value), Estimate(1.0), Estimate(0.9))
        for name, value in parts.items()
    ]
    return replace(whole, slices=tuple(cut))


def test_levels_hold_every_metric_with_cycles_noise_and_reach() -> None:
    one, two = positions({"a": [0.1], "b": [0.3]}), positions({"b": [0.3], "c": [0.2]})
    quiet = positions({"a": [0.001, 0.003]})
    cycles = Cycles([run(0.2), run(0.3)], [one, two], {Noise.WARM: [quiet], Noise.COLD: []}, 0.001)
    got = {one.metric: one for one in levels(cycles)}

    assert set(got) == set(Metric)
    assert got[Metric.KL_MEAN].pooled.value == pytest.approx(0.225)
    assert got[Metric.KL_MEAN].cycles == (Estimate(0.2), Estimate(0.3))
    assert set(got[Metric.KL_MEAN].noise) == {Noise.WARM}
    assert got[Metric.KL_MEAN].noise[Noise.WARM].value == pytest.approx(0.002)
    assert got[Metric.KL_P99].pooled.interval is not None
    assert got[Metric.KL_MEAN].reach is not None


def test_every_part_has_levels_from_its_own_positions_cycles_and_noise() -> None:
    early, late = positions({"a": [0.1], "c": [0.3]}), positions({"a": [0.5], "b": [0.7]}, depth=100)
    noise = {Noise.COLD: [positions({"a": [0.001]})]}
    found = part_levels(Cycles([run(0.2, early=0.2), run(0.6, early=0.4, late=0.6)], [early, late], noise, 0.001))
    parts = {(str(one.dimension), one.value): one for one in found}

    assert set(parts) == {("depth", "early"), ("depth", "late"), ("language", "en"), ("language", "zh")}
    first, last = parts["depth", "early"], parts["depth", "late"]
    assert (first.cycles, first.prompts, first.positions) == (2, 2, 2)
    assert first.levels[0].pooled.value == pytest.approx(0.2)
    assert first.levels[0].cycles == (Estimate(0.2), Estimate(0.4))
    assert first.levels[0].noise[Noise.COLD].value == pytest.approx(0.001)
    assert (last.cycles, last.levels[0].noise) == (1, {})
    assert [one.metric for one in last.levels] == [Metric.KL_MEAN, Metric.PERPLEXITY_RATIO, Metric.TOP1_AGREEMENT]


def test_values_are_counted_in_logarithmic_bins_and_nothing_is_lost() -> None:
    got = spread("x", torch.tensor([0.0, -1e-17, 1e-12, 1.01e-7, 0.5, 1e9], dtype=torch.float64))

    assert (got.zeros, got.total, len(got.counts)) == (2, 6, BINS)
    assert got.counts[0] == 2
    assert got.counts[-1] == 1
    assert got.counts[int((math.log10(0.5) + 7) * 6)] == 1
    assert (got.median, got.largest) == (1e-12, 1e9)


@pytest.mark.parametrize(
    ("metric", "value", "away"),
    [
        (Metric.KL_MEAN, 0.02, 0.02),
        (Metric.KL_P99, 0.5, 0.5),
        (Metric.PERPLEXITY_RATIO, 0.9, -math.log(0.9)),
        (Metric.PERPLEXITY_RATIO, 0.0, math.inf),
        (Metric.TOP1_AGREEMENT, 0.93, 0.07),
    ],
)
def test_every_metric_has_a_distance_from_equal(metric: Metric, value: float, away: float) -> None:
    assert distance(metric, value) == pytest.approx(away)


@pytest.mark.parametrize("metric", Metric)
@pytest.mark.parametrize("away", [0.0, 0.01, 0.5])
def test_a_distance_and_its_value_are_the_same_thing(metric: Metric, away: float) -> None:
    assert distance(metric, at_distance(metric, away)) == pytest.approx(away)


ENDS = [
    (Metric.KL_MEAN, (0.01, 0.03), 0.01, 0.03),
    (Metric.PERPLEXITY_RATIO, (1.01, 1.03), math.log(1.01), math.log(1.03)),
    (Metric.PERPLEXITY_RATIO, (0.9, 1.03), math.log(0.9), -math.log(0.9)),
    (Metric.TOP1_AGREEMENT, (0.9, 0.98), 0.02, 0.1),
]


@pytest.mark.parametrize(("metric", "ends", "near", "far"), ENDS)
def test_the_near_end_is_the_one_that_a_limit_is_held_against(
    metric: Metric, ends: tuple[float, float], near: float, far: float
) -> None:
    one = Estimate(sum(ends) / 2, Interval(*ends))
    assert near_end(metric, one) == pytest.approx(near)
    assert far_end(metric, one) == pytest.approx(far)


def test_drift_is_told_in_distances_and_by_intervals_that_do_not_meet() -> None:
    def level_of(low: float, high: float) -> Level:
        return Level(Metric.KL_MEAN, Estimate((low + high) / 2, Interval(low, high)), (), {})

    then = level_of(0.15, 0.25)
    doubled, overlapping = drift(then, level_of(0.35, 0.45)), drift(then, level_of(0.1, 0.2))

    assert doubled.beyond == pytest.approx(2.0)
    assert doubled.apart
    assert overlapping.beyond == pytest.approx(0.75)
    assert not overlapping.apart


def test_a_sample_keeps_the_positions_of_the_answers_and_needs_one() -> None:
    got = sample(pairs("int4-w4g64"))

    assert (len(got.kl), len(got.prompt_ids)) == (240, 5)
    with pytest.raises(ValueError, match="no sequence was answered twice"):
        sample([])


def test_a_cycle_without_a_number_predicts_no_bound() -> None:
    got = reach(Metric.KL_MEAN, of(0.01, math.nan, 0.02), 0.001)

    assert got is not None
    assert got.value == math.inf
