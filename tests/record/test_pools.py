"""Whole pools in the store: where each stands, through a restart, and the orders of one yes, all of them or none."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from quantwatch.errors import StoreError
from quantwatch.flow.decision import Action, Ruling, Wish
from quantwatch.flow.pool import PoolStanding, PoolState, whole
from quantwatch.flow.proposal import Fate, Proposal
from quantwatch.flow.state import Axis, Transition
from quantwatch.record.archive import Archive
from quantwatch.record.pools import Given
from support.stored import at, decision, intent, leaving, opened

STORM = PoolStanding("chat", PoolState.STORM, since=at(1), began=at(1), raging=at(1), reason="2 of 3; 短 \ud800")
DEGRADED = replace(STORM, state=PoolState.FLEET_DEGRADED, since=at(2), proven=at(2), until=at(9), raging=None)
ASKED = Proposal("d-7", whole("llama"), "llama", Action.ISOLATE, "all", "r-1", at(1), at(9))


def change(old: PoolState, new: PoolState, minutes: float) -> Transition:
    return Transition(at(minutes), whole("chat"), Axis.POOL, old.value, new.value, "why")


def test_a_pool_comes_back_as_it_stood_last_with_its_changes(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        assert store.pools() == []
        store.save_pool(STORM, [change(PoolState.HEALTHY, PoolState.STORM, 1)])
        store.save_pool(PoolStanding("a_b"))
        store.save_pool(DEGRADED, [change(PoolState.STORM, PoolState.FLEET_DEGRADED, 2)])
        store.keep_note("pool: x", "somebody else's")
    with opened(tmp_path) as store:
        assert store.pools() == [PoolStanding("a_b"), DEGRADED]
    with Archive.open(tmp_path / "q.db") as archive:
        assert [one.new for one in archive.timeline(target=whole("chat"), limit=None)] == ["fleet_degraded", "storm"]


LATER = '{"state": "storm", "reason": "", "since": "yesterday"}'


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"state": "odd", "reason": ""}', LATER, "[" * 9999])
def test_what_cannot_be_read_is_reckoned_anew(tmp_path: Path, text: str) -> None:
    with opened(tmp_path) as store:
        store.save_pool(STORM)
        store.save_pool(replace(DEGRADED, pool="other"))
    with closing(sqlite3.connect(tmp_path / "q.db")) as other, other:
        other.execute("UPDATE meta SET value = ? WHERE key = 'pool: chat'", (text,))
    with opened(tmp_path) as store:
        assert store.pools() == [replace(DEGRADED, pool="other")]


def given(name: str, target: str) -> Given:
    made = decision(name)
    made = replace(made, wish=replace(made.wish, target=target))
    state = replace(leaving(made), target=target)
    return Given(made, intent(made), state, [Transition(at(3), target, Axis.ROUTING, "in", "leaving", "why")])


def test_one_yes_gives_every_order_and_is_given_once(tmp_path: Path) -> None:
    asked = replace(decision("d-7"), wish=Wish(Action.ISOLATE, whole("llama"), "llama", "all"), ruling=Ruling.PROPOSED)
    closed = replace(ASKED, fate=Fate.APPROVED, closed=at(3), author="ada")
    orders = [given("d-8", "a"), given("d-9", "b")]
    with opened(tmp_path) as store:
        store.decide(asked, proposal=ASKED)
        with pytest.raises(StoreError):
            store.approve_pool(closed, [orders[0], orders[0]])
        assert store.open_intents() == []
        assert store.proposals()[0] == [ASKED]

        store.approve_pool(closed, orders)
        with pytest.raises(StoreError, match="no open proposal"):
            store.approve_pool(closed, [given("d-10", "c")])
        assert [one.order.decision for one in store.open_intents()] == ["d-8", "d-9"]
        assert {one.target for one in store.target_states()} == {"a", "b"}
        assert store.proposals() == ([], [closed])


def test_a_proposal_knows_whether_it_is_about_a_pool() -> None:
    assert ASKED.of_pool
    assert not replace(ASKED, target="llama").of_pool
