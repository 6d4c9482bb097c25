"""Which rung the traffic is on, who stands in when a member leaves, what the cap means there, and how weights move."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantwatch.flow.decision import Action, Brake, PoolMode, Ruling, Wish
from quantwatch.flow.fleet import Fallback, Fleet, PoolRules, Roll, Rung
from quantwatch.flow.state import Human, Routing, TargetState
from quantwatch.judge.brake import objections, ruling
from quantwatch.judge.ladder import above, aimed, in_charge, may_leave, on_ladder, routable, shares

NOW = datetime(2026, 1, 1, tzinfo=UTC)
INT4, INT8, LAST = Rung("int4", ("a", "b")), Rung("int8", ("c", "d")), Rung("baseline", ("baseline",))
LADDER = (INT4, INT8, LAST)
INT8_STANDS_IN = Fallback("c", healthy=True, waiting=0, kv_usage=0.1, node="gw-c", rung="int8")
RULES = PoolRules(PoolMode.ENFORCE, max_isolated=0.5)


def fleet(*away: str, ladder: tuple[Rung, ...] = LADDER, **more: Any) -> Fleet:
    """Targets a to d, all of them sound but those who are told otherwise."""
    names = [one for rung in ladder for one in rung.members if one != "baseline"]
    members = tuple(TargetState(one, "chat", Routing.OUT if one in away else Routing.IN) for one in names)
    given = {"sound": frozenset(names), "fallback": INT8_STANDS_IN, **more}
    return Fleet("chat", RULES, members, NOW, ladder=ladder, **given)


def isolate(target: str = "a") -> Wish:
    return Wish(Action.ISOLATE, target, "chat", "letters is degraded")


def brakes(seen: Fleet, target: str = "a") -> list[Brake]:
    return [one.brake for one in objections(isolate(target), on_ladder(isolate(target), seen))]


@pytest.mark.parametrize(
    ("target", "names"),
    [("a", ["int8", "baseline"]), ("d", ["baseline"]), ("baseline", []), ("stranger", [])],
)
def test_the_rungs_above_come_in_order(target: str, names: list[str]) -> None:
    assert [one.name for one in above(target, LADDER)] == names


@pytest.mark.parametrize(
    ("there", "rung"),
    [("abcd", "int4"), ("bd", "int4"), ("c", "int8"), ([], None), (["baseline"], "baseline"), ("x", None)],
)
def test_traffic_is_on_the_lowest_rung_that_has_somebody_in(there: Any, rung: str | None) -> None:
    assert in_charge(LADDER, there) == rung


def test_who_is_forced_out_is_not_routable_and_the_baseline_always_is() -> None:
    seen = fleet("b")
    forced = replace(seen.members[2], human=Human.FORCED_OUT)
    seen = replace(seen, members=(*seen.members[:2], forced, seen.members[3]))

    assert routable(seen) == {"a", "d", "baseline"}


def test_a_pool_without_a_ladder_is_left_as_it_is() -> None:
    plain = replace(fleet(), ladder=())

    assert on_ladder(isolate(), plain) is plain
    assert aimed(isolate(), plain) == isolate()
    assert plain.rung_of("a") is None


def test_while_another_of_the_rung_is_sound_the_traffic_stays_on_it() -> None:
    seen = on_ladder(isolate(), fleet(fallback=Fallback("c", healthy=False)))

    assert seen.fallback is None
    assert ruling(isolate(), seen) == (Ruling.ACT, ())
    wish = aimed(isolate(), seen)
    assert (wish.rung, wish.fallback, wish.reason) == ("int4", None, isolate().reason)


@pytest.mark.parametrize("more", [{"breaching": frozenset("ab")}, {"sound": frozenset("acd")}])
def test_where_nobody_sound_is_left_on_the_rung_the_next_one_stands_in(more: dict[str, Any]) -> None:
    seen = fleet(**more)
    seen = on_ladder(isolate(), replace(seen, rules=replace(RULES, storm_share=0.75)))

    wish = aimed(isolate(), seen)
    assert ruling(wish, seen) == (Ruling.ACT, ())
    assert (wish.rung, wish.fallback) == ("int8", "gw-c")
    assert wish.reason == "letters is degraded; traffic goes up from int4 to int8 (c)"


def test_a_rung_goes_beyond_the_cap_only_when_the_next_one_is_proven_and_under_its_load() -> None:
    busy = replace(INT8_STANDS_IN, waiting=5)
    unknown = replace(INT8_STANDS_IN, healthy=None)

    assert brakes(fleet("b")) == []
    assert brakes(fleet("b", fallback=busy)) == [Brake.CAP, Brake.FALLBACK_OVERLOADED]
    assert brakes(fleet("b", fallback=unknown)) == [Brake.CAP, Brake.FALLBACK]


@pytest.mark.parametrize("steered", [True, False])
def test_beyond_the_cap_a_gateway_of_its_own_order_gives_up_only_the_last_of_a_rung(*, steered: bool) -> None:
    """It uses the next rung when nobody of this one is left: until then one node would carry what ten did."""
    ten = (Rung("int4", tuple("abcdefghij")), Rung("int8", ("x",)), LAST)
    stands_in = replace(INT8_STANDS_IN, name="x", steered=steered)

    assert brakes(fleet(*"bcdef", ladder=ten, fallback=stands_in)) == ([] if steered else [Brake.CAP])
    assert brakes(fleet(*"bcdefghij", ladder=ten, fallback=stands_in)) == []


def rolled(*present: str) -> dict[str, Any]:
    return {"roll": Roll(NOW, frozenset(present))}


def test_who_stands_in_is_on_the_gateways_own_list_where_it_has_one() -> None:
    two = (Rung("int4", ("a",)), Rung("int8", ("c",)))

    assert brakes(fleet(ladder=two, **rolled("a", "c"))) == []
    assert brakes(fleet(ladder=two, **rolled("a"))) == [Brake.LAST_BACKEND, Brake.FALLBACK]
    assert routable(fleet(ladder=two, **rolled("a"))) == {"a"}


def test_a_mate_that_the_gateway_does_not_have_carries_nothing() -> None:
    seen = on_ladder(isolate(), fleet(**rolled("a", "c", "d")))

    assert seen.fallback == INT8_STANDS_IN
    assert aimed(isolate(), seen).rung == "int8"


def test_what_was_learned_of_the_stand_in_since_it_was_asked_counts() -> None:
    two = (Rung("int4", ("a",)), Rung("int8", ("c",)))
    seen = fleet(ladder=two, breaching=frozenset("c"), sound=frozenset("a"))
    (_, said) = objections(isolate(), on_ladder(isolate(), seen))

    assert brakes(seen) == [Brake.LAST_BACKEND, Brake.FALLBACK]
    assert said.reason == "the fallback c cannot take over: it breaches itself"
    assert brakes(fleet(ladder=two), "c") == []  # the lower rung carries on
    alone = on_ladder(isolate("c"), fleet("a", ladder=two))
    assert alone.fallback is not None
    assert (alone.fallback.healthy, alone.fallback.why) == (False, "it is leaving itself")


def test_a_whole_rung_that_breaches_at_once_is_a_storm_as_anywhere_else() -> None:
    """Half of the pool has a cause in common, and what then follows is no ladder's matter."""
    assert brakes(fleet(breaching=frozenset("ab"))) == [Brake.STORM]


def test_the_cap_counts_a_rung_by_itself() -> None:
    """Three of four may not be away by the share, but one of each rung may."""
    three = (Rung("int4", ("a",)), Rung("int8", ("b", "c", "d")), LAST)
    seen = fleet("a", "b", ladder=three)
    (said,) = objections(isolate("c"), on_ladder(isolate("c"), replace(seen, fallback=None)))

    assert brakes(fleet("a", ladder=three), "b") == []
    assert said.brake is Brake.CAP
    assert said.reason.startswith("2 of 3 members of chat on rung int8 would be away, and 0.5 of them, which is 1")


def test_a_rung_that_only_stands_by_may_lose_a_member_while_a_lower_one_is_sound() -> None:
    alone = (Rung("int4", ("a",)), Rung("int8", ("c",)), LAST)
    seen = on_ladder(isolate("c"), fleet(ladder=alone, fallback=Fallback("baseline", healthy=False)))

    assert seen.fallback is None
    assert aimed(isolate("c"), seen).rung == "int4"
    assert objections(isolate("c"), seen) == ()


def test_the_last_sound_rung_is_never_taken() -> None:
    two = (Rung("int4", ("a",)), Rung("int8", ("c",)))
    seen = on_ladder(isolate("c"), fleet("a", ladder=two, fallback=None))

    assert [one.brake for one in objections(isolate("c"), seen)] == [
        Brake.LAST_BACKEND,
        Brake.FALLBACK,
        Brake.FALLBACK_OVERLOADED,
    ]
    assert any("c is on the last rung, which is never taken" in one.reason for one in objections(isolate("c"), seen))


def test_who_was_asked_to_stand_in_and_has_been_ordered_out_since_does_not() -> None:
    alone = (Rung("int4", ("a",)), Rung("int8", ("c",)), LAST)
    seen = on_ladder(isolate(), fleet("c", ladder=alone))

    assert seen.fallback == replace(INT8_STANDS_IN, healthy=False, why="it is leaving itself")
    assert Brake.FALLBACK in brakes(fleet("c", ladder=alone))


def test_a_target_that_is_on_no_rung_is_said_to_come_from_nowhere() -> None:
    stray = TargetState("stray", "chat")
    seen = fleet()
    wish = Wish(Action.ISOLATE, "stray", "chat", "bad")

    assert "from nowhere to int8" in aimed(wish, replace(seen, members=(*seen.members, stray))).reason


@pytest.mark.parametrize(
    ("away", "target", "rung", "said"),
    [
        ("abcd", "c", "int8", "clean; traffic goes down from baseline to int8"),
        ("ab", "a", "int4", "clean; traffic goes down from int8 to int4"),
        ("a", "a", "int4", "clean"),
        ("bcd", "c", "int4", "clean"),
    ],
)
def test_a_release_says_the_rung_that_the_traffic_comes_down_to(away: str, target: str, rung: str, said: str) -> None:
    wish = aimed(Wish(Action.RELEASE, target, "chat", "clean"), fleet(*away))

    assert (wish.rung, wish.fallback, wish.reason) == (rung, None, said)


def test_a_release_on_a_ladder_that_has_nobody_left_says_where_it_goes() -> None:
    two = LADDER[:2]
    wish = aimed(Wish(Action.RELEASE, "d", "chat", "clean"), fleet(*"abcd", ladder=two))

    assert (wish.rung, wish.reason) == ("int8", "clean")
    assert on_ladder(wish, fleet(ladder=two)).fallback == INT8_STANDS_IN


@pytest.mark.parametrize(
    ("ladder", "share", "most"),
    [(LADDER, 0.5, 4), (LADDER[:2], 0.5, 3), (LADDER[:2], 0.34, 2), ((Rung("int8", ("a",)), LAST), 0.34, 1)],
)
def test_how_many_may_be_away_counts_whole_rungs_below_the_last(ladder: Any, share: float, most: int) -> None:
    assert may_leave(ladder, set("abcd"), share) == most


STEPS = (10, 50)
SHARES = [
    # nobody moves: the rung in charge has everything, the others stand by
    ({"a": 100, "b": 100, "c": 0, "d": 0, "baseline": 0}, "", {}),
    ({"a": 100, "b": 100, "c": 100, "d": 100, "baseline": 100}, "", {"c": 0, "d": 0, "baseline": 0}),
    # a came back with the first step, and the next rung gives up as much
    ({"a": 10, "c": 100, "d": 100, "baseline": 0}, "", {"c": 90, "d": 90}),
    ({"a": 10, "c": 90, "d": 90, "baseline": 0}, "a", {"a": 50, "c": 50, "d": 50}),
    ({"a": 50, "c": 50, "d": 50, "baseline": 0}, "a", {"a": 100, "c": 0, "d": 0}),
    # with b in traffic in full, nobody above is needed meanwhile
    ({"a": 10, "b": 100, "c": 50, "d": 0, "baseline": 0}, "", {"c": 0}),
    # where nobody stands above, a takes everything at once
    ({"a": 10, "b": 10}, "", {"a": 100, "b": 100}),
    # nobody at all
    ({}, "", {}),
]


@pytest.mark.parametrize(("now", "stepping", "changes"), SHARES)
def test_weights_move_step_by_step_and_whoever_gets_more_first(
    now: dict[str, int], stepping: str, changes: dict[str, int]
) -> None:
    found = shares(LADDER, now, sound=now.keys(), stepping=stepping, steps=STEPS)

    assert found == changes
    gains = [share > now[name] for name, share in found.items()]
    assert gains == sorted(gains, reverse=True)


def test_an_unsound_rung_above_is_passed_over() -> None:
    now = {"a": 10, "c": 90, "d": 90, "baseline": 0}

    one = shares(LADDER, now, sound={"a", "d", "baseline"}, stepping=(), steps=STEPS)
    none = shares(LADDER, now, sound={"a", "baseline"}, stepping=(), steps=STEPS)

    assert one == {"c": 0}
    assert none == {"baseline": 90, "c": 0, "d": 0}


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c", "d", "baseline"]), st.integers(0, 100), min_size=1),
    st.sets(st.sampled_from(["a", "b", "c", "d", "baseline"])),
)
def test_whatever_the_weights_are_they_come_to_rest_with_the_lowest_rung_in_full(
    now: dict[str, int], sound: set[str]
) -> None:
    """And on the way somebody always has at least as much as a lone step leaves over."""
    for _ in range(len(STEPS) + 2):
        now = now | shares(LADDER, now, sound=sound, stepping=now.keys(), steps=STEPS)
        assert max(now.values()) >= 50
        again = shares(LADDER, now, sound=sound, stepping=(), steps=STEPS)
        assert again == {}, "what is set stands until somebody takes a step"
    charge = in_charge(LADDER, now)
    for rung in LADDER:
        for name in set(rung.members) & now.keys():
            assert now[name] == (100 if rung.name == charge else 0)
