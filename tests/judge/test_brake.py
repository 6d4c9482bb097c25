"""Everything that can object to an action, on pools of one, two, three and a hundred."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from quantwatch.flow.decision import Action, Brake, Objection, PoolMode, Ruling, Wish
from quantwatch.flow.fleet import Fallback, Fleet, PoolRules
from quantwatch.flow.state import Human, Pause, Routing, TargetState
from quantwatch.judge.brake import allowed, objections, ruling, stormy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ISOLATE = Wish(Action.ISOLATE, "node-0", "blue", "chat is degraded")
RELEASE = Wish(Action.RELEASE, "node-0", "blue", "clean")
SOUND = Fallback("baseline", healthy=True, waiting=0, kv_usage=0.1)
ENFORCE = PoolRules(PoolMode.ENFORCE)


def pool(members: int, *, away: int = 0, routing: Routing = Routing.OUT) -> tuple[TargetState, ...]:
    """Members node-0, node-1, ..., of which the last are away."""
    return tuple(
        TargetState(f"node-{i}", "blue", routing if i >= members - away else Routing.IN) for i in range(members)
    )


def fleet(members: int = 10, *, away: int = 0, rules: PoolRules = ENFORCE, **more: Any) -> Fleet:
    """A pool whose members are all sound by their own results, unless told otherwise."""
    known = pool(members, away=away)
    return Fleet("blue", rules, known, NOW, **{"sound": frozenset(one.target for one in known), **more})


def brakes(seen: Fleet, wish: Wish = ISOLATE) -> list[Brake]:
    return [one.brake for one in objections(wish, seen)]


def said(seen: Fleet, wish: Wish = ISOLATE) -> str:
    """The reason of the only objection."""
    (only,) = objections(wish, seen)
    return only.reason


@pytest.mark.parametrize(
    ("members", "share", "most"),
    [
        (1, 0.34, 1),
        (1, 0.0, 0),
        (2, 0.34, 0),
        (2, 0.5, 1),
        (2, 1.0, 2),
        (3, 0.33, 0),
        (3, 1 / 3, 0),
        (3, 0.34, 1),
        (3, 0.67, 2),
        (10, 0.3, 3),
        (10, 0.7, 7),
        (100, 0.29, 29),
        (100, 0.57, 57),
        (100, 0.34, 34),
        (100, 0.999, 99),
        (0, 0.5, 0),
        (4, 7.0, 4),
        (4, -1.0, 0),
    ],
)
def test_the_share_of_a_pool_is_rounded_down_as_a_person_would(members: int, share: float, most: int) -> None:
    assert allowed(members, share) == most


@pytest.mark.parametrize(
    ("members", "away", "share", "objects"),
    [
        (2, 0, 0.34, True),
        (2, 0, 0.5, False),
        (3, 0, 0.34, False),
        (3, 1, 0.34, True),
        (3, 1, 0.66, True),
        (3, 1, 0.67, False),
        (3, 0, 0.33, True),
        (100, 33, 0.34, False),
        (100, 34, 0.34, True),
        (100, 28, 0.29, False),
        (100, 29, 0.29, True),
    ],
)
@pytest.mark.parametrize("fallback", [None, SOUND])
def test_the_cap_holds_after_the_action(
    members: int, away: int, share: float, fallback: Fallback | None, *, objects: bool
) -> None:
    seen = fleet(members, away=away, rules=replace(ENFORCE, max_isolated=share), fallback=fallback)
    assert (Brake.CAP in brakes(seen)) is objects


def test_the_cap_tells_its_numbers() -> None:
    assert said(fleet(3, away=1)) == "2 of 3 members of blue would be away, and 0.34 of them, which is 1, may be"


@pytest.mark.parametrize("routing", [Routing.LEAVING, Routing.OUT, Routing.RETURNING, Routing.CONTRADICTED])
def test_whatever_is_not_surely_in_traffic_counts_as_away(routing: Routing) -> None:
    seen = replace(fleet(), members=pool(3, away=1, routing=routing))
    assert brakes(seen) == [Brake.CAP]


def test_what_a_person_forced_out_counts_as_away_before_it_is() -> None:
    first, second, third = pool(3)
    assert brakes(replace(fleet(), members=(first, second, replace(third, human=Human.FORCED_OUT)))) == [Brake.CAP]


def test_a_target_that_is_no_member_is_not_isolated() -> None:
    assert brakes(fleet(), replace(ISOLATE, target="stranger")) == [Brake.CAP]


def test_a_pool_of_one_is_isolated_with_a_verified_fallback_and_never_without() -> None:
    assert brakes(fleet(1, fallback=SOUND)) == []
    assert said(fleet(1)) == "blue would have no sound backend left, and no fallback is named"
    assert brakes(fleet(1)) == [Brake.LAST_BACKEND]


@pytest.mark.parametrize("fallback", [None, SOUND])
def test_a_share_of_nothing_means_never_even_in_a_pool_of_one(fallback: Fallback | None) -> None:
    assert Brake.CAP in brakes(fleet(1, rules=replace(ENFORCE, max_isolated=0.0), fallback=fallback))


@pytest.mark.parametrize("members", [1, 2, 3, 100])
def test_the_last_backend_stays_whatever_the_share(members: int) -> None:
    everything = replace(ENFORCE, max_isolated=1.0)
    assert brakes(fleet(members, away=members - 1, rules=everything)) == [Brake.LAST_BACKEND]
    assert brakes(fleet(members, away=members - 1, rules=everything, fallback=SOUND)) == []


@pytest.mark.parametrize("healthy", [False, None])
def test_a_fallback_that_is_not_verified_is_no_backend(healthy: bool | None) -> None:
    seen = fleet(1, fallback=replace(SOUND, healthy=healthy))
    assert brakes(seen) == [Brake.LAST_BACKEND, Brake.FALLBACK]
    assert objections(ISOLATE, seen)[0].reason.endswith("and the fallback baseline is not verified")


def test_a_member_that_breaches_is_no_backend_to_rely_on() -> None:
    half = replace(ENFORCE, max_isolated=0.5)
    both = frozenset({"node-0", "node-1"})
    assert brakes(fleet(2, rules=half, breaching=frozenset({"node-0"}))) == []
    assert brakes(fleet(2, rules=half, breaching=both)) == [Brake.LAST_BACKEND]
    assert brakes(fleet(2, rules=half, breaching=both, fallback=SOUND)) == []


@pytest.mark.parametrize(
    ("sound", "objects"),
    [
        ({"node-0", "node-1"}, False),
        ({"node-1"}, False),
        ({"node-0"}, True),
        ({"elsewhere"}, True),
        (set[str](), True),
    ],
)
def test_only_another_member_that_its_own_results_call_sound_is_a_backend(sound: set[str], *, objects: bool) -> None:
    seen = fleet(2, rules=replace(ENFORCE, max_isolated=0.5), sound=frozenset(sound))
    assert brakes(seen) == ([Brake.LAST_BACKEND] if objects else [])
    assert brakes(replace(seen, fallback=SOUND)) == []


def test_a_sound_member_out_of_traffic_is_no_backend_while_those_in_it_are_not_known() -> None:
    seen = fleet(4, away=1, rules=replace(ENFORCE, max_isolated=0.5), sound=frozenset({"node-0", "node-3"}))
    assert brakes(seen) == [Brake.LAST_BACKEND]
    assert brakes(replace(seen, sound=seen.sound | {"node-2"})) == []


def test_one_sound_member_among_many_that_are_down_is_a_backend() -> None:
    assert brakes(fleet(100, sound=frozenset({"node-99"}))) == []


def test_results_that_turned_bad_since_are_no_proof_of_a_backend() -> None:
    half, last = replace(ENFORCE, max_isolated=0.5), frozenset({"node-1"})
    assert brakes(fleet(2, rules=half, sound=last, breaching=last)) == [Brake.LAST_BACKEND]


def test_a_named_fallback_must_be_sound_even_where_other_members_remain() -> None:
    ill = replace(SOUND, healthy=False, why="chat is degraded")
    assert said(fleet(fallback=ill)) == "the fallback baseline cannot take over: chat is degraded"
    unknown = said(fleet(fallback=replace(SOUND, healthy=None)))
    assert unknown == "the fallback baseline cannot take over: whether it is healthy could not be found out"


@pytest.mark.parametrize(
    ("waiting", "kv_usage", "objects"),
    [
        (4, 0.8, False),
        (5, 0.1, True),
        (0, 0.81, True),
        (None, 0.1, True),
        (0, None, True),
        (float("nan"), 0.1, True),
        (0, float("nan"), True),
    ],
)
def test_a_fallback_must_be_known_to_have_room(waiting: float | None, kv_usage: float | None, *, objects: bool) -> None:
    seen = fleet(fallback=replace(SOUND, waiting=waiting, kv_usage=kv_usage))
    assert brakes(seen) == ([Brake.FALLBACK_OVERLOADED] if objects else [])


def test_the_load_of_a_fallback_is_told_with_its_limits() -> None:
    told = said(fleet(fallback=replace(SOUND, waiting=7, kv_usage=None)))
    assert told == (
        "the fallback baseline is loaded: requests waiting 7 (at most 4), KV cache use unknown (at most 0.8)"
    )


def test_the_fallback_of_others_is_not_isolated_while_it_is_in_use() -> None:
    assert said(fleet(fallback_for=("green", "red"))) == "node-0 stands in for isolated members of green, red"
    assert brakes(fleet(fallback_for=("green",))) == [Brake.FALLBACK_IN_USE]


@pytest.mark.parametrize(
    ("members", "breaching", "share", "storm"),
    [
        (1, 1, 0.5, False),
        (2, 2, 0.5, False),
        (3, 1, 0.5, False),
        (3, 1, 0.1, False),
        (3, 2, 0.5, True),
        (4, 2, 0.5, True),
        (4, 1, 0.25, False),
        (4, 3, 1.0, False),
        (4, 4, 1.0, True),
        (4, 0, 0.0, False),
        (10, 3, 0.3, True),
        (100, 28, 0.29, False),
        (100, 29, 0.29, True),
    ],
)
def test_a_share_of_a_pool_of_three_or_more_is_a_storm(
    members: int, breaching: int, share: float, *, storm: bool
) -> None:
    assert stormy(members, breaching, share) is storm


@pytest.mark.parametrize(("members", "objects"), [(1, False), (2, False), (3, True), (100, False)])
def test_nothing_acts_in_a_storm(members: int, *, objects: bool) -> None:
    seen = fleet(members, breaching=frozenset({"node-1"}), rules=replace(ENFORCE, max_isolated=1.0), fallback=SOUND)
    assert brakes(seen) == ([Brake.STORM] if objects else [])


def test_a_storm_counts_members_only_and_the_target_always() -> None:
    assert brakes(fleet(3, breaching=frozenset({"elsewhere"}))) == []
    assert said(fleet(3, breaching=frozenset({"node-2"}))) == (
        "2 of 3 members of blue breach at once, which points to a common cause"
    )


def test_who_is_out_already_makes_no_storm() -> None:
    """One node out for an hour and another that goes bad now have no cause in common."""
    bad = frozenset({"node-2", "node-3"})
    assert Brake.STORM in brakes(fleet(4, breaching=bad))
    assert Brake.STORM not in brakes(fleet(4, away=2, breaching=bad))


def test_who_left_a_moment_ago_and_breaches_on_counts_for_a_storm() -> None:
    bad = frozenset({"node-2", "node-3"})
    assert Brake.STORM in brakes(fleet(4, away=2, breaching=bad, lately=frozenset({"node-3"})))
    assert Brake.STORM not in brakes(fleet(4, away=2, lately=frozenset({"node-3"})))


def test_nothing_acts_for_a_while_after_a_storm() -> None:
    assert brakes(fleet(1, storming=True, fallback=SOUND)) == [Brake.STORM]


def test_nothing_acts_on_a_yardstick_that_is_not_proven() -> None:
    seen = fleet(yardstick="other weights since 10:00")
    assert said(seen) == said(seen, RELEASE) == "the baseline is not proven sound: other weights since 10:00"
    assert brakes(seen) == brakes(seen, RELEASE) == [Brake.YARDSTICK]


def test_nothing_acts_without_a_store() -> None:
    seen = fleet(store="disk full")
    assert said(seen) == said(seen, RELEASE) == "nothing can be written down, so nothing acts: disk full"
    assert brakes(seen) == brakes(seen, RELEASE) == [Brake.STORE]


def test_nothing_acts_where_the_gateway_cannot_be_asked() -> None:
    seen = fleet(driver="it went out through haproxy, and now the driver is webhook")
    assert said(seen) == said(seen, RELEASE) == "it went out through haproxy, and now the driver is webhook"
    assert brakes(seen) == brakes(seen, RELEASE) == [Brake.DRIVER]


@pytest.mark.parametrize(("recent", "objects"), [(3, False), (4, True), (5, True)])
def test_isolations_have_a_rate(recent: int, *, objects: bool) -> None:
    assert brakes(fleet(recent_actions=recent)) == ([Brake.RATE] if objects else [])
    assert brakes(fleet(recent_actions=recent), RELEASE) == []


@pytest.mark.parametrize("human", sorted(set(Human) - {Human.NONE}))
def test_a_persons_word_since_the_wish_wins(human: Human) -> None:
    first, *others = pool(10)
    seen = replace(fleet(), members=(replace(first, human=human), *others))
    assert Brake.HUMAN in brakes(seen)
    assert said(seen, RELEASE) == f"a person has set node-0 to {human}"


def pause(scope: str, *, minutes: float | None = None) -> Pause:
    until = None if minutes is None else NOW + timedelta(minutes=minutes)
    return Pause("p", scope, f"for {scope}", "ada", NOW - timedelta(hours=1), until)


@pytest.mark.parametrize("scope", ["all", "pool:blue", "target:node-0"])
def test_a_pause_holds_everything_it_covers(scope: str) -> None:
    seen = fleet(pauses=(pause(scope),))
    assert said(seen) == said(seen, RELEASE) == f"ada paused {scope}: for {scope}"
    assert brakes(seen) == brakes(seen, RELEASE) == [Brake.PAUSED]


def test_pauses_of_others_or_of_yesterday_hold_nothing() -> None:
    assert brakes(fleet(pauses=(pause("pool:red"), pause("target:node-1"), pause("all", minutes=0)))) == []


def test_every_pause_is_told() -> None:
    seen = fleet(pauses=(pause("all", minutes=5), pause("pool:red"), pause("pool:blue")))
    assert said(seen) == "ada paused all: for all; ada paused pool:blue: for pool:blue"


def test_all_objections_are_collected() -> None:
    seen = Fleet(
        "blue",
        ENFORCE,
        (replace(pool(1)[0], human=Human.HELD), *pool(3, away=2)[1:]),
        NOW,
        breaching=frozenset({"node-1"}),
        storming=True,
        fallback=Fallback("baseline", healthy=None),
        fallback_for=("green",),
        recent_actions=9,
        pauses=(pause("all"),),
        yardstick="unknown",
        store="locked",
        driver="another driver",
    )
    assert set(brakes(seen)) == set(Brake) - {Brake.DRY_RUN, Brake.AWAITING_APPROVAL}
    assert all(one.reason for one in objections(ISOLATE, seen))


@pytest.mark.parametrize("members", [1, 2, 3, 100])
def test_a_release_is_held_by_no_brake_on_capacity(members: int) -> None:
    seen = fleet(
        members,
        away=members,
        breaching=frozenset({"node-1", "node-2"}),
        storming=True,
        fallback=Fallback("baseline", healthy=False),
        fallback_for=("green",),
        recent_actions=99,
        rules=replace(ENFORCE, max_isolated=0.0),
    )
    assert ruling(RELEASE, seen) == (Ruling.ACT, ())


@pytest.mark.parametrize("wish", [ISOLATE, RELEASE])
@pytest.mark.parametrize(
    ("mode", "expected", "objecting"),
    [
        (PoolMode.OBSERVE, Ruling.SUPPRESSED, [Brake.DRY_RUN]),
        (PoolMode.DRY_RUN, Ruling.WOULD_HAVE, [Brake.DRY_RUN]),
        (PoolMode.APPROVE, Ruling.PROPOSED, [Brake.AWAITING_APPROVAL]),
        (PoolMode.ENFORCE, Ruling.ACT, []),
    ],
)
def test_the_mode_decides_when_nothing_else_objects(
    mode: PoolMode, expected: Ruling, objecting: list[Brake], wish: Wish
) -> None:
    found, why = ruling(wish, fleet(rules=replace(ENFORCE, mode=mode)))
    assert (found, [one.brake for one in why]) == (expected, objecting)


@pytest.mark.parametrize("mode", list(PoolMode))
def test_in_every_mode_an_objection_suppresses_and_stands_before_the_mode(mode: PoolMode) -> None:
    found, why = ruling(ISOLATE, fleet(rules=replace(ENFORCE, mode=mode), store="disk full"))
    assert found is Ruling.SUPPRESSED
    assert why[0] == Objection(Brake.STORE, "nothing can be written down, so nothing acts: disk full")
    assert len(why) == (1 if mode is PoolMode.ENFORCE else 2)
