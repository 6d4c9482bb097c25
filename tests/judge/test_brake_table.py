"""Every brake against pools of 1, 2, 3 and 100, with and without a fallback that is proven: who objects, and when not.

One table for all of it, so that a new brake without a row, or a pool that is told apart by accident, is seen at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantwatch.flow.decision import Action, Brake, PoolMode, Ruling, Wish
from quantwatch.flow.fleet import Fallback, Fleet, PoolRules, Roll
from quantwatch.flow.state import Human, Pause, Routing, TargetState
from quantwatch.judge.brake import allowed, objections, ruling

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ISOLATE = Wish(Action.ISOLATE, "node-0", "blue", "chat is degraded")
RELEASE = Wish(Action.RELEASE, "node-0", "blue", "clean")
PROVEN = Fallback("baseline", healthy=True, waiting=0, kv_usage=0.1)
SIZES = (1, 2, 3, 100)
ALWAYS, NEVER = frozenset(SIZES), frozenset[int]()
BIG = frozenset({3, 100})


def calm(size: int, fallback: Fallback | None) -> Fleet:
    """A pool in which half may be away, everybody is sound, and nothing objects where another backend is left."""
    members = tuple(TargetState(f"node-{i}", "blue") for i in range(size))
    rules = PoolRules(PoolMode.ENFORCE, max_isolated=0.5, storm_share=0.01)
    return Fleet("blue", rules, members, NOW, sound=frozenset(one.target for one in members), fallback=fallback)


def given_(**fields: Any) -> Callable[[Fleet], Fleet]:
    return lambda fleet: replace(fleet, **fields)


def in_mode(mode: PoolMode) -> Callable[[Fleet], Fleet]:
    return lambda fleet: replace(fleet, rules=replace(fleet.rules, mode=mode))


def ill(fleet: Fleet) -> Fleet:
    """The fallback, if there is one, is not proven to be well."""
    bad = None if fleet.fallback is None else replace(fleet.fallback, healthy=False, why="chat is degraded")
    return replace(fleet, fallback=bad)


def busy(fleet: Fleet) -> Fleet:
    return replace(fleet, fallback=None if fleet.fallback is None else replace(fleet.fallback, waiting=99))


def held(fleet: Fleet) -> Fleet:
    first, *others = fleet.members
    return replace(fleet, members=(replace(first, human=Human.HELD), *others))


def others_out(fleet: Fleet) -> Fleet:
    first, *others = fleet.members
    return replace(fleet, members=(first, *(replace(one, routing=Routing.OUT) for one in others)))


def others_unlisted(fleet: Fleet) -> Fleet:
    """The gateway's own list holds the target, and a stranger of whom we know nothing."""
    return replace(fleet, roll=Roll(NOW, frozenset({"node-0", "stranger"})))


def two_breach(fleet: Fleet) -> Fleet:
    return replace(fleet, breaching=frozenset({"node-0", "node-1"}))


@dataclass(frozen=True)
class Row:
    """What is the matter, and in pools of which sizes its brake objects to an isolation, without and with a fallback.

    release: whether it objects to a release as well, in every pool.
    """

    brake: Brake
    matter: Callable[[Fleet], Fleet]
    without: frozenset[int]
    with_fallback: frozenset[int]
    release: bool = False


TABLE = [
    Row(Brake.DRY_RUN, in_mode(PoolMode.OBSERVE), ALWAYS, ALWAYS, release=True),
    Row(Brake.DRY_RUN, in_mode(PoolMode.DRY_RUN), ALWAYS, ALWAYS, release=True),
    Row(Brake.AWAITING_APPROVAL, in_mode(PoolMode.APPROVE), ALWAYS, ALWAYS, release=True),
    # A pool of one has no share to speak of: there the last backend decides.
    Row(Brake.CAP, others_out, frozenset({2, 3, 100}), frozenset({2, 3, 100})),
    Row(Brake.CAP, others_unlisted, frozenset({2, 3, 100}), frozenset({2, 3, 100})),
    Row(Brake.CAP, given_(roll=Roll(NOW, trouble="no answer")), ALWAYS, ALWAYS),
    Row(Brake.LAST_BACKEND, given_(), frozenset({1}), NEVER),
    Row(Brake.LAST_BACKEND, given_(sound=frozenset()), ALWAYS, NEVER),
    Row(Brake.LAST_BACKEND, others_out, ALWAYS, NEVER),
    Row(Brake.LAST_BACKEND, others_unlisted, ALWAYS, NEVER),
    Row(Brake.LAST_BACKEND, given_(roll=Roll(NOW, trouble="no answer")), ALWAYS, NEVER),
    Row(Brake.LAST_BACKEND, two_breach, frozenset({1, 2}), NEVER),
    Row(Brake.FALLBACK, ill, NEVER, ALWAYS),
    Row(Brake.FALLBACK_OVERLOADED, busy, NEVER, ALWAYS),
    Row(Brake.FALLBACK_IN_USE, given_(fallback_for=("green",)), ALWAYS, ALWAYS),
    Row(Brake.STORM, two_breach, BIG, BIG),
    Row(Brake.STORM, given_(storming=True), ALWAYS, ALWAYS),
    Row(Brake.YARDSTICK, given_(yardstick="other weights"), ALWAYS, ALWAYS, release=True),
    Row(Brake.RATE, given_(recent_actions=4), ALWAYS, ALWAYS),
    Row(Brake.PAUSED, given_(pauses=(Pause("p", "all", "upgrade", "ada", NOW),)), ALWAYS, ALWAYS, release=True),
    Row(Brake.HUMAN, held, ALWAYS, ALWAYS, release=True),
    Row(Brake.STORE, given_(store="disk full"), ALWAYS, ALWAYS, release=True),
    Row(Brake.DRIVER, given_(driver="another driver took it out"), ALWAYS, ALWAYS, release=True),
]
EACH = pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.brake}-{TABLE.index(row)}")


def found(wish: Wish, fleet: Fleet) -> dict[Brake, str]:
    """What objects to a wish, the mode included."""
    return {one.brake: one.reason for one in ruling(wish, fleet)[1]}


def test_every_brake_has_a_row() -> None:
    assert {row.brake for row in TABLE} == set(Brake)


@EACH
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fallback", [None, PROVEN], ids=["alone", "with fallback"])
def test_the_table_holds(row: Row, size: int, fallback: Fallback | None) -> None:
    seen = row.matter(calm(size, fallback))
    objects = row.without if fallback is None else row.with_fallback
    why = found(ISOLATE, seen)
    assert (row.brake in why) is (size in objects)
    assert (row.brake in found(RELEASE, seen)) is row.release
    if row.brake in why:
        assert len(why[row.brake].split()) >= 4  # a reason in words
        assert ruling(ISOLATE, seen)[0] is not Ruling.ACT


@pytest.mark.parametrize("size", SIZES)
def test_nothing_else_objects_in_a_calm_pool(size: int) -> None:
    """The rows above mean something only where a calm pool acts."""
    share = 0.5 if size > 1 else 1.0
    quiet = calm(size, PROVEN)
    fleet = replace(quiet, rules=replace(quiet.rules, max_isolated=share, storm_share=0.5))
    assert ruling(ISOLATE, fleet) == (Ruling.ACT, ())
    assert ruling(RELEASE, fleet) == (Ruling.ACT, ())


def test_who_is_missing_at_the_gateway_is_named() -> None:
    fleet = calm(3, PROVEN)
    told = found(ISOLATE, replace(fleet, roll=Roll(NOW, frozenset({"node-0", "node-2"}))))
    assert told[Brake.CAP] == (
        "2 of 3 members of blue would be away (node-1 by the gateway's own list), and 0.5 of them, which is 1, may be"
    )
    first, *others = fleet.members
    out = replace(fleet, members=(first, *(replace(one, routing=Routing.OUT) for one in others)))
    unlisted = found(ISOLATE, replace(out, roll=Roll(NOW, frozenset())))  # who is to go out, or is, needs no naming
    assert unlisted[Brake.CAP].startswith("3 of 3 members of blue would be away, and 0.5 of them")
    told = found(ISOLATE, replace(fleet, roll=Roll(NOW, trouble="router: no answer")))
    assert told[Brake.CAP] == "how many members of blue the gateway has is not known: router: no answer"


@pytest.mark.parametrize("size", SIZES)
def test_a_list_that_holds_everybody_changes_nothing(size: int) -> None:
    fleet = calm(size, None)
    listed = replace(fleet, roll=Roll(NOW, frozenset(one.target for one in fleet.members)))
    assert found(ISOLATE, listed) == found(ISOLATE, fleet)


def test_who_is_out_need_not_be_on_the_list() -> None:
    """A router drops whom we take out; that is no second absence."""
    fleet = calm(4, None)
    first, second, third, fourth = fleet.members
    gone = (first, second, third, replace(fourth, routing=Routing.OUT))
    listed = frozenset({"node-0", "node-1", "node-2"})
    assert found(ISOLATE, replace(fleet, members=gone, roll=Roll(NOW, listed))) == {}


ROUTINGS = st.lists(st.sampled_from([Routing.IN, Routing.IN, *Routing]), min_size=1, max_size=120)
SHARES = st.floats(0, 1) | st.sampled_from([0.29, 0.34, 0.5, 1.0])


@given(ROUTINGS, SHARES, st.data())
def test_the_cap_is_reckoned_after_the_action_and_never_rounds_towards_acting(
    routings: list[Routing], share: float, data: st.DataObject
) -> None:
    """Whatever acts leaves at most the exact share away, counting the target and whoever the gateway does not list."""
    members = tuple(TargetState(f"node-{i}", "blue", routing) for i, routing in enumerate(routings))
    present = data.draw(st.none() | st.sets(st.sampled_from([one.target for one in members])))
    roll = None if present is None else Roll(NOW, frozenset(present))
    rules = PoolRules(PoolMode.ENFORCE, max_isolated=share, actions_per_hour=1000)
    names = frozenset(one.target for one in members)
    fleet = Fleet("blue", rules, members, NOW, sound=names, fallback=PROVEN, roll=roll)
    capped = Brake.CAP in {one.brake for one in objections(ISOLATE, fleet)}
    away = {one.target for one in members if one.routing is not Routing.IN} | {"node-0"}
    away |= set() if present is None else names - present
    most = len(members) * share
    if not capped:
        assert len(away) <= most * (1 + 1e-12) or (len(members) == 1 and share > 0)
        assert len(away) <= allowed(len(members), share)
    else:
        assert len(away) > allowed(len(members), share)


@given(ROUTINGS, SHARES, st.data())
def test_the_smaller_truth_never_makes_anything_act(routings: list[Routing], share: float, data: st.DataObject) -> None:
    """Whatever a list says, what objects without it objects with it; an unreadable one objects to every isolation."""
    members = tuple(TargetState(f"node-{i}", "blue", routing) for i, routing in enumerate(routings))
    names = [one.target for one in members]
    sound = frozenset(data.draw(st.sets(st.sampled_from(names))))
    fallback = data.draw(st.sampled_from([None, PROVEN]))
    rules = PoolRules(PoolMode.ENFORCE, max_isolated=share)
    plain = Fleet("blue", rules, members, NOW, sound=sound, fallback=fallback)
    present = frozenset(data.draw(st.sets(st.sampled_from([*names, "stranger"]))))
    listed = replace(plain, roll=Roll(NOW, present))
    unread = replace(plain, roll=Roll(NOW, trouble="no answer"))
    before, after, blind = ({one.brake for one in objections(ISOLATE, one)} for one in (plain, listed, unread))
    assert before <= after <= blind | after
    assert before | {Brake.CAP} <= blind
    if Brake.LAST_BACKEND not in after and fallback is None:
        assert (present & sound) - {"node-0"}
    assert objections(RELEASE, listed) == objections(RELEASE, unread) == objections(RELEASE, plain)
