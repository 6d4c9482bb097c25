"""A pool as a whole: when it is in a storm, whose fault that is, how it ends, and what one yes to all of it frees."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from quantwatch.flow.check import Check
from quantwatch.flow.decision import Action, Brake, PoolMode, Ruling, Wish
from quantwatch.flow.fleet import Fallback, Fleet, PoolRules
from quantwatch.flow.pool import OnFleetDegraded, PoolStanding, PoolState, whole
from quantwatch.flow.state import Human, Pause, TargetState
from quantwatch.judge.brake import objections
from quantwatch.judge.fleet import OVERRIDDEN, Proof, Weather, proof, said, stand, together

START = datetime(2026, 1, 1, tzinfo=UTC)
RULES = PoolRules(storm_share=0.5, storm_cooldown_seconds=1800.0)
WINDOW = 1500.0
HEALTHY = PoolStanding("chat")
SOUND = Fallback("baseline", healthy=True, waiting=0, kv_usage=0.1)


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def check(minutes: float = 0, *, sound: bool | None = True, thorough: bool = True, **given: Any) -> Check:
    return Check(at(minutes), sound=sound, thorough=thorough, **given)


def weather(*names: str, members: int = 3, checks: dict[tuple[str, str], Check] | None = None, **given: Any) -> Weather:
    return Weather(members, {(name, "math"): WINDOW for name in names}, checks or {}, **given)


def by(found: Check, *names: str) -> dict[tuple[str, str], Check]:
    """The self-check of everybody's run."""
    return {(name, "math"): found for name in names or ("a", "b", "c")}


def stormy(minutes: float = 0, *names: str, **given: Any) -> PoolStanding:
    return stand(HEALTHY, weather(*(names or ("a", "b")), **given), RULES, now=at(minutes))


# ------------------------------------------------------------------ storms


@pytest.mark.parametrize(
    ("members", "breaching", "share", "state"),
    [
        (1, "a", 0.1, PoolState.HEALTHY),
        (2, "ab", 0.1, PoolState.HEALTHY),
        (3, "a", 0.1, PoolState.HEALTHY),
        (3, "ab", 0.5, PoolState.STORM),
        (3, "ab", 0.67, PoolState.HEALTHY),
        (3, "abc", 0.67, PoolState.STORM),
        (100, "ab", 0.02, PoolState.STORM),
        (100, "ab", 0.03, PoolState.HEALTHY),
    ],
)
def test_pools_of_three_or_more_are_in_a_storm_when_the_share_breaches(
    members: int, breaching: str, share: float, state: PoolState
) -> None:
    found = stand(HEALTHY, weather(*breaching, members=members), replace(RULES, storm_share=share), now=at(0))
    assert found.state is state


def test_a_pool_that_is_well_stays_as_it_is() -> None:
    assert stand(HEALTHY, weather(), RULES, now=at(0)) is HEALTHY


def test_a_storm_begins_without_proof_and_says_why() -> None:
    found = stormy(1)
    assert found == PoolStanding(
        "chat",
        PoolState.STORM,
        since=at(1),
        began=at(1),
        raging=at(1),
        reason="2 of 3 members breach at once (a, b), and the baseline is not proven sound: it has not been checked on "
        "math since the storm began",
    )
    assert not found.degraded


def test_a_yardstick_proven_since_the_storm_began_makes_it_the_nodes_own() -> None:
    storm = stormy(0)
    found = stand(storm, weather("a", "b", "c", checks=by(check(1))), RULES, now=at(2))
    assert (found.state, found.since, found.proven, found.degraded) == (PoolState.FLEET_DEGRADED, at(2), at(1), True)
    assert found.reason == "3 of 3 members breach at once (a, b, c), and the baseline is proven sound"
    again = stand(found, weather("a", "b", checks=by(check(5))), RULES, now=at(6))
    assert (again.since, again.began, again.raging, again.proven) == (at(2), at(0), at(0), at(5))


def test_a_check_from_before_the_storm_proves_nothing() -> None:
    assert stormy(1, checks=by(check(0.9))).state is PoolState.STORM


def proven() -> PoolStanding:
    return stand(stormy(0), weather("a", "b", checks=by(check(0))), RULES, now=at(0))


def test_a_run_whose_check_gave_nothing_leaves_the_proof_for_its_time() -> None:
    nothing = weather("a", "b", checks=by(check(5), "a") | by(check(5, sound=None), "b"))
    found = stand(proven(), nothing, RULES, now=at(25))
    assert (found.state, found.proven) == (PoolState.FLEET_DEGRADED, at(0))
    late = stand(found, nothing, RULES, now=at(25.1))
    assert late.state is PoolState.STORM
    assert "it could not be held against its stored answers on math" in late.reason


@pytest.mark.parametrize(
    "refuted",
    [
        {"checks": {("x", "other"): check(5, sound=False, trouble="it moved")}},
        {"checks": by(check(5)), "mismatch": "it moved"},
    ],
)
def test_what_speaks_against_the_yardstick_takes_the_proof_back_at_once(refuted: dict[str, Any]) -> None:
    found = stand(proven(), weather("a", "b", **refuted), RULES, now=at(5))
    assert (found.state, found.proven) == (PoolState.STORM, None)
    assert found.reason.endswith("the baseline is not proven sound: it moved")


def test_a_storm_keeps_its_state_for_the_cooldown_and_then_ends() -> None:
    calm = stand(proven(), weather("a"), RULES, now=at(10))
    assert (calm.state, calm.raging, calm.until, calm.degraded) == (PoolState.FLEET_DEGRADED, None, at(40), False)
    assert stand(calm, weather(), RULES, now=at(39.9)) is calm
    over = stand(calm, weather(), RULES, now=at(40))
    assert over == PoolStanding("chat", since=at(40), reason="the storm has passed, and its cooldown is over")
    assert stand(over, weather(), RULES, now=at(99)) is over


def test_a_storm_that_comes_back_in_its_cooldown_goes_on_and_has_a_whole_one_ahead() -> None:
    calm = stand(proven(), weather("a"), RULES, now=at(10))
    back = stand(calm, weather("a", "b"), RULES, now=at(12))
    assert (back.began, back.raging, back.until) == (at(0), at(12), None)
    assert stand(back, weather(), RULES, now=at(20)).until == at(50)


def test_a_state_without_a_storm_and_without_an_end_ends() -> None:
    lost = PoolStanding("chat", PoolState.STORM, since=at(0))
    assert stand(lost, weather(), RULES, now=at(1)).state is PoolState.HEALTHY


# ------------------------------------------------------------------ the yardstick


def test_nothing_guilty_needs_no_proof_and_has_none() -> None:
    assert proof(weather(), since=at(0), now=at(1)) == Proof(None)


NEW = "no clean run has proven its answers on math yet; `quantwatch accept-baseline` if they are right"
UNCHECKED = "it has not been checked on math since the storm began"


@pytest.mark.parametrize(
    ("found", "why", "refuted"),
    [
        (None, UNCHECKED, False),
        (check(-1), UNCHECKED, False),
        (check(1, thorough=False), UNCHECKED, False),
        (check(1, sound=None), "it could not be held against its stored answers on math", False),
        (check(1, sound=None, new=True), NEW, True),
        (check(-1, sound=None, new=True), NEW, True),
        (check(1, sound=False), "it no longer gives its stored answers", True),
        (check(1, sound=False, trouble="it moved"), "it moved", True),
    ],
)
def test_one_breach_without_a_proof_leaves_all_without(found: Check | None, why: str, *, refuted: bool) -> None:
    checks = by(check(1), "a") | ({} if found is None else by(found, "b"))
    assert proof(weather("a", "b", checks=checks), since=at(0), now=at(2)) == Proof(None, why, refuted)


def test_a_check_of_another_task_set_proves_nothing() -> None:
    checks = by(check(1), "a") | {("b", "code"): check(1)}
    assert proof(weather("a", "b", checks=checks), since=at(0), now=at(2)).why == UNCHECKED


def test_the_oldest_check_counts_and_for_its_own_time() -> None:
    bad = Weather(3, {("a", "math"): WINDOW, ("b", "code"): 60.0}, {("a", "math"): check(1), ("b", "code"): check(3)})
    assert proof(bad, since=at(0), now=at(4)) == Proof(at(1))
    assert proof(bad, since=at(0), now=at(4.1)) == Proof(None, "its last self-check on code is too old")


def test_enrolled_answers_are_a_proof() -> None:
    assert proof(weather("a", "b", checks=by(check(1, enrolled=True))), since=at(0), now=at(2)).at == at(1)


# ------------------------------------------------------------------ one yes to all of it


def fleet(members: int = 3, **given: Any) -> Fleet:
    known = tuple(TargetState(f"n{i}", "chat") for i in range(members))
    bad = frozenset(one.target for one in known)
    rules = PoolRules(PoolMode.ENFORCE, max_isolated=0.34, actions_per_hour=1)
    own: dict[str, Any] = {"breaching": bad, "storming": True, "degraded": True, "fallback": SOUND}
    return Fleet("chat", rules, known, at(0), **(own | given))


def asked(seen: Fleet, count: int = 3) -> list[tuple[Wish, Fleet]]:
    return [(Wish(Action.ISOLATE, f"n{i}", "chat", "bad"), seen) for i in range(count)]


def rulings(seen: Fleet, count: int = 3) -> list[Ruling]:
    return [ruling for ruling, _ in together(asked(seen, count))]


def test_a_yes_overrides_cap_storm_and_rate_and_tells_them_once() -> None:
    ruled = together(asked(fleet(recent_actions=1)))
    assert [ruling for ruling, _ in ruled] == [Ruling.ACT] * 3
    told = said(ruled)
    assert {one.brake for one in told} == OVERRIDDEN
    assert len(told) == 3
    assert "3 of 3 members of chat would be away" in next(one.reason for one in told if one.brake is Brake.CAP)
    assert "3 isolations within the last hour" in next(one.reason for one in told if one.brake is Brake.RATE)


@pytest.mark.parametrize(
    ("given", "brake"),
    [
        ({"fallback": None}, Brake.LAST_BACKEND),
        ({"fallback": replace(SOUND, healthy=False)}, Brake.LAST_BACKEND),
        ({"fallback": replace(SOUND, healthy=None)}, Brake.FALLBACK),
        ({"fallback": replace(SOUND, waiting=99)}, Brake.FALLBACK_OVERLOADED),
        ({"fallback_for": ("other",)}, Brake.FALLBACK_IN_USE),
        ({"store": "disk full"}, Brake.STORE),
        ({"driver": "none"}, Brake.DRIVER),
        ({"yardstick": "it moved"}, Brake.YARDSTICK),
        ({"pauses": (Pause("p", "pool:chat", "x", "ada", at(0)),)}, Brake.PAUSED),
    ],
)
def test_a_yes_overrides_nothing_else(given: dict[str, Any], brake: Brake) -> None:
    ruled = together(asked(fleet(**given)))
    assert [ruling for ruling, _ in ruled] == [Ruling.SUPPRESSED] * 3
    assert brake in {one.brake for one in said(ruled)}


def test_a_person_s_word_about_one_member_holds_that_one_back() -> None:
    seen = fleet()
    held = replace(seen.members[1], human=Human.HELD)
    assert rulings(replace(seen, members=(seen.members[0], held, seen.members[2]))) == [
        Ruling.ACT,
        Ruling.SUPPRESSED,
        Ruling.ACT,
    ]


def test_without_a_fallback_those_go_that_leave_a_sound_one() -> None:
    seen = fleet(4, fallback=None, breaching=frozenset({"n0", "n1", "n2"}), sound=frozenset({"n3"}))
    assert rulings(seen) == [Ruling.ACT] * 3
    assert rulings(replace(seen, breaching=frozenset({"n0", "n1"}), sound=frozenset({"n3"})), 4) == [
        Ruling.ACT,
        Ruling.ACT,
        Ruling.ACT,
        Ruling.SUPPRESSED,
    ]


def test_nobody_asked_is_nothing_done() -> None:
    assert together([]) == []
    assert said([]) == ()


# ------------------------------------------------------------------ the brake


@pytest.mark.parametrize("on", OnFleetDegraded)
@pytest.mark.parametrize("degraded", [True, False])
def test_the_storm_objects_unless_it_is_the_nodes_own_and_the_pool_is_set_to_go_on(
    *, on: OnFleetDegraded, degraded: bool
) -> None:
    rules = PoolRules(PoolMode.ENFORCE, max_isolated=1.0, on_fleet_degraded=on)
    found = objections(Wish(Action.ISOLATE, "n0", "chat", "bad"), replace(fleet(degraded=degraded), rules=rules))
    free = degraded and on is OnFleetDegraded.UP_TO_CAP
    assert [one.brake for one in found] == ([] if free else [Brake.STORM])


def test_no_target_can_be_called_as_a_pool_is() -> None:
    assert whole("chat") == "pool:chat"


def test_who_is_on_the_way_out_already_leaves_nobody_behind() -> None:
    seen = fleet(4, fallback=None, breaching=frozenset({"n0"}), sound=frozenset({"n1", "n2", "n3"}))
    ruled = together([(Wish(Action.ISOLATE, f"n{i}", "chat", "bad"), seen) for i in range(4)])
    assert [ruling for ruling, _ in ruled] == [Ruling.ACT, Ruling.ACT, Ruling.ACT, Ruling.SUPPRESSED]
