"""Proposed limits: never inside the noise, never from a faulty node, rarely reached by a healthy one."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantwatch.config.limits import DEFAULT_LIMITS, LimitSettings, Scheme, limits_for
from quantwatch.flow.calibration import Level, Noise, Proposal, Reach, at_distance, distance, far_end
from quantwatch.flow.divergence import Estimate
from quantwatch.flow.verdict import Interval, Limit, Metric
from quantwatch.judge.propose import FACTOR, FLOOR, LEAST_CYCLES, LEAST_PROMPTS, Ground, noise_floor, propose, widest

GROUND = Ground("int4", 8, 40, limits_for(Scheme.INT4))


def estimate(metric: Metric, near: float, middle: float, far: float) -> Estimate:
    """An estimate by its distances from equal."""
    ends = sorted((at_distance(metric, near), at_distance(metric, far)))
    return Estimate(at_distance(metric, middle), Interval(*ends))


def level(
    metric: Metric = Metric.KL_MEAN,
    middle: float = 0.03,
    *,
    error: float = 0.1,
    noise: float = 0.0,
    reach: tuple[float, float] = (0.0, 0.0),
) -> Level:
    """A level at a distance with a relative error, and servers that keep a distance from themselves."""
    pooled = estimate(metric, middle * (1 - error), middle, middle * (1 + error))
    of_noise = estimate(metric, noise, noise, noise)
    return Level(metric, pooled, (pooled,) * 8, dict.fromkeys(Noise, of_noise), Reach(*reach, 0.01, 0.001))


def proposed(one: Level, ground: Ground = GROUND) -> Proposal:
    (found,) = propose([one], ground)
    return found


def limits(one: Level, ground: Ground = GROUND) -> tuple[float, float]:
    """Distances of warn and critical."""
    limit = proposed(one, ground).limit
    assert limit is not None
    assert limit.warn is not None
    assert limit.critical is not None
    return distance(one.metric, limit.warn), distance(one.metric, limit.critical)


@pytest.mark.parametrize("scheme", Scheme)
def test_every_scheme_has_its_factor(scheme: Scheme) -> None:
    ground = Ground(scheme.value, 8, 40, limits_for(scheme))
    assert limits(level(middle=0.03), ground)[1] == pytest.approx(0.03 * FACTOR[scheme.value], rel=0.01)


def test_there_is_no_factor_for_a_scheme_that_does_not_exist() -> None:
    assert set(FACTOR) == {scheme.value for scheme in Scheme}


@pytest.mark.parametrize("metric", Metric)
def test_critical_is_the_factor_times_the_level_and_warn_half_way_on_a_log_scale(metric: Metric) -> None:
    warn, critical = limits(level(metric, 0.1))

    assert critical == pytest.approx(0.2, rel=0.01)
    assert warn == pytest.approx(math.sqrt(0.1 * 0.2), rel=0.01)


def test_a_wide_interval_lifts_critical_to_its_far_end() -> None:
    assert limits(level(middle=0.03, error=2.0))[1] == pytest.approx(0.09, rel=0.01)
    assert proposed(level(middle=0.03, error=2.0)).reason == "the far end of the interval"


def test_what_a_healthy_run_reaches_lifts_both() -> None:
    assert limits(level(middle=0.03, reach=(0.05, 0.08))) == pytest.approx((0.05, 0.08))


def test_a_warning_is_never_beyond_critical_for_the_sake_of_the_cycles() -> None:
    warn, critical = limits(level(middle=0.03, reach=(0.5, 0.0)))
    assert warn == critical == pytest.approx(0.06)


@pytest.mark.parametrize("metric", Metric)
def test_a_node_like_its_baseline_gets_limits_over_kernel_noise(metric: Metric) -> None:
    assert limits(level(metric, 0.0))[1] == pytest.approx(FLOOR[metric], rel=0.1)


def test_a_ratio_under_1_counts_by_its_magnitude() -> None:
    better = Estimate(0.95, Interval(0.93, 0.97))
    one = replace(level(Metric.PERPLEXITY_RATIO), pooled=better, cycles=(better,) * 8)
    assert limits(one)[1] == pytest.approx(-2 * math.log(0.95), rel=0.01)


@pytest.mark.parametrize(
    ("ground", "words"),
    [
        (replace(GROUND, cycles=LEAST_CYCLES - 1), "3 usable cycles; 4 are the least"),
        (replace(GROUND, prompts=LEAST_PROMPTS - 1), "7 different prompts; 8 are the least"),
        (replace(GROUND, fault="broken numbers: n1: NaN"), "broken numbers: n1: NaN; a faulty node must not become"),
    ],
)
def test_too_little_or_a_fault_gives_no_limit_for_any_metric(ground: Ground, words: str) -> None:
    found = propose([level(metric) for metric in Metric], ground)

    assert [one.limit for one in found] == [None] * 4
    assert all(one.reason.startswith(words) for one in found)


def test_the_least_cycles_and_prompts_are_enough() -> None:
    assert proposed(level(), replace(GROUND, cycles=LEAST_CYCLES, prompts=LEAST_PROMPTS)).limit is not None


@pytest.mark.parametrize("metric", [Metric.KL_MEAN, Metric.PERPLEXITY_RATIO, Metric.TOP1_AGREEMENT])
def test_beyond_four_times_the_shipped_critical_is_a_faulty_node(metric: Metric) -> None:
    shipped = DEFAULT_LIMITS[Scheme.INT8].values()
    ground = Ground("int8", 8, 40, shipped)
    most = 4 * distance(metric, shipped[metric].critical or 0.0)

    assert proposed(level(metric, most * 0.99), ground).limit is not None
    refused = proposed(level(metric, most * 1.01), ground)
    assert refused.limit is None
    assert "4 times what int8 ships as critical: look at this node first" in refused.reason


def test_an_unstable_node_gets_no_limit() -> None:
    refused = proposed(level(middle=0.03, noise=0.031))

    assert refused.limit is None
    assert "as far from itself (0.031) as the node from the baseline: unstable" in refused.reason


def test_an_unstable_baseline_is_named_as_such() -> None:
    one = level(middle=0.03)
    loud = {**one.noise, Noise.BASELINE: estimate(Metric.KL_MEAN, 0.04, 0.04, 0.04)}
    assert proposed(replace(one, noise=loud)).reason.startswith("the baseline is as far from itself")


def test_noise_under_the_floor_is_no_instability() -> None:
    assert proposed(level(middle=0.0005, noise=0.001)).limit is not None


def test_a_node_that_was_not_asked_twice_gets_no_limit() -> None:
    one = level()
    assert "its noise is not known" in proposed(replace(one, noise={})).reason


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_none_gives_no_limit(value: float) -> None:
    for one in (replace(level(), pooled=Estimate(value)), replace(level(), cycles=(Estimate(value),) * 8)):
        assert "could not be computed in every cycle" in proposed(one).reason


DISTANCES = st.floats(0.0, 0.2)


@given(
    metric=st.sampled_from(Metric),
    scheme=st.sampled_from(Scheme),
    middle=DISTANCES,
    error=st.floats(0.0, 3.0),
    noise=DISTANCES,
    noise_error=st.floats(0.0, 2.0),
    reach=st.tuples(DISTANCES, DISTANCES),
)
def test_limits_are_in_order_beyond_noise_and_level_and_fit_for_a_configuration(
    metric: Metric,
    scheme: Scheme,
    middle: float,
    error: float,
    noise: float,
    noise_error: float,
    reach: tuple[float, float],
) -> None:
    one = level(metric, middle, error=error, reach=reach)
    floors = dict.fromkeys(Noise, estimate(metric, 0.0, noise, noise * (1 + noise_error)))
    one = replace(one, noise=floors)
    found = proposed(one, Ground(scheme.value, 8, 40, limits_for(scheme)))

    if found.limit is None:
        assert found.reason
        return
    LimitSettings.model_validate({metric.value: {"warn": found.limit.warn, "critical": found.limit.critical}})
    warn, critical = limits(one, Ground(scheme.value, 8, 40, limits_for(scheme)))
    lowest = min(noise_floor(one), 0.95)  # agreement has a limit that can still be fallen under
    assert critical >= warn - 1e-12
    assert warn >= lowest - 1e-12
    assert critical >= min(FACTOR[scheme.value] * middle, 0.95) - 1e-12
    assert critical >= min(far_end(metric, one.pooled), 0.95) - 1e-12
    assert critical >= FLOOR[metric]


@pytest.mark.parametrize(
    ("metric", "expected"), [(Metric.KL_MEAN, Limit(0.04, 0.07)), (Metric.TOP1_AGREEMENT, Limit(0.03, 0.05))]
)
def test_the_widest_of_several_limits_is_taken_level_by_level(metric: Metric, expected: Limit) -> None:
    assert widest(metric, [Limit(0.03, 0.07), Limit(0.04, 0.05)]) == expected


def mapping_of(found: tuple[Proposal, ...]) -> Mapping[Metric, Limit | None]:
    return {one.level.metric: one.limit for one in found}


def test_every_level_gets_an_answer_of_its_own() -> None:
    found = mapping_of(propose([level(Metric.KL_MEAN), level(Metric.TOP1_AGREEMENT, 0.99)], GROUND))

    assert found[Metric.KL_MEAN] is not None
    assert found[Metric.TOP1_AGREEMENT] is None


def test_noise_over_critical_lifts_both_limits_to_it() -> None:
    """Its value is under the level, so the node is no doubt; its interval is so wide that nothing under it is told."""
    wide = estimate(Metric.KL_MEAN, 0.0, 0.02, 0.25)
    one = replace(level(middle=0.03), noise=dict.fromkeys(Noise, wide))

    assert limits(one) == pytest.approx((0.25, 0.25))
    assert proposed(one).reason == "the noise floor"
