"""One divergence against its limits: every metric, both directions, drawn and complete evidence."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantwatch.flow.divergence import Dimension, Divergence, Estimate, Estimator, Evidence, Slice
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.verdict import Finding, Interval, Limit, Metric, Quality
from quantwatch.judge.threshold import LABELS, estimate_of, findings, percent, prompts_to_decide

UNUSED = Estimate(math.nan)


def divergence(
    metric: Metric,
    estimate: Estimate,
    *,
    evidence: Evidence = Evidence.DRAW,
    prompts: int = 24,
    distinct: int | None = None,
) -> Divergence:
    """A divergence in which one metric is of interest."""
    estimates = {one: estimate if one is metric else UNUSED for one in Metric}
    return Divergence(
        estimator=Estimator.BUCKET,
        mode=ProbeMode.PROMPT_SCORING,
        k=20,
        evidence=evidence,
        prompts=prompts,
        distinct_prompts=prompts if distinct is None else distinct,
        positions=prompts * 96,
        kl_mean=estimates[Metric.KL_MEAN],
        kl_p99=estimates[Metric.KL_P99],
        kl_median=0.0,
        kl_max=0.0,
        perplexity_baseline=2.0,
        perplexity_node=2.0,
        perplexity_ratio=estimates[Metric.PERPLEXITY_RATIO],
        top1_agreement=estimates[Metric.TOP1_AGREEMENT],
        tail_mass_baseline=0.0,
        tail_mass_node=0.0,
        coverage=1.0,
        uninformative_positions=0,
        corrupted_positions=0,
    )


def held(
    metric: Metric,
    value: float,
    limit: Limit,
    *,
    interval: tuple[float, float] | None = None,
    evidence: Evidence = Evidence.DRAW,
    prompts: int = 24,
    distinct: int | None = None,
) -> Finding:
    estimate = Estimate(value, Interval(*interval) if interval else None)
    whole = divergence(metric, estimate, evidence=evidence, prompts=prompts, distinct=distinct)
    (found,) = findings(whole, {metric: limit})
    return found


# Rows: metric, limit, and values from good to bad: within, at warn, past warn, at critical, past critical.
LADDERS = [
    (Metric.KL_MEAN, Limit(0.01, 0.05), (0.005, 0.01, 0.02, 0.05, 0.06)),
    (Metric.KL_P99, Limit(0.2, 0.6), (0.1, 0.2, 0.3, 0.6, 0.7)),
    (Metric.PERPLEXITY_RATIO, Limit(1.01, 1.02), (0.9, 1.01, 1.015, 1.02, 1.03)),
    (Metric.TOP1_AGREEMENT, Limit(0.96, 0.94), (0.99, 0.96, 0.95, 0.94, 0.93)),
]
RUNGS = [Quality.OK, Quality.OK, Quality.WARN, Quality.WARN, Quality.DEGRADED]
STEPS = [
    pytest.param(metric, limit, values[i], RUNGS[i], id=f"{metric}-{values[i]}")
    for metric, limit, values in LADDERS
    for i in range(5)
]
EACH_METRIC = pytest.mark.parametrize("metric", Metric)


@pytest.mark.parametrize(("metric", "limit", "value", "quality"), STEPS)
def test_a_complete_measurement_is_held_by_its_value(
    metric: Metric, limit: Limit, value: float, quality: Quality
) -> None:
    assert held(metric, value, limit, evidence=Evidence.CENSUS).quality is quality


@pytest.mark.parametrize(("metric", "limit", "value", "quality"), STEPS)
def test_a_draw_with_a_narrow_interval_is_held_alike(
    metric: Metric, limit: Limit, value: float, quality: Quality
) -> None:
    near = (value - 1e-4, value + 1e-4)
    assert held(metric, value, limit, interval=near).quality is quality


@pytest.mark.parametrize(("metric", "limit", "value", "quality"), STEPS)
def test_without_a_critical_limit_nothing_is_degraded(
    metric: Metric, limit: Limit, value: float, quality: Quality
) -> None:
    wanted = Quality.WARN if quality is Quality.DEGRADED else quality
    assert held(metric, value, Limit(limit.warn, None), evidence=Evidence.CENSUS).quality is wanted


@pytest.mark.parametrize(("metric", "limit", "value", "quality"), STEPS)
def test_without_a_warning_limit_nothing_is_warned_of(
    metric: Metric, limit: Limit, value: float, quality: Quality
) -> None:
    wanted = Quality.DEGRADED if quality is Quality.DEGRADED else Quality.OK
    assert held(metric, value, Limit(None, limit.critical), evidence=Evidence.CENSUS).quality is wanted


@pytest.mark.parametrize(("metric", "limit", "value", "quality"), STEPS)
def test_without_limits_everything_is_fine(metric: Metric, limit: Limit, value: float, quality: Quality) -> None:
    assert held(metric, value, Limit(), evidence=Evidence.CENSUS).quality is Quality.OK, (limit, quality)


CRITICAL = {metric: limit.critical for metric, limit, _ in LADDERS}
PAST = {metric: values[4] for metric, _, values in LADDERS}
GOOD_SIDE = {metric: values[3] + 10 * (values[3] - values[4]) for metric, _, values in LADDERS}
BAD_SIDE = {metric: values[4] + 10 * (values[4] - values[3]) for metric, _, values in LADDERS}


def spanning(metric: Metric, near: float) -> tuple[float, float]:
    """An interval from an end that speaks for the node to one far on the bad side, low end first."""
    low, high = sorted((near, BAD_SIDE[metric]))
    return low, high


@EACH_METRIC
def test_an_interval_that_reaches_back_over_the_limit_is_inconclusive(metric: Metric) -> None:
    found = held(metric, PAST[metric], Limit(None, CRITICAL[metric]), interval=spanning(metric, GOOD_SIDE[metric]))
    assert found.quality is Quality.INCONCLUSIVE


@EACH_METRIC
def test_an_interval_that_reaches_exactly_to_the_limit_is_inconclusive(metric: Metric) -> None:
    limit = CRITICAL[metric]
    assert limit is not None
    found = held(metric, PAST[metric], Limit(None, limit), interval=spanning(metric, limit))
    assert found.quality is Quality.INCONCLUSIVE


@EACH_METRIC
def test_an_interval_wholly_past_the_limit_is_degraded(metric: Metric) -> None:
    limit = CRITICAL[metric]
    assert limit is not None
    near = limit + (PAST[metric] - limit) / 2
    assert held(metric, PAST[metric], Limit(None, limit), interval=spanning(metric, near)).quality is Quality.DEGRADED


@EACH_METRIC
def test_a_complete_measurement_needs_no_interval(metric: Metric) -> None:
    found = held(metric, PAST[metric], Limit(None, CRITICAL[metric]), evidence=Evidence.CENSUS)
    assert found.quality is Quality.DEGRADED


@EACH_METRIC
def test_a_complete_measurement_is_not_doubted_for_a_wide_interval(metric: Metric) -> None:
    wide = spanning(metric, GOOD_SIDE[metric])
    found = held(metric, PAST[metric], Limit(None, CRITICAL[metric]), interval=wide, evidence=Evidence.CENSUS)
    assert found.quality is Quality.DEGRADED


@EACH_METRIC
def test_a_draw_without_an_interval_is_inconclusive(metric: Metric) -> None:
    found = held(metric, PAST[metric], Limit(None, CRITICAL[metric]), prompts=1)
    assert found.quality is Quality.INCONCLUSIVE
    assert found.reason.endswith("but on 1 different prompts; 5 are the least for a verdict")


@EACH_METRIC
def test_a_value_within_its_limits_is_fine_however_wide_its_interval(metric: Metric) -> None:
    limit = CRITICAL[metric]
    assert limit is not None
    wide = spanning(metric, GOOD_SIDE[metric])
    assert held(metric, GOOD_SIDE[metric], Limit(None, limit), interval=wide).quality is Quality.OK


@EACH_METRIC
def test_a_warning_needs_no_interval(metric: Metric) -> None:
    assert held(metric, PAST[metric], Limit(CRITICAL[metric], None), prompts=1).quality is Quality.WARN


@EACH_METRIC
@pytest.mark.parametrize("evidence", Evidence)
def test_no_number_is_inconclusive_and_never_fine(metric: Metric, evidence: Evidence) -> None:
    found = held(metric, math.nan, Limit(CRITICAL[metric], CRITICAL[metric]), evidence=evidence)
    assert found.quality is Quality.INCONCLUSIVE
    assert found.reason == f"{LABELS[metric]} could not be computed: no position was usable"


def test_an_infinite_value_of_a_complete_measurement_is_degraded() -> None:
    found = held(Metric.PERPLEXITY_RATIO, math.inf, Limit(1.01, 1.02), evidence=Evidence.CENSUS)
    assert found.quality is Quality.DEGRADED


def test_an_interval_without_an_upper_end_is_inconclusive() -> None:
    found = held(Metric.PERPLEXITY_RATIO, 1.5, Limit(1.01, 1.02), interval=(1.0, math.inf))
    assert found.quality is Quality.INCONCLUSIVE


REASONS = [
    (
        0.06,
        (0.055, 0.065),
        "mean KL 0.06 is over the critical limit 0.05, and so is its whole 95 % interval (from 0.055)",
    ),
    (
        1.05,
        (0.0, 2.1),
        "mean KL 1.05 is over the critical limit 0.05, but its 95 % interval reaches back to 0; "
        "about 27 prompts would decide",
    ),
    (0.02, (0.01, 0.03), "mean KL 0.02 is over the warning limit 0.01"),
    (0.001, (0.0, 0.002), "mean KL 0.001 is within its limits"),
]


@pytest.mark.parametrize(("value", "interval", "reason"), REASONS)
def test_the_reason_says_value_limit_and_interval(value: float, interval: tuple[float, float], reason: str) -> None:
    assert held(Metric.KL_MEAN, value, Limit(0.01, 0.05), interval=interval).reason == reason


def test_agreement_is_under_its_limit_and_speaks_with_its_upper_end() -> None:
    found = held(Metric.TOP1_AGREEMENT, 0.9, Limit(0.96, 0.94), interval=(0.88, 0.92))
    assert found.reason == (
        "top-1 agreement 0.9 is under the critical limit 0.94, and so is its whole 95 % interval (up to 0.92)"
    )


def test_agreement_over_its_limit_is_fine() -> None:
    assert held(Metric.TOP1_AGREEMENT, 1.0, Limit(0.96, 0.94), evidence=Evidence.CENSUS).quality is Quality.OK


def test_a_finding_keeps_the_numbers_it_rests_on() -> None:
    found = held(Metric.KL_MEAN, 0.06, Limit(0.01, 0.05), interval=(0.04, 0.08))
    assert (found.metric, found.value, found.interval) == (Metric.KL_MEAN, 0.06, Interval(0.04, 0.08))
    assert found.limit == Limit(0.01, 0.05)


def test_metrics_without_limits_are_not_held() -> None:
    limits = {Metric.TOP1_AGREEMENT: Limit(0.9), Metric.KL_MEAN: Limit(0.1)}
    found = findings(divergence(Metric.KL_MEAN, Estimate(0.0)), limits)
    assert [one.metric for one in found] == [Metric.KL_MEAN, Metric.TOP1_AGREEMENT]


@EACH_METRIC
def test_a_metric_names_its_own_estimate(metric: Metric) -> None:
    estimate = Estimate(0.123)
    assert estimate_of(divergence(metric, estimate), metric) is estimate


DECIDES = [
    # value, limit, half-width, prompts, needed: the half-width must shrink to the distance, by the square root law
    (0.06, 0.05, 0.02, 24, 96),
    (0.06, 0.05, 0.01, 24, 25),
    (0.055, 0.05, 0.02, 24, 384),
    (0.04, 0.05, 0.03, 10, 90),
    (0.9, 0.94, 0.08, 24, 96),
]


@pytest.mark.parametrize(("value", "limit", "half", "prompts", "needed"), DECIDES)
def test_prompts_to_decide_follow_the_square_root_law(
    value: float, limit: float, half: float, prompts: int, needed: int
) -> None:
    estimate = Estimate(value, Interval(value - half, value + half))
    assert prompts_to_decide(estimate, limit, prompts) == pytest.approx(needed, abs=1)


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 1), st.integers(2, 1000))
def test_more_prompts_are_always_asked_for(value: float, limit: float, half: float, prompts: int) -> None:
    estimate = Estimate(value, Interval(value - half, value + half))
    assert prompts_to_decide(estimate, limit, prompts) > prompts


@given(st.floats(0, 2), st.floats(0, 1), st.floats(0, 1), st.floats(0, 2))
def test_a_worse_value_is_never_judged_better(value: float, worse_by: float, warn: float, more: float) -> None:
    limit = Limit(warn, warn + more)
    order = [Quality.OK, Quality.WARN, Quality.DEGRADED]
    first = held(Metric.KL_MEAN, value, limit, evidence=Evidence.CENSUS).quality
    second = held(Metric.KL_MEAN, value + worse_by, limit, evidence=Evidence.CENSUS).quality
    assert order.index(second) >= order.index(first)


def test_a_value_close_to_its_limit_is_told_with_the_digits_that_tell_them_apart() -> None:
    found = held(Metric.PERPLEXITY_RATIO, 1.02003, Limit(1.01, 1.02), interval=(1.01, 1.03))
    assert found.reason.startswith("perplexity ratio 1.02003 is over the critical limit 1.02")


def test_no_number_of_prompts_is_promised_that_nobody_would_ask() -> None:
    found = held(Metric.PERPLEXITY_RATIO, 1.02003, Limit(1.01, 1.02), interval=(1.01, 1.03))
    assert found.quality is Quality.INCONCLUSIVE
    assert found.reason.endswith("reaches back to 1.01; it is too close to the limit for more prompts to decide")


@pytest.mark.parametrize(
    ("distinct", "quality"), [(1, Quality.INCONCLUSIVE), (4, Quality.INCONCLUSIVE), (5, Quality.DEGRADED)]
)
def test_a_few_prompts_drawn_again_and_again_prove_nothing(distinct: int, quality: Quality) -> None:
    found = held(Metric.KL_MEAN, 0.9, Limit(0.01, 0.05), interval=(0.9, 0.9), distinct=distinct)
    assert found.quality is quality
    if quality is Quality.INCONCLUSIVE:
        assert found.reason.endswith(f"but on {distinct} different prompts; 5 are the least for a verdict")


def test_a_census_of_few_sequences_is_judged_all_the_same() -> None:
    found = held(Metric.KL_MEAN, 0.9, Limit(0.01, 0.05), evidence=Evidence.CENSUS, prompts=1, distinct=1)
    assert found.quality is Quality.DEGRADED


def test_a_tail_over_its_limit_without_an_interval_is_inconclusive() -> None:
    found = held(Metric.KL_P99, 0.9, Limit(0.2, 0.6), prompts=24)
    assert found.quality is Quality.INCONCLUSIVE
    assert found.reason.endswith("but 24 prompts are too few for an interval")


def a_slice(value: str, kl: Estimate, *, prompts: int = 12, distinct: int = 12) -> Slice:
    return Slice(Dimension.LANGUAGE, value, prompts, distinct, prompts * 96, kl, UNUSED, UNUSED)


def with_parts(*parts: Slice) -> Divergence:
    whole = divergence(Metric.KL_MEAN, Estimate(0.01, Interval(0.005, 0.015)))
    return replace(whole, slices=parts)


def test_a_part_is_held_against_its_own_limits_and_no_other() -> None:
    bad, other = Estimate(0.4, Interval(0.3, 0.5)), Estimate(0.4, Interval(0.3, 0.5))
    limits = {Metric.KL_MEAN: Limit(0.02, 0.05)}
    found = findings(with_parts(a_slice("zh", bad), a_slice("en", other)), limits, {(Dimension.LANGUAGE, "zh"): limits})

    assert [(one.part, one.quality) for one in found] == [(None, Quality.OK), ("language zh", Quality.DEGRADED)]
    assert found[1].reason.startswith("mean KL of language zh 0.4 is over the critical limit 0.05")


def test_a_part_without_limits_is_never_judged() -> None:
    found = findings(with_parts(a_slice("zh", Estimate(9.0, Interval(8.0, 10.0)))), {})
    assert found == ()


def test_a_part_that_the_draw_does_not_hold_has_no_finding() -> None:
    assert findings(with_parts(), {}, {(Dimension.LANGUAGE, "zh"): {Metric.KL_MEAN: Limit(0.02, 0.05)}}) == ()


def test_a_part_of_few_prompts_proves_nothing_and_asks_for_a_larger_draw() -> None:
    few = a_slice("zh", Estimate(0.4, Interval(0.3, 0.5)), prompts=4, distinct=3)
    (found,) = findings(with_parts(few), {}, {(Dimension.LANGUAGE, "zh"): {Metric.KL_MEAN: Limit(0.02, 0.05)}})
    assert found.quality is Quality.INCONCLUSIVE
    assert found.needed == 30  # one more of the part is six more of the draw, 24 of which hold 4


def test_an_undecided_part_needs_the_whole_draw_to_grow_in_proportion() -> None:
    part = a_slice("zh", Estimate(0.06, Interval(0.04, 0.08)))
    (found,) = findings(with_parts(part), {}, {(Dimension.LANGUAGE, "zh"): {Metric.KL_MEAN: Limit(0.02, 0.05)}})
    assert found.needed == 2 * prompts_to_decide(part.kl_mean, 0.05, 12)


@pytest.mark.parametrize("value", [0.01, 0.03, 0.4])
def test_what_is_decided_needs_no_prompts(value: float) -> None:
    found = held(Metric.KL_MEAN, value, Limit(0.02, 0.05), interval=(value - 0.001, value + 0.001))
    assert found.needed is None


def test_what_no_draw_would_decide_asks_for_none() -> None:
    found = held(Metric.KL_MEAN, 0.0501, Limit(0.02, 0.05), interval=(0.0, 0.1))
    assert (found.quality, found.needed) == (Quality.INCONCLUSIVE, None)


def test_a_sentence_tells_levels_near_one_apart() -> None:
    assert [percent(level) for level in (0.95, 0.9958, 0.99986)] == ["95 %", "99.58 %", "99.99 %"]
