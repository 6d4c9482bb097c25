"""How long a target stays out, how clean it must be to return, and when its past is forgotten."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantwatch.flow.observation import Observation
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.report import SetReport
from quantwatch.flow.run import RunRecord, Trigger
from quantwatch.flow.state import Human, Routing, SetState, TargetState
from quantwatch.flow.verdict import Finding, Interval, Limit, Metric, Quality, Verdict
from quantwatch.judge.recovery import (
    LONGEST_HOLD,
    PERFECT,
    forgiven,
    hold_ends,
    hold_seconds,
    probation_ends,
    release_limit,
    too_close,
)
from quantwatch.judge.streak import advance
from quantwatch.judge.wish import WishRules, wish

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = 86_400.0
PERIODS = {"chat": 600.0, "math": 600.0}
OUT = TargetState("node", "blue", Routing.OUT, owner="d-1", since=NOW, ejections=1)
BACK = TargetState("node", "blue", since=NOW - timedelta(days=2), ejections=3)

IDS = st.text(max_size=20)
MINIMUM = st.floats(0, 1e6)
SHARES = st.floats(0, 1)
COUNTS = st.integers(0, 50)


# ------------------------------------------------------------------ the hold


@pytest.mark.parametrize(("ejections", "times"), [(0, 1), (1, 1), (2, 2), (7, 7), (8, 8), (9, 8), (500, 8)])
def test_the_hold_is_the_minimum_times_the_isolations(ejections: int, times: int) -> None:
    assert hold_seconds(ejections, "d-1", minimum=600.0, jitter=0.0) == 600.0 * times


def test_jitter_is_the_same_for_a_decision_and_another_for_the_next() -> None:
    first, again, other = (hold_seconds(1, one, minimum=600.0, jitter=0.25) for one in ("d-1", "d-1", "d-2"))
    assert first == again != other


def test_nodes_that_left_together_return_one_after_another() -> None:
    """Of a hundred that left in one second, no tenth of the jitter sees more than a fifth come back."""
    holds = [hold_seconds(1, f"d-20260101-000000-{i:06x}", minimum=600.0, jitter=1.0) for i in range(100)]
    tenths = [int((one - 600.0) / 60.0) for one in holds]
    assert set(tenths) == set(range(10))
    assert max(tenths.count(tenth) for tenth in range(10)) <= 20


@given(COUNTS, IDS, MINIMUM, SHARES)
def test_jitter_only_adds_and_is_bounded(ejections: int, decision: str, minimum: float, jitter: float) -> None:
    plain = hold_seconds(ejections, decision, minimum=minimum, jitter=0.0)
    held = hold_seconds(ejections, decision, minimum=minimum, jitter=jitter)
    assert plain <= held <= (plain + jitter * minimum) * (1 + 1e-12)
    assert held <= minimum * (LONGEST_HOLD + 1) * (1 + 1e-12)


@given(st.integers(0, LONGEST_HOLD - 1), IDS, IDS, MINIMUM, SHARES)
def test_a_further_isolation_never_holds_for_less(
    ejections: int, first: str, then: str, minimum: float, jitter: float
) -> None:
    """Whatever the ids; only once the hold grows no more does jitter alone tell two isolations apart."""
    before = hold_seconds(ejections, first, minimum=minimum, jitter=jitter)
    after = hold_seconds(max(ejections, 1) + 1, then, minimum=minimum, jitter=jitter)
    assert after >= before * (1 - 1e-12)


@given(COUNTS, COUNTS, IDS, MINIMUM, SHARES)
def test_the_hold_is_monotone_in_the_isolations(
    fewer: int, more: int, decision: str, minimum: float, jitter: float
) -> None:
    low, high = sorted((fewer, more))
    assert hold_seconds(low, decision, minimum=minimum, jitter=jitter) <= hold_seconds(
        high, decision, minimum=minimum, jitter=jitter
    )


@given(st.integers(1, 50), IDS, st.floats(0, 1e5), SHARES, st.floats(0, 2e6), st.sampled_from(Human), st.booleans())
def test_nothing_returns_before_its_hold_is_over_and_nothing_that_is_not_ours(
    ejections: int, decision: str, minimum: float, jitter: float, later: float, human: Human, ours: bool
) -> None:
    now = NOW + timedelta(seconds=later)
    clean = [SetState("node", name, Quality.OK, Quality.OK, clean=9, run="r", at=now) for name in PERIODS]
    rules = WishRules({}, PERIODS, 3, minimum, hold_jitter=jitter)
    target = replace(OUT, ejections=ejections, owner=decision if ours else None, human=human)
    ends = hold_ends(target, minimum=minimum, jitter=jitter)
    found = wish(target, clean, rules, now=now, process=None)
    assert (found is not None) is (ours and human is Human.NONE and ends is not None and now >= ends)


@pytest.mark.parametrize(
    "target",
    [
        replace(OUT, since=None),
        replace(OUT, owner=None),
        *(replace(OUT, routing=one) for one in Routing if one != "out"),
    ],
)
def test_what_is_not_out_by_us_or_since_an_unknown_time_has_no_end_of_a_hold(target: TargetState) -> None:
    assert hold_ends(target, minimum=600.0, jitter=0.0) is None
    assert hold_ends(OUT, minimum=600.0, jitter=0.0) == NOW + timedelta(minutes=10)


# ------------------------------------------------------------------ how clean


@pytest.mark.parametrize(
    ("metric", "critical", "margin", "inside"),
    [
        (Metric.KL_MEAN, 0.05, 0.2, 0.04),
        (Metric.KL_P99, 1.0, 0.5, 0.5),
        (Metric.PERPLEXITY_RATIO, 1.02, 0.2, 1.016),
        (Metric.PERPLEXITY_RATIO, 1.5, 1.0, 1.0),
        (Metric.TOP1_AGREEMENT, 0.94, 0.2, 0.952),
        (Metric.TOP1_AGREEMENT, 0.9, 0.0, 0.9),
        (Metric.KL_MEAN, None, 0.2, None),
    ],
)
def test_the_release_limit_lies_a_share_of_the_way_towards_perfect(
    metric: Metric, critical: float | None, margin: float, inside: float | None
) -> None:
    found = release_limit(metric, Limit(None, critical), margin)
    assert found == (None if inside is None else pytest.approx(inside))


def finding(metric: Metric, value: float, critical: float | None, part: str | None = None) -> Finding:
    interval = Interval(value - 1e-3, value + 1e-3)
    return Finding(metric, Quality.OK, value, interval, Limit(None, critical), "within its limits", part)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (finding(Metric.KL_MEAN, 0.04, 0.05), None),
        (finding(Metric.KL_MEAN, 0.045, 0.05), "mean KL 0.045 is not within 0.04"),
        (finding(Metric.PERPLEXITY_RATIO, 1.016, 1.02), None),
        (finding(Metric.PERPLEXITY_RATIO, 1.018, 1.02), "perplexity ratio 1.018 is not within 1.016"),
        (finding(Metric.PERPLEXITY_RATIO, 0.5, 1.02), None),
        (finding(Metric.TOP1_AGREEMENT, 0.953, 0.94), None),
        (finding(Metric.TOP1_AGREEMENT, 0.945, 0.94), "top-1 agreement 0.945 is not within 0.952"),
        (finding(Metric.KL_MEAN, 0.045, 0.05, "language zh"), "mean KL of language zh 0.045 is not within 0.04"),
        (finding(Metric.KL_MEAN, 9.0, None), None),
    ],
)
def test_a_number_must_lie_within_the_release_limit_on_the_right_side(found: Finding, said: str | None) -> None:
    fine = finding(Metric.KL_P99, 0.0, 1.0)
    told = too_close([fine, found], 0.2)
    assert told == (None if said is None else f"{said}, so it does not count towards a return")
    assert too_close([found], 0.0) is None


@given(st.sampled_from(Metric), st.floats(0.001, 0.9), SHARES, SHARES, st.floats(0, 1))
def test_a_greater_margin_is_never_easier(metric: Metric, distance: float, one: float, two: float, at: float) -> None:
    """The release limit lies between perfect and the critical limit, and what passes the stricter passes the other."""
    small, great = sorted((one, two))
    sign = -1 if metric is Metric.TOP1_AGREEMENT else 1
    critical = PERFECT[metric] + sign * distance
    value = PERFECT[metric] + sign * distance * at
    limits = [release_limit(metric, Limit(None, critical), margin) for margin in (small, great)]
    assert all(lim is not None and -1e-9 <= sign * (lim - PERFECT[metric]) <= distance + 1e-9 for lim in limits)
    near = finding(metric, value, critical)
    assert too_close([near], small) is None or too_close([near], great) is not None


def run(quality: Quality, *found: Finding, number: int = 1) -> RunRecord:
    verdict = Verdict(quality, ("all numbers are within their limits",), found)
    observation = Observation(drawn=5, measured=5)
    report = SetReport("chat", "p", 1, 5, ProbeMode.PROMPT_SCORING, observation, None, verdict) if found else None
    return RunRecord(
        f"r-{number}",
        "node",
        "chat",
        "blue",
        Trigger.SCHEDULE,
        NOW,
        1.0,
        quality,
        verdict.reasons[0],
        "a",
        report=report,
    )


def test_a_clean_run_close_to_its_limit_breaks_the_row_of_clean_runs_and_says_so() -> None:
    near, far = finding(Metric.KL_MEAN, 0.045, 0.05), finding(Metric.KL_MEAN, 0.01, 0.05)
    state = SetState("node", "chat")
    clean = []
    for number, found in enumerate([far, far, near, far]):
        state = advance(state, run(Quality.OK, found, number=number), confirm_cycles=2, release_margin=0.2)
        clean.append((state.quality, state.clean, "towards a return" in state.reason))
    ok = Quality.OK
    assert clean == [(ok, 1, False), (ok, 2, False), (ok, 0, True), (ok, 1, False)]


def test_a_warning_does_not_count_and_gets_no_second_reason() -> None:
    """The warning limit is the other stricter limit: what is over it is not clean, however wide the margin."""
    state = advance(
        SetState("node", "chat", clean=4, basis="a"),
        run(Quality.WARN, replace(finding(Metric.KL_MEAN, 0.045, 0.05), quality=Quality.WARN)),
        confirm_cycles=2,
        release_margin=0.2,
    )
    assert (state.quality, state.clean) == (Quality.WARN, 0)
    assert "towards a return" not in state.reason


def test_without_a_margin_or_numbers_a_clean_run_counts() -> None:
    near = finding(Metric.KL_MEAN, 0.0499, 0.05)
    assert advance(SetState("node", "chat"), run(Quality.OK, near), confirm_cycles=2).clean == 1
    assert advance(SetState("node", "chat"), run(Quality.OK), confirm_cycles=2, release_margin=0.9).clean == 1


# ------------------------------------------------------------------ probation


@pytest.mark.parametrize(
    ("change", "ago", "on"),
    [
        ({}, 0, True),
        ({}, 3599, True),
        ({}, 3600, False),
        ({}, -5, True),
        ({"ejections": 0}, 60, False),
        ({"routing": Routing.OUT}, 60, False),
        ({"routing": Routing.LEAVING}, 60, False),
        ({"routing": Routing.CONTRADICTED}, 60, False),
    ],
)
def test_who_came_back_is_on_probation_for_a_while(change: dict[str, object], ago: float, *, on: bool) -> None:
    since = NOW - timedelta(seconds=ago)
    target = replace(BACK, since=since, **change)  # type: ignore[arg-type]
    ends = probation_ends(target, now=NOW, seconds=3600.0)
    assert ends == (since + timedelta(hours=1) if on else None)


def test_without_a_time_or_a_length_there_is_no_probation() -> None:
    assert probation_ends(replace(BACK, since=None), now=NOW, seconds=3600.0) is None
    assert probation_ends(replace(BACK, since=NOW), now=NOW, seconds=0.0) is None


def test_a_release_tells_of_the_probation() -> None:
    clean = [SetState("node", name, Quality.OK, Quality.OK, clean=3, run="r", at=NOW) for name in PERIODS]
    found = wish(OUT, clean, WishRules({}, PERIODS, 3, 0.0, probation_seconds=5400.0), now=NOW, process=None)
    assert found is not None
    assert found.reason == "clean runs in a row of every task set: chat 3, math 3; on probation for 90 min"


# ------------------------------------------------------------------ forgiveness


def well(name: str = "chat", *, quality: Quality = Quality.OK, ago: float = 60.0, breaches: int = 0) -> SetState:
    return SetState("node", name, quality, quality, breaches, run="r", at=NOW - timedelta(seconds=ago))


def after(target: TargetState, *sets: SetState, after: float = DAY, probation: float = 3600.0) -> TargetState:
    states = sets or (well(), well("math"))
    return forgiven(target, states, periods=PERIODS, now=NOW, after=after, probation=probation)


def test_the_clean_time_begins_with_the_first_run_after_which_everything_is_clean() -> None:
    assert after(BACK) == replace(BACK, well_since=NOW)


@pytest.mark.parametrize(("hours", "left"), [(23.99, 3), (24, 2), (240, 2)])
def test_one_isolation_is_forgiven_for_each_clean_time_and_no_more(hours: float, left: int) -> None:
    since = NOW - timedelta(hours=hours)
    found = after(replace(BACK, well_since=since))
    assert (found.ejections, found.well_since) == (left, since if left == 3 else NOW)


def test_after_the_last_one_nothing_is_counted() -> None:
    found = after(replace(BACK, ejections=1, well_since=NOW - timedelta(days=2)))
    assert (found.ejections, found.well_since) == (0, None)
    assert after(found) == found


NOT_WELL = [
    (well(quality=Quality.WARN), well("math")),
    (well(), well("math", quality=Quality.DEGRADED, breaches=2)),
    (well(), well("math", quality=Quality.INCONCLUSIVE, breaches=1)),
    (well(), well("math", breaches=1)),
    (well(), well("math", quality=Quality.UNKNOWN)),
    (well(), well("math", quality=Quality.SKIPPED)),
    (well(), well("math", ago=1501)),
    (well(),),
    (well("code"), well("math")),
]


@pytest.mark.parametrize("sets", NOT_WELL)
def test_whatever_is_not_clean_or_not_known_begins_the_time_anew(sets: tuple[SetState, ...]) -> None:
    found = after(replace(BACK, well_since=NOW - timedelta(days=9)), *sets)
    assert found == replace(BACK, well_since=None)


def test_nothing_is_forgiven_out_of_traffic_on_probation_or_where_it_is_switched_off() -> None:
    long = replace(BACK, well_since=NOW - timedelta(days=9))
    for routing in Routing:
        if routing is not Routing.IN:
            assert after(replace(long, routing=routing)) == replace(long, routing=routing, well_since=None)
    assert after(replace(long, since=NOW - timedelta(minutes=59))).ejections == 3
    assert after(long, after=0.0) == replace(long, well_since=None)
    assert forgiven(long, (), periods={}, now=NOW, after=DAY, probation=0.0).well_since is None


def test_a_clean_time_from_the_future_forgives_nothing() -> None:
    assert after(replace(BACK, well_since=NOW + timedelta(days=2))).ejections == 3


@given(
    st.integers(0, 4),
    st.lists(st.tuples(st.sampled_from(Quality), st.floats(0, 3 * DAY), st.sampled_from(Routing)), max_size=20),
    st.floats(0, 2 * DAY),
)
def test_the_count_never_grows_falls_below_0_or_by_more_than_one(
    ejections: int, lives: list[tuple[Quality, float, Routing]], each: float
) -> None:
    target, now = replace(BACK, ejections=ejections), NOW
    for quality, gap, routing in lives:
        now += timedelta(seconds=gap)
        target = replace(target, routing=routing)
        state = SetState("node", "chat", quality, quality, run="r", at=now)
        new = forgiven(target, [state], periods={"chat": 600.0}, now=now, after=each, probation=0.0)
        assert 0 <= new.ejections <= target.ejections <= new.ejections + 1
        if new.ejections < target.ejections:
            assert (quality, routing) == (Quality.OK, Routing.IN)
            assert target.well_since is not None
            assert (now - target.well_since).total_seconds() >= each > 0
        assert new.well_since is None or new.ejections > 0
        target = new
