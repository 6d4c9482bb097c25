"""What a person's word asks for and stops, in the judge's own terms."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from quantwatch.flow.decision import Action, Brake, Lane, PoolMode, Ruling, Wish
from quantwatch.flow.fleet import Fleet, PoolRules
from quantwatch.flow.proposal import Fate, Proposal
from quantwatch.flow.state import Human, Pause, Routing, SetState, TargetState
from quantwatch.flow.verdict import Quality
from quantwatch.judge.brake import NEEDS_FORCE, insisted, ordered, ruling
from quantwatch.judge.proposal import may_be_proposed
from quantwatch.judge.streak import vouched
from quantwatch.judge.wish import insists, overruled

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WISH = Wish(Action.ISOLATE, "a", "blue", "math is degraded", lane=Lane.LIMITS, task_set="math", run="r-2")
A, B = TargetState("a", "blue", human=Human.FORCED_OUT), TargetState("b", "blue")
SOUND = Fleet("blue", PoolRules(PoolMode.ENFORCE, max_isolated=0.5), (A, B), NOW, sound=frozenset({"a", "b"}))
LAST = Proposal("d-1", "a", "blue", Action.ISOLATE, "x", "r-1", NOW, NOW, task_set="math", lane=Lane.LIMITS)


@pytest.mark.parametrize("routing", Routing)
@pytest.mark.parametrize("human", Human)
def test_only_what_is_forced_out_and_not_out_is_insisted_on(routing: Routing, human: Human) -> None:
    state = replace(A, routing=routing, human=human, human_author="ada", human_reason="smoke")
    found = insists(state)
    assert (found is not None) is (human is Human.FORCED_OUT and routing in (Routing.IN, Routing.CONTRADICTED))
    if found is not None:
        assert (found.action, found.reason, found.lane) == (Action.ISOLATE, "ada: smoke", None)


@pytest.mark.parametrize(
    ("action", "human", "why"),
    [
        (Action.ISOLATE, Human.FORCED_OUT, None),
        (Action.ISOLATE, Human.NONE, "the word that asked for it has ended"),
        (Action.ISOLATE, Human.HELD, "a person has set the target to held"),
        (Action.ISOLATE, Human.FORCED_IN, "a person has set the target to forced_in"),
        (Action.RELEASE, Human.NONE, None),
        (Action.RELEASE, Human.FORCED_IN, None),
        (Action.RELEASE, Human.HELD, "a person has set the target to held"),
        (Action.RELEASE, Human.FORCED_OUT, "a person has set the target to forced_out"),
    ],
)
def test_a_persons_order_yields_to_another_word_alone(action: Action, human: Human, why: str | None) -> None:
    assert overruled(action, replace(A, human=human)) == why


STOPPED = {
    "no store": (replace(SOUND, store="disk full"), Brake.STORE),
    "no driver": (replace(SOUND, driver="it changes nothing"), Brake.DRIVER),
    "the cap": (replace(SOUND, rules=replace(SOUND.rules, max_isolated=0.0)), Brake.CAP),
    "the last backend": (replace(SOUND, sound=frozenset({"a"})), Brake.LAST_BACKEND),
    "a stand-in": (replace(SOUND, fallback_for=("green",)), Brake.FALLBACK_IN_USE),
    "a pause": (replace(SOUND, pauses=(Pause("p", "all", "x", "bob", NOW),)), Brake.PAUSED),
    "the rate": (replace(SOUND, recent_actions=99), Brake.RATE),
    "a storm": (replace(SOUND, storming=True), Brake.STORM),
}


@pytest.mark.parametrize(("fleet", "brake"), STOPPED.values(), ids=STOPPED.keys())
@pytest.mark.parametrize("force", [False, True])
def test_an_order_of_a_person_is_told_of_every_brake_and_stopped_by_few(
    fleet: Fleet, brake: Brake, force: bool
) -> None:
    ruled, found = ordered(WISH, fleet, force=force)
    assert brake in {one.brake for one in found}
    never = brake in (Brake.STORE, Brake.DRIVER)
    assert ruled is (Ruling.SUPPRESSED if never or (brake in NEEDS_FORCE and not force) else Ruling.ACT)


@pytest.mark.parametrize(("fleet", "brake"), STOPPED.values(), ids=STOPPED.keys())
def test_what_is_insisted_on_is_stopped_by_every_brake_but_haste(fleet: Fleet, brake: Brake) -> None:
    ruled, found = insisted(WISH, fleet)
    held = brake not in (Brake.RATE, Brake.STORM)
    assert ruled is (Ruling.SUPPRESSED if held else Ruling.ACT)
    assert (brake in {one.brake for one in found}) is held


def test_a_word_answers_its_own_brake_and_needs_no_yardstick() -> None:
    fleet = replace(SOUND, yardstick="never checked")
    assert ordered(WISH, fleet, force=False) == insisted(WISH, fleet) == (Ruling.ACT, ())


def asking(fleet: Fleet) -> Fleet:
    """The same pool in mode approve, with nobody's word in it."""
    calm = (replace(A, human=Human.NONE), B)
    return replace(fleet, rules=replace(fleet.rules, mode=PoolMode.APPROVE), members=calm)


@pytest.mark.parametrize("brake", ["no store", "no driver", "a pause"])
def test_what_could_not_be_approved_anyway_is_not_proposed(brake: str) -> None:
    fleet, _ = STOPPED[brake]
    assert ruling(WISH, asking(fleet))[0] is Ruling.SUPPRESSED


def test_what_else_objects_is_told_to_whoever_may_approve() -> None:
    fleet, _ = STOPPED["the cap"]
    ruled, found = ruling(WISH, asking(fleet))
    assert (ruled, [one.brake for one in found]) == (Ruling.PROPOSED, [Brake.CAP, Brake.AWAITING_APPROVAL])


def closed(fate: Fate, *, ago: float = 0.0) -> Proposal:
    return replace(LAST, fate=fate, closed=NOW - timedelta(seconds=ago))


ASKED_AGAIN = {
    "never asked": (None, "r-1", True),
    "withdrawn": (closed(Fate.WITHDRAWN), "r-1", True),
    "another lane": (replace(closed(Fate.REJECTED), lane=Lane.CORRUPTED), "r-1", True),
    "another task set": (replace(closed(Fate.REJECTED), task_set="code"), "r-1", True),
    "rejected, and nothing new": (closed(Fate.REJECTED, ago=1e6), "r-1", False),
    "rejected just now": (closed(Fate.REJECTED, ago=59), "r-2", False),
    "rejected a while ago": (closed(Fate.REJECTED, ago=60), "r-2", True),
    "expired, and nothing new": (closed(Fate.EXPIRED), "r-1", False),
    "expired": (closed(Fate.EXPIRED), "r-2", True),
    "approved, and nothing new": (closed(Fate.APPROVED), "r-1", False),
    "approved, and it came to nothing": (closed(Fate.APPROVED), "r-2", True),
}


@pytest.mark.parametrize(("last", "evidence", "may"), ASKED_AGAIN.values(), ids=ASKED_AGAIN.keys())
def test_what_was_answered_is_not_asked_again_without_cause(last: Proposal | None, evidence: str, may: bool) -> None:
    assert may_be_proposed(WISH, evidence, last, now=NOW, rest_seconds=60.0) is may


def test_vouching_leaves_nothing_that_proves_anything() -> None:
    bad = SetState("a", "math", Quality.CORRUPTED, Quality.CORRUPTED, breaches=3, undecided=1)
    bad = replace(bad, basis="b", run="r", at=NOW, proof="r")
    new = vouched(bad, reason="ada vouched for it")
    assert (new.quality, new.last, new.breaches, new.clean, new.undecided, new.proof) == (
        Quality.UNKNOWN,
        Quality.UNKNOWN,
        0,
        0,
        0,
        None,
    )
    assert (new.run, new.at, new.basis, new.reason) == ("r", NOW, "b", "ada vouched for it")
