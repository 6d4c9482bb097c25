"""One verdict out of everything known: what goes first, and what may not pass."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantwatch.flow.divergence import Divergence, Estimate, Estimator, Evidence
from quantwatch.flow.observation import Missing, Observation
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.verdict import Interval, Limit, Metric, Quality, Verdict, worst
from quantwatch.judge.conclude import MAX_MISSING, conclude, summary

LIMITS = {Metric.KL_MEAN: Limit(0.01, 0.05), Metric.TOP1_AGREEMENT: Limit(0.96, 0.94)}
SEEN = "NaN at position 7"
OBSTACLE = Missing("", Quality.INVALID, "the tokenizers differ")


def measured(kl: float, *, top1: float = 1.0, half: float = 0.0) -> Divergence:
    return Divergence(
        estimator=Estimator.BUCKET,
        mode=ProbeMode.PROMPT_SCORING,
        k=20,
        evidence=Evidence.DRAW,
        prompts=10,
        distinct_prompts=10,
        positions=960,
        kl_mean=Estimate(kl, Interval(kl - half, kl + half)),
        kl_p99=Estimate(math.nan),
        kl_median=0.0,
        kl_max=0.0,
        perplexity_baseline=2.0,
        perplexity_node=2.0,
        perplexity_ratio=Estimate(math.nan),
        top1_agreement=Estimate(top1, Interval(top1, top1)),
        tail_mass_baseline=0.0,
        tail_mass_node=0.0,
        coverage=1.0,
        uninformative_positions=0,
        corrupted_positions=0,
    )


GOOD, WARN, BAD = measured(0.001), measured(0.02), measured(0.5)
STRADDLING = measured(0.06, half=0.02)
DIVERGENCES = [None, GOOD, WARN, BAD, STRADDLING]


def missing(
    count: int, quality: Quality = Quality.UNKNOWN, reason: str = "no answer", weight: int = 1
) -> list[Missing]:
    return [Missing(f"{reason}-{i}", quality, reason, weight) for i in range(count)]


def observed(*lost: Missing, drawn: int = 10) -> Observation:
    return Observation(drawn=drawn, measured=drawn - sum(one.weight for one in lost), missing=lost)


def test_good_numbers_are_fine() -> None:
    verdict = conclude(observed(), GOOD, LIMITS)
    assert (verdict.quality, verdict.reasons) == (Quality.OK, ("all numbers are within their limits",))


def test_numbers_without_limits_are_fine() -> None:
    assert conclude(observed(), BAD, {}).quality is Quality.OK


def test_a_warning_warns() -> None:
    verdict = conclude(observed(), WARN, LIMITS)
    assert verdict.quality is Quality.WARN
    assert verdict.reasons == ("mean KL 0.02 is over the warning limit 0.01",)


def test_a_proven_breach_degrades() -> None:
    assert conclude(observed(), BAD, LIMITS).quality is Quality.DEGRADED


def test_a_straddling_interval_is_inconclusive() -> None:
    assert conclude(observed(), STRADDLING, LIMITS).quality is Quality.INCONCLUSIVE


def test_the_worst_metric_decides() -> None:
    assert conclude(observed(), measured(0.02, top1=0.5), LIMITS).quality is Quality.DEGRADED


def test_the_reason_that_decided_stands_first() -> None:
    verdict = conclude(observed(), measured(0.02, top1=0.5), LIMITS)
    assert [reason.split()[0] for reason in verdict.reasons] == ["top-1", "mean"]


def test_the_findings_are_kept_also_where_they_are_fine() -> None:
    verdict = conclude(observed(), GOOD, LIMITS)
    assert [finding.metric for finding in verdict.findings] == [Metric.KL_MEAN, Metric.TOP1_AGREEMENT]


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("obstacle", [None, OBSTACLE])
@pytest.mark.parametrize("lost", [0, 10])
def test_confirmed_corruption_goes_before_everything(
    divergence: Divergence | None, obstacle: Missing | None, lost: int
) -> None:
    observation = Observation(
        drawn=10,
        measured=10 - lost,
        missing=tuple(missing(lost)),
        corruption=SEEN,
        confirmed=True,
        obstacle=obstacle,
        interrupted=True,
    )
    assert conclude(observation, divergence, LIMITS) == Verdict(Quality.CORRUPTED, (f"{SEEN} (seen twice)",))


@pytest.mark.parametrize("divergence", DIVERGENCES)
@pytest.mark.parametrize("quality", [Quality.INVALID, Quality.UNKNOWN, Quality.SKIPPED])
def test_an_obstacle_makes_every_number_meaningless(divergence: Divergence | None, quality: Quality) -> None:
    observation = Observation(
        drawn=10,
        measured=5,
        missing=tuple(missing(5)),
        corruption=SEEN,
        obstacle=Missing("", quality, "no way to compare"),
        interrupted=True,
    )
    assert conclude(observation, divergence, LIMITS) == Verdict(quality, ("no way to compare",))


@pytest.mark.parametrize(("lost", "quality"), [(0, Quality.OK), (2, Quality.OK), (3, Quality.UNKNOWN)])
def test_a_fifth_of_the_draw_may_be_missing(lost: int, quality: Quality) -> None:
    assert MAX_MISSING == 0.2
    assert conclude(observed(*missing(lost)), GOOD, LIMITS).quality is quality


def test_missing_prompts_are_counted_by_how_often_they_were_drawn() -> None:
    assert conclude(observed(*missing(1, weight=3)), GOOD, LIMITS).quality is Quality.UNKNOWN


@pytest.mark.parametrize("quality", [Quality.UNKNOWN, Quality.SKIPPED, Quality.INVALID])
@pytest.mark.parametrize("divergence", [GOOD, WARN])
def test_neither_fine_nor_a_warning_stands_when_too_much_is_missing(quality: Quality, divergence: Divergence) -> None:
    assert conclude(observed(*missing(5, quality)), divergence, LIMITS).quality is quality


@pytest.mark.parametrize("quality", [Quality.UNKNOWN, Quality.SKIPPED, Quality.INVALID])
def test_a_proven_breach_stands_when_too_much_is_missing(quality: Quality) -> None:
    assert conclude(observed(*missing(9, quality)), BAD, LIMITS).quality is Quality.DEGRADED


def test_the_missing_are_told_after_the_breach() -> None:
    verdict = conclude(observed(*missing(9)), BAD, LIMITS)
    assert verdict.reasons[0].startswith("mean KL 0.5 is over the critical limit")
    assert verdict.reasons[1] == "9 of 10 drawn prompts are missing: no answer (9 prompts)"


def test_few_missing_prompts_are_not_told() -> None:
    assert conclude(observed(*missing(2)), GOOD, LIMITS).reasons == ("all numbers are within their limits",)


def test_the_trouble_that_took_most_draws_names_the_verdict() -> None:
    lost = [*missing(2, Quality.INVALID, "bad reply"), *missing(1, Quality.SKIPPED, "busy", weight=3)]
    assert conclude(observed(*lost), GOOD, LIMITS).quality is Quality.SKIPPED


@pytest.mark.parametrize("divergence", [GOOD, WARN, STRADDLING])
def test_unconfirmed_corruption_is_inconclusive(divergence: Divergence) -> None:
    observation = Observation(drawn=10, measured=10, corruption=SEEN)
    verdict = conclude(observation, divergence, LIMITS)
    assert verdict.quality is Quality.INCONCLUSIVE
    assert f"{SEEN} (not confirmed by a second probe)" in verdict.reasons


def test_a_proven_breach_stands_beside_unconfirmed_corruption() -> None:
    assert conclude(Observation(drawn=10, measured=10, corruption=SEEN), BAD, LIMITS).quality is Quality.DEGRADED


@pytest.mark.parametrize(
    ("divergence", "quality"),
    [(GOOD, Quality.INCONCLUSIVE), (WARN, Quality.INCONCLUSIVE), (BAD, Quality.DEGRADED)],
)
def test_an_interrupted_run_cannot_pass_but_can_breach(divergence: Divergence, quality: Quality) -> None:
    verdict = conclude(Observation(drawn=10, measured=9, interrupted=True), divergence, LIMITS)
    assert verdict.quality is quality
    assert "interrupted after 9 of 10 drawn prompts" in verdict.reasons


def test_a_doubt_that_decided_stands_before_a_warning() -> None:
    verdict = conclude(Observation(drawn=10, measured=9, interrupted=True), WARN, LIMITS)
    assert verdict.reasons[0] == "interrupted after 9 of 10 drawn prompts"


def test_nothing_asked_is_skipped() -> None:
    verdict = conclude(Observation(drawn=10, measured=0, interrupted=True), None, LIMITS)
    assert (verdict.quality, verdict.reasons) == (Quality.SKIPPED, ("nothing was asked before the run ended",))


def test_nothing_measured_is_what_the_missing_say() -> None:
    verdict = conclude(observed(*missing(10, Quality.SKIPPED, "busy")), None, LIMITS)
    assert (verdict.quality, verdict.reasons) == (Quality.SKIPPED, ("busy (10 prompts)",))


def test_nothing_measured_with_a_sign_of_corruption_is_inconclusive() -> None:
    observation = Observation(drawn=10, measured=0, missing=tuple(missing(10)), corruption=SEEN)
    verdict = conclude(observation, None, LIMITS)
    assert verdict == Verdict(Quality.INCONCLUSIVE, (f"{SEEN} (not confirmed by a second probe)",))


def test_a_reason_told_once_has_no_count() -> None:
    assert summary(missing(1)) == ["no answer"]


def test_reasons_are_told_by_how_many_prompts_they_took() -> None:
    lost = [*missing(1, reason="a"), *missing(3, reason="b"), *missing(2, reason="c")]
    assert summary(lost) == ["b (3 prompts)", "c (2 prompts)", "a"]


def test_the_rest_of_many_reasons_is_counted() -> None:
    lost = [one for name in "abcde" for one in missing(1, reason=name)]
    assert summary(lost) == ["a", "b", "c", "and 2 further reasons"]


QUALITIES = st.lists(st.sampled_from(list(Quality)), min_size=1, max_size=8)


def test_qualities_are_ordered_as_the_design_says() -> None:
    order = [
        Quality.OK,
        Quality.WARN,
        Quality.SKIPPED,
        Quality.INCONCLUSIVE,
        Quality.UNKNOWN,
        Quality.INVALID,
        Quality.DEGRADED,
        Quality.CORRUPTED,
    ]
    assert sorted(order, key=lambda one: sum(worst([one, other]) is one for other in order)) == order
    assert set(order) == set(Quality)


def test_of_nothing_nothing_is_known() -> None:
    assert worst([]) is Quality.UNKNOWN


@pytest.mark.parametrize("quality", Quality)
def test_one_quality_stands_for_itself(quality: Quality) -> None:
    assert worst([quality]) is quality


@given(QUALITIES.flatmap(lambda some: st.tuples(st.just(some), st.permutations(some))))
def test_the_worst_does_not_depend_on_the_order(pair: tuple[list[Quality], list[Quality]]) -> None:
    assert worst(pair[0]) is worst(pair[1])


@given(QUALITIES)
def test_the_worst_is_one_of_those_given(some: list[Quality]) -> None:
    assert worst(some) in some


@given(QUALITIES)
def test_the_worst_of_repetitions_is_the_same(some: list[Quality]) -> None:
    assert worst(some * 2) is worst(some) is worst([worst(some)])


@given(QUALITIES, QUALITIES)
def test_the_worst_can_be_found_in_parts(some: list[Quality], more: list[Quality]) -> None:
    assert worst(some + more) is worst([worst(some), worst(more)])


@pytest.mark.parametrize(("blind", "quality"), [(960 // 2, Quality.OK), (960 // 2 + 1, Quality.INCONCLUSIVE)])
def test_a_bound_that_mostly_says_nothing_cannot_clear_a_node(blind: int, quality: Quality) -> None:
    mostly = replace(GOOD, positions=960, uninformative_positions=blind)
    verdict = conclude(Observation(drawn=10, measured=10), mostly, LIMITS)
    assert verdict.quality is quality


def test_a_proven_breach_stands_however_blind_the_bound() -> None:
    mostly = replace(BAD, positions=960, uninformative_positions=900)
    assert conclude(Observation(drawn=10, measured=10), mostly, LIMITS).quality is Quality.DEGRADED
