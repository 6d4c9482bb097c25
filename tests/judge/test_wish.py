"""What leads to a wish, what never does, and when an order under way is no longer wanted."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from quantwatch.flow.decision import Action, Lane, Wish
from quantwatch.flow.state import Human, Routing, SetState, TargetState
from quantwatch.flow.verdict import CANNOT_TELL, Finding, Limit, Metric, Quality
from quantwatch.judge.wish import WishRules, wish, withdrawn

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EVERYTHING = frozenset(Lane)
RULES = WishRules({"chat": EVERYTHING, "math": EVERYTHING}, {"chat": 600.0, "math": 600.0}, 3, 600.0)
IN = TargetState("node", "blue")
OUT = TargetState(
    "node",
    "blue",
    Routing.OUT,
    owner="d-1",
    since=NOW - timedelta(hours=1),
    ejections=1,
    gone="process 1",
    lane="limits",
)
FINDING = Finding(Metric.KL_MEAN, Quality.DEGRADED, 0.4, None, Limit(0.01, 0.05), "mean KL 0.4")


def state(
    quality: Quality,
    task_set: str = "chat",
    *,
    ago: float = 60,
    last: Quality | None = None,
    breaches: int = 0,
    clean: int = 0,
    undecided: int = 0,
    **more: Any,
) -> SetState:
    return SetState(
        "node",
        task_set,
        quality,
        **more,
        last=quality if last is None else last,
        breaches=breaches,
        clean=clean,
        undecided=undecided,
        basis="a",
        run=f"r-{task_set}",
        at=NOW - timedelta(seconds=ago),
        reason=f"{quality} for a reason",
    )


def clean(task_set: str = "chat", *, ago: float = 60, runs: int = 3) -> SetState:
    return state(Quality.OK, task_set, ago=ago, clean=runs)


DEGRADED = state(Quality.DEGRADED, breaches=2)
CORRUPTED = state(Quality.CORRUPTED, breaches=2)
CLEAN = (clean(), clean("math"))


def wanted(
    *sets: SetState, target: TargetState = IN, rules: WishRules = RULES, process: str | None = "process 2"
) -> Wish | None:
    return wish(target, sets, rules, now=NOW, process=process)


def lane_of(found: Wish | None) -> Lane | None:
    return None if found is None else found.lane


def test_a_confirmed_breach_of_limits_asks_for_isolation() -> None:
    found = wish(IN, [DEGRADED], RULES, now=NOW, process=None, findings={"chat": (FINDING,), "math": ()})
    assert found == Wish(
        Action.ISOLATE,
        "node",
        "blue",
        "chat is degraded: degraded for a reason",
        lane=Lane.LIMITS,
        task_set="chat",
        run="r-chat",
        findings=(FINDING,),
    )


def test_corruption_goes_before_limits() -> None:
    found = wanted(state(Quality.DEGRADED, "chat", breaches=9), state(Quality.CORRUPTED, "math", breaches=2))
    assert found is not None
    assert (found.lane, found.task_set) == (Lane.CORRUPTED, "math")


def test_the_longest_row_is_named_and_then_the_first_name() -> None:
    longer = wanted(DEGRADED, state(Quality.DEGRADED, "math", breaches=5))
    equal = wanted(state(Quality.DEGRADED, "math", breaches=2), DEGRADED)
    assert [one and one.task_set for one in (longer, equal)] == ["math", "chat"]


@pytest.mark.parametrize("quality", sorted({Quality.OK, Quality.WARN, *CANNOT_TELL}))
def test_nothing_but_a_confirmed_breach_asks_for_isolation(quality: Quality) -> None:
    assert wanted(state(quality), state(Quality.INCONCLUSIVE, "math", last=Quality.DEGRADED, breaches=1)) is None


@pytest.mark.parametrize(
    ("lanes", "degraded", "corrupted"),
    [
        (frozenset({Lane.CORRUPTED}), None, Lane.CORRUPTED),
        (frozenset({Lane.LIMITS}), Lane.LIMITS, None),
        (frozenset[Lane](), None, None),
    ],
)
def test_a_lane_that_is_off_asks_for_nothing(
    lanes: frozenset[Lane], degraded: Lane | None, corrupted: Lane | None
) -> None:
    rules = replace(RULES, act_on={"chat": lanes, "math": EVERYTHING})
    assert lane_of(wanted(DEGRADED, rules=rules)) is degraded
    assert lane_of(wanted(CORRUPTED, rules=rules)) is corrupted


def test_a_task_set_without_lanes_or_outside_the_configuration_asks_for_nothing() -> None:
    assert wanted(CORRUPTED, rules=replace(RULES, act_on={})) is None
    assert wanted(CORRUPTED, rules=replace(RULES, periods={"math": 600.0})) is None


def test_a_stale_breach_asks_for_nothing() -> None:
    assert wanted(replace(CORRUPTED, at=NOW - timedelta(seconds=1501))) is None


def test_a_breach_that_later_runs_could_not_prove_again_goes_stale_although_runs_go_on() -> None:
    assert wanted(replace(CORRUPTED, undecided=2)) is not None
    assert wanted(replace(CORRUPTED, undecided=3)) is None


def test_a_wish_names_the_run_that_proved_the_breach_and_not_a_later_one() -> None:
    found = wanted(replace(DEGRADED, proof="r-proof", run="r-later", undecided=1))
    assert found is not None
    assert found.run == "r-proof"


BREACHING_EACH_WAY = pytest.mark.parametrize("quality", [Quality.DEGRADED, Quality.CORRUPTED])


@BREACHING_EACH_WAY
@pytest.mark.parametrize(
    ("measured", "runs_now", "asks"),
    [
        ("process 1", "process 1", True),
        ("process 1", "process 2", False),
        ("process 1", None, True),
        (None, "process 2", True),
        (None, None, True),
    ],
)
def test_a_breach_of_another_process_asks_for_nothing(
    quality: Quality, measured: str | None, runs_now: str | None, *, asks: bool
) -> None:
    found = wanted(state(quality, breaches=2, process=measured), process=runs_now)
    assert (found is not None) is asks


@BREACHING_EACH_WAY
@pytest.mark.parametrize(
    ("judged_by", "in_force", "asks"),
    [
        ("l-1", {"chat": "l-1", "math": "l-2"}, True),
        ("l-1", {"chat": "l-2", "math": "l-1"}, False),
        ("l-1", {"math": "l-2"}, True),
        ("l-1", {"chat": ""}, True),
        ("", {"chat": "l-2"}, True),
        ("", {}, True),
    ],
)
def test_a_breach_of_limits_no_longer_in_force_asks_for_nothing(
    quality: Quality, judged_by: str, in_force: dict[str, str], *, asks: bool
) -> None:
    found = wanted(state(quality, breaches=2, limits=judged_by), rules=replace(RULES, limits=in_force))
    assert (found is not None) is asks


def test_a_breach_needs_both_its_process_and_its_limits() -> None:
    rules = replace(RULES, limits={"chat": "l-1"})
    assert wanted(state(Quality.CORRUPTED, process="process 1", limits="l-1"), rules=rules) is None
    assert wanted(state(Quality.CORRUPTED, process="process 2", limits="l-2"), rules=rules) is None
    assert wanted(state(Quality.CORRUPTED, process="process 2", limits="l-1"), rules=rules) is not None


def test_a_breach_that_still_applies_is_named_before_a_worse_one_that_does_not() -> None:
    gone = state(Quality.CORRUPTED, breaches=9, process="process 1")
    found = wanted(gone, state(Quality.DEGRADED, "math", breaches=2, process="process 2"))
    assert found is not None
    assert (found.task_set, found.lane) == ("math", Lane.LIMITS)


@pytest.mark.parametrize("human", sorted(set(Human) - {Human.NONE}))
def test_a_persons_word_wins(human: Human) -> None:
    assert wanted(CORRUPTED, target=replace(IN, human=human)) is None
    assert wanted(*CLEAN, target=replace(OUT, human=human)) is None


@pytest.mark.parametrize("routing", [Routing.LEAVING, Routing.RETURNING, Routing.CONTRADICTED])
def test_nothing_is_asked_for_while_something_is_under_way(routing: Routing) -> None:
    assert wanted(CORRUPTED, target=replace(OUT, routing=routing)) is None
    assert wanted(*CLEAN, target=replace(OUT, routing=routing)) is None


def test_what_is_out_already_need_not_go_out() -> None:
    assert wanted(CORRUPTED, clean("math"), target=OUT) is None


def test_what_is_in_already_need_not_come_in() -> None:
    assert wanted(*CLEAN) is None


def test_clean_runs_of_every_task_set_ask_for_a_release() -> None:
    assert wanted(clean(runs=4), clean("math"), target=OUT) == Wish(
        Action.RELEASE, "node", "blue", "clean runs in a row of every task set: chat 4, math 3"
    )


def test_what_others_took_out_is_left_to_them() -> None:
    assert wanted(*CLEAN, target=replace(OUT, owner=None)) is None


NOT_CLEARED = [
    [clean()],
    [],
    [clean(), clean("math", runs=2)],
    [clean(), clean("math", ago=1501)],
    [clean(), replace(clean("math"), at=None)],
    [clean(), state(Quality.WARN, "math", clean=3)],
    [clean(), state(Quality.SKIPPED, "math", clean=3, undecided=1)],
    [clean(), state(Quality.DEGRADED, "math", breaches=2)],
]


@pytest.mark.parametrize("sets", NOT_CLEARED)
def test_a_task_set_that_is_not_clean_holds_the_release(sets: list[SetState]) -> None:
    assert wanted(*sets, target=OUT) is None


def test_a_task_set_that_left_the_configuration_holds_no_release() -> None:
    assert wanted(*CLEAN, state(Quality.DEGRADED, "code", breaches=2), target=OUT) is not None


def test_without_configured_task_sets_nothing_proves_a_release() -> None:
    assert wanted(target=OUT, rules=WishRules({}, {}, 3, 600.0)) is None


def test_runs_from_before_the_isolation_do_not_release() -> None:
    rules = replace(RULES, periods={"chat": 600.0, "math": 86_400.0})
    assert wanted(clean(), clean("math", ago=3601, runs=30), target=OUT, rules=rules) is None
    assert wanted(clean(), clean("math", ago=3600, runs=30), target=OUT, rules=rules) is not None


@pytest.mark.parametrize(
    ("ejections", "held", "over"),
    [
        (1, 599, False),
        (1, 600, True),
        (0, 599, False),
        (3, 1799, False),
        (3, 1800, True),
        (50, 4800, True),
        (8, 4799, False),
    ],
)
def test_the_hold_grows_with_every_isolation_up_to_eight_times(ejections: int, held: float, *, over: bool) -> None:
    target = replace(OUT, ejections=ejections, since=NOW - timedelta(seconds=held))
    assert (wanted(*CLEAN, target=target) is not None) is over


def test_a_hold_of_unknown_start_is_not_over() -> None:
    assert wanted(*CLEAN, target=replace(OUT, since=None)) is None


@pytest.mark.parametrize(
    ("process", "gone", "returns"),
    [
        ("process 2", "process 1", True),
        ("process 1", "process 1", False),
        (None, "process 1", False),
        ("process 2", None, False),
        (None, None, False),
    ],
)
def test_a_corrupted_node_returns_only_as_another_process(
    process: str | None, gone: str | None, *, returns: bool
) -> None:
    target = replace(OUT, lane=Lane.CORRUPTED.value, gone=gone)
    assert (wanted(*CLEAN, target=target, process=process) is not None) is returns
    assert wanted(*CLEAN, target=replace(target, lane="limits"), process=process) is not None


LEAVING = replace(IN, routing=Routing.LEAVING, since=NOW - timedelta(minutes=10))
RETURNING = replace(OUT, routing=Routing.RETURNING, since=NOW - timedelta(minutes=10))


def moot(action: Action, *sets: SetState, human: Human = Human.NONE, rules: WishRules = RULES) -> str | None:
    target = LEAVING if action is Action.ISOLATE else RETURNING
    return withdrawn(action, replace(target, human=human), sets, rules, now=NOW)


@pytest.mark.parametrize("quality", [Quality.OK, Quality.WARN])
def test_an_isolation_is_withdrawn_when_the_node_passes_meanwhile(quality: Quality) -> None:
    assert moot(Action.ISOLATE, state(quality)) == "measured again, and no breach any more: chat"


STALE = state(Quality.DEGRADED, "math", breaches=2, ago=1501)

STILL_WANTED = [
    [DEGRADED],
    [CORRUPTED],
    [state(Quality.DEGRADED, breaches=2, ago=1500)],
    [clean(), state(Quality.DEGRADED, "math", breaches=2)],
    [clean(), state(Quality.DEGRADED, "math", last=Quality.UNKNOWN, breaches=2, undecided=2)],
    [DEGRADED, STALE],
    [STALE, DEGRADED],
]


@pytest.mark.parametrize("sets", STILL_WANTED)
def test_an_isolation_stays_wanted_while_a_breach_stands_that_was_proven_lately(sets: list[SetState]) -> None:
    assert moot(Action.ISOLATE, *sets) is None


@pytest.mark.parametrize(
    "breach", [STALE, replace(STALE, quality=Quality.CORRUPTED), replace(STALE, at=NOW, undecided=3)]
)
def test_an_isolation_is_withdrawn_when_its_breach_was_not_proven_again_for_too_long(breach: SetState) -> None:
    assert moot(Action.ISOLATE, clean(), breach) == "the breach was measured too long ago to act on: math"


def test_every_breach_that_is_too_old_is_named() -> None:
    said = moot(Action.ISOLATE, replace(STALE, task_set="chat"), STALE)
    assert said == "the breach was measured too long ago to act on: chat, math"


NO_BREACH = [
    [],
    [clean(ago=601)],
    [clean("code")],
    [state(Quality.CORRUPTED, "code", breaches=2)],
    [clean(), state(Quality.INCONCLUSIVE, "math", last=Quality.DEGRADED, breaches=1)],
    *([clean(), state(quality, "math")] for quality in sorted(CANNOT_TELL)),
]


@pytest.mark.parametrize("sets", NO_BREACH)
def test_an_isolation_is_withdrawn_when_no_breach_stands_whatever_cannot_be_told(sets: list[SetState]) -> None:
    assert moot(Action.ISOLATE, *sets) == "no breach stands any more"


def test_the_task_sets_that_pass_are_named_and_a_stale_one_does_not_stand_in_their_way() -> None:
    assert moot(Action.ISOLATE, clean("math"), clean()) == "measured again, and no breach any more: chat, math"
    old = state(Quality.UNKNOWN, "math", ago=1501)
    long_ago = replace(LEAVING, since=NOW - timedelta(hours=1))
    said = withdrawn(Action.ISOLATE, long_ago, [clean(), old], RULES, now=NOW)
    assert said == "measured again, and no breach any more: chat"


@pytest.mark.parametrize("ago", [60, 9999])
def test_a_task_set_or_lane_that_may_not_act_keeps_no_isolation_wanted(ago: float) -> None:
    breach = state(Quality.CORRUPTED, "math", breaches=2, ago=ago)
    for act_on in ({}, {"chat": EVERYTHING}, {"math": frozenset({Lane.LIMITS})}):
        rules = replace(RULES, act_on=act_on)
        assert moot(Action.ISOLATE, breach, rules=rules) == "no breach stands any more"


def test_a_task_set_that_may_not_act_does_not_keep_the_others_from_passing() -> None:
    rules = replace(RULES, act_on={"chat": EVERYTHING})
    said = moot(Action.ISOLATE, clean(), state(Quality.CORRUPTED, "math", breaches=2), rules=rules)
    assert said == "measured again, and no breach any more: chat"


def test_an_order_of_unknown_start_is_held_against_all_fresh_runs() -> None:
    said = withdrawn(Action.ISOLATE, replace(LEAVING, since=None), CLEAN, RULES, now=NOW)
    assert said == "measured again, and no breach any more: chat, math"


BREACHING = [
    DEGRADED,
    state(Quality.INCONCLUSIVE, last=Quality.DEGRADED, breaches=1),
    state(Quality.SKIPPED, breaches=1, undecided=1),
    state(Quality.CORRUPTED, last=Quality.INCONCLUSIVE, undecided=1),
]


@pytest.mark.parametrize("breach", BREACHING)
def test_a_release_is_withdrawn_when_the_node_breaches_again(breach: SetState) -> None:
    assert moot(Action.RELEASE, breach, clean("math")) == f"it breaches again: chat: {breach.reason}"


@pytest.mark.parametrize("quality", sorted({Quality.OK, Quality.WARN, *CANNOT_TELL}))
def test_a_release_is_not_withdrawn_for_anything_less(quality: Quality) -> None:
    assert moot(Action.RELEASE, state(quality), replace(DEGRADED, task_set="math", at=NOW - timedelta(hours=1))) is None


@pytest.mark.parametrize(
    ("action", "human", "stays"),
    [
        (Action.ISOLATE, Human.HELD, False),
        (Action.ISOLATE, Human.FORCED_IN, False),
        (Action.ISOLATE, Human.FORCED_OUT, True),
        (Action.RELEASE, Human.HELD, False),
        (Action.RELEASE, Human.FORCED_OUT, False),
        (Action.RELEASE, Human.FORCED_IN, True),
    ],
)
def test_a_persons_word_decides_about_an_order_whatever_was_measured(
    action: Action, human: Human, *, stays: bool
) -> None:
    for sets in (CLEAN, (CORRUPTED,)):
        said = moot(action, *sets, human=human)
        assert said == (None if stays else f"a person has set the target to {human}")
