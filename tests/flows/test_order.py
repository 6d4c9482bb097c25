"""Where a target stands before and after an order, for every way in which one can end."""

from dataclasses import replace

import pytest

from quantwatch.flow.decision import DONE, Action, Outcome, Result
from quantwatch.flow.fleet import PoolRules
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.state import Routing, TargetState
from quantwatch.flow.verdict import Quality
from quantwatch.flows.memory import moved
from quantwatch.flows.order import begun, order_of, settled
from quantwatch.flows.watched import Watched, WatchedPool, WatchedSet
from quantwatch.judge.recovery import hold_ends
from support.builders import answering, prober
from support.gateway import order
from support.runs import POOL
from support.stored import after, at, decision, run

LEAVING = TargetState(
    "int8-a",
    "llama",
    Routing.LEAVING,
    owner="d-1",
    since=at(10),
    ejections=2,
    gone="p1",
    lane="limits",
    node="node-7",
    driver="webhook",
)
RETURNING = replace(LEAVING, routing=Routing.RETURNING, ejections=3)
NOW = at(12)


def ended(result: Result, *, doubt: bool = False) -> Outcome:
    return Outcome(result, "so it was", NOW, 1, doubt=doubt)


@pytest.mark.parametrize("result", sorted(DONE))
def test_an_isolation_that_is_done_leaves_the_target_out(result: Result) -> None:
    state = settled(LEAVING, order(Action.ISOLATE, decision="d-1"), ended(result), NOW)
    assert state == replace(LEAVING, routing=Routing.OUT, since=NOW, ejections=3)


@pytest.mark.parametrize("result", sorted(DONE))
def test_a_release_that_is_done_leaves_the_target_in_and_owned_by_nobody(result: Result) -> None:
    state = settled(RETURNING, order(Action.RELEASE), ended(result), NOW)
    assert state == TargetState("int8-a", "llama", since=NOW, ejections=3)


@pytest.mark.parametrize("result", [Result.REFUSED, Result.FAILED, Result.WITHDRAWN])
def test_an_isolation_that_was_certainly_not_done_leaves_the_target_in(result: Result) -> None:
    state = settled(LEAVING, order(Action.ISOLATE), ended(result), NOW)
    assert state == TargetState("int8-a", "llama", since=NOW, ejections=2)


@pytest.mark.parametrize("result", [Result.REFUSED, Result.FAILED, Result.WITHDRAWN])
def test_a_release_that_was_certainly_not_done_leaves_the_target_out(result: Result) -> None:
    state = settled(RETURNING, order(Action.RELEASE), ended(result), NOW)
    # Its hold began with the isolation and does not begin again.
    assert state == replace(RETURNING, routing=Routing.OUT)


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("result", [Result.REFUSED, Result.FAILED, Result.WITHDRAWN])
def test_what_may_have_been_done_all_the_same_contradicts_the_record(action: Action, result: Result) -> None:
    old = LEAVING if action is Action.ISOLATE else RETURNING
    state = settled(old, order(action), ended(result, doubt=True), NOW)
    assert state == replace(old, routing=Routing.CONTRADICTED, since=NOW)


@pytest.mark.parametrize("doubt", [True, False])
def test_a_gateway_that_says_the_opposite_is_believed_unless_a_call_may_still_take_effect(doubt: bool) -> None:
    contradicted = ended(Result.CONTRADICTED, doubt=doubt)
    after_isolation = settled(LEAVING, order(Action.ISOLATE), contradicted, NOW).routing
    after_release = settled(RETURNING, order(Action.RELEASE), contradicted, NOW).routing
    assert after_isolation is (Routing.CONTRADICTED if doubt else Routing.IN)
    assert after_release is (Routing.CONTRADICTED if doubt else Routing.OUT)


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("result", list(Result))
@pytest.mark.parametrize("doubt", [True, False])
def test_no_end_leaves_a_target_on_its_way(action: Action, result: Result, doubt: bool) -> None:
    old = LEAVING if action is Action.ISOLATE else RETURNING
    state = settled(old, order(action), ended(result, doubt=doubt), NOW)
    assert state.routing in (Routing.IN, Routing.OUT, Routing.CONTRADICTED)
    # What is not done is never reported as done.
    if result not in DONE:
        assert state.routing is not (Routing.OUT if action is Action.ISOLATE else Routing.IN)
    assert (state.owner is None) == (state.routing is Routing.IN)


def test_an_isolation_that_begins_belongs_to_its_decision_and_remembers_the_process() -> None:
    made = decision("d-9", 10)
    state = begun(TargetState("int8-a", "llama", ejections=1), made, order(node="n"), process="p7")
    assert (state.routing, state.owner, state.since, state.ejections) == (Routing.LEAVING, "d-9", at(10), 1)
    assert (state.gone, state.lane, state.node, state.driver) == ("p7", "limits", "n", "webhook")


@pytest.mark.parametrize("routing", [Routing.IN, Routing.CONTRADICTED])
@pytest.mark.parametrize("ejections", [0, 1, 7, 20])
def test_a_further_isolation_extends_the_hold_and_never_shortens_it(routing: Routing, ejections: int) -> None:
    """Also where the gateway has only forgotten the one before, and whatever jitter the new decision brings."""
    first = replace(LEAVING, routing=Routing.OUT, ejections=max(ejections, 1), since=at(10))
    again = begun(replace(first, routing=routing, well_since=at(9)), decision("d-9", 11), order(), process="p7")
    out = settled(again, order(Action.ISOLATE, decision="d-9"), ended(Result.VERIFIED), NOW)
    before, after_it = (hold_ends(one, minimum=600.0, jitter=0.05) for one in (first, out))
    assert before is not None
    assert after_it is not None
    assert (out.ejections, out.well_since) == (first.ejections + 1, None)
    assert after_it > before


def test_a_release_that_begins_keeps_whose_the_isolation_was() -> None:
    made = decision("d-10", 11, action=Action.RELEASE, lane=None)
    state = begun(replace(LEAVING, routing=Routing.OUT), made, order(Action.RELEASE), process="p8")
    assert state == replace(LEAVING, routing=Routing.RETURNING, since=at(11))


def watched() -> Watched:
    one = WatchedSet(
        "math", POOL, ProbeMode.PROMPT_SCORING, 5, draw=4, continuation_tokens=4, positions=4, confirm_cycles=2,
        period_seconds=600.0, act_on=frozenset(), limits={},
    )  # fmt: skip
    return Watched("int8-a", "int8", "llama", "node-7", prober(answering()), {"math": one})


def test_an_order_carries_the_gateways_names_and_the_evidence() -> None:
    made, pool = decision("d-1"), WatchedPool("llama", PoolRules(), 3, 600.0, "baseline", "full-precision")
    guilty = after(run(9, 0.09, quality=Quality.DEGRADED))
    got = order_of(made, watched(), pool, driver="webhook", states=[guilty])

    assert (got.decision, got.action, got.target, got.pool) == ("d-1", Action.ISOLATE, "int8-a", "llama")
    assert (got.node, got.fallback, got.driver) == ("node-7", "full-precision", "webhook")
    assert (got.verdict, got.task_set, got.run) == ("degraded", "math", made.wish.run)
    assert got.evidence == made.wish.findings
    assert got.reason == made.wish.reason


def test_a_release_carries_no_bad_verdict() -> None:
    made = decision("d-1", action=Action.RELEASE, lane=None, task_set=None, run=None, findings=())
    got = order_of(made, watched(), WatchedPool("llama", PoolRules(), 3, 600.0), driver="verdict", states=[])
    assert (got.verdict, got.fallback, got.evidence) == ("ok", None, ())


def test_a_release_goes_under_the_name_of_the_isolation() -> None:
    made, pool = decision("d-1", action=Action.RELEASE, lane=None), WatchedPool("llama", PoolRules(), 3, 600.0)
    assert order_of(made, watched(), pool, driver="webhook", states=[], node="node-6").node == "node-6"


def test_a_move_is_told_once_and_standing_still_not_at_all() -> None:
    new = replace(LEAVING, routing=Routing.OUT)
    (told,) = moved(LEAVING, new, reason="read back", decision="d-1", at=NOW)
    assert (told.old, told.new, told.reason, told.decision, told.at) == ("leaving", "out", "read back", "d-1", NOW)
    assert moved(new, replace(new, since=NOW), reason="", decision="d-1", at=NOW) == []
