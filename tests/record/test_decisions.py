"""Decisions as readers find them: each with its own order, proposal and changes, however many are asked for."""

from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path

from quantwatch.flow.decision import Outcome, PoolMode, Result, Ruling
from quantwatch.flow.proposal import Proposal
from quantwatch.flow.state import Axis, Transition
from quantwatch.record.archive import Archive
from quantwatch.record.decisions import AT_ONCE, DecisionLine
from support.stored import at, decision, intent, leaving, moved, opened, suppressed
from support.years import decide, decided


def told(folder: Path) -> Path:
    """A store with one decision of each kind: carried out, open, stopped by a brake, proposed."""
    done, still_open, asked = decision("d-1", 10), decision("d-3", 30), decision("d-4", 40)
    proposed = replace(asked, ruling=Ruling.PROPOSED, mode=PoolMode.APPROVE)
    waits = Proposal("d-4", "int8-a", "llama", asked.wish.action, "math is degraded", "r-1", at(40), at(100))
    with opened(folder) as store:
        store.decide(
            done, intent=intent(done), state=leaving(done), transitions=[moved("in", "leaving", decision="d-1")]
        )
        store.settle("d-1", Outcome(Result.VERIFIED, "gone", at(11), 1), transitions=[_left("d-1")])
        store.decide(suppressed("d-2", 20))
        store.decide(still_open, intent=intent(still_open), transitions=[moved("in", "leaving", decision="d-3")])
        store.decide(proposed, proposal=waits)
    return folder / "q.db"


def _left(name: str) -> Transition:
    return moved("leaving", "out", minutes=11, decision=name)


def test_each_decision_has_what_came_of_it_and_nothing_of_another(tmp_path: Path) -> None:
    with Archive.open(told(tmp_path)) as archive:
        proposed, still_open, stopped, done = archive.decisions(target="int8-a")

    assert [(one.old, one.new) for one in done.transitions] == [("in", "leaving"), ("leaving", "out")]
    assert [(one.axis, one.new) for one in still_open.transitions] == [(Axis.ROUTING, "leaving")]
    assert (stopped.transitions, proposed.transitions) == ((), ())
    assert [(one.sent, one.result) for one in (done, still_open, stopped, proposed)] == [
        (True, Result.VERIFIED),
        (True, None),
        (False, None),
        (False, None),
    ]
    assert [one.intent and one.intent.order.decision for one in (done, still_open)] == ["d-1", "d-3"]
    assert [one.proposal and one.proposal.decision for one in (proposed, done, still_open, stopped)] == [
        "d-4",
        None,
        None,
        None,
    ]


def test_a_line_says_what_the_whole_decision_says(tmp_path: Path) -> None:
    with Archive.open(told(tmp_path)) as archive:
        whole, lines = archive.decisions(target="int8-a"), archive.decision_lines("int8-a", limit=20)
        newest = archive.decision_lines("int8-a", limit=2)
        assert archive.decision_lines("nobody", limit=20) == []

    names = [one.name for one in fields(DecisionLine)]
    assert [[getattr(one, name) for name in names] for one in lines] == [
        [getattr(one, name) for name in names] for one in whole
    ]
    assert [one.id for one in newest] == ["d-4", "d-3"]


def test_more_decisions_than_one_query_takes_come_whole_and_in_order(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        made = list(decided(["int8-a"], pool="llama", each=AT_ONCE + 1, end=at(0) + timedelta(days=400)))
        decide(store, made)
    with Archive.open(tmp_path / "q.db") as archive:
        found = archive.decisions(limit=None)

    assert [one.id for one in found] == [one.id for one in reversed(made)]
    assert all(one.intent and one.intent.order.decision == one.id for one in found)
    assert all([each.decision for each in one.transitions] == [one.id] for one in found)
