"""What the brakes look at, and the picture that is shown."""

from dataclasses import replace
from typing import Any

import pytest

from quantwatch.config.limits import Scheme, limits_for
from quantwatch.flow.board import SelfBoard
from quantwatch.flow.check import Check
from quantwatch.flow.decision import PoolMode
from quantwatch.flow.fleet import PoolRules
from quantwatch.flow.pool import PoolStanding, PoolState
from quantwatch.flow.prompt import ProbeMode
from quantwatch.flow.state import AWAY, Pause, Routing, SetState, TargetState
from quantwatch.flow.verdict import Quality
from quantwatch.flows.memory import Memory
from quantwatch.flows.paint import paint
from quantwatch.flows.turn import decisive
from quantwatch.flows.watched import Watched, WatchedPool, WatchedSet, Watchlist
from quantwatch.flows.weather import breaching, storming
from support.builders import answering, prober
from support.runs import POOL
from support.stored import START, at, run, set_report

PERIOD = 600.0
OWN = SelfBoard(START, "digest", reload_ok=True, reloaded=START, restored=True)


def watched_set(name: str = "math", **given: Any) -> WatchedSet:
    own: dict[str, Any] = {
        "prompts": POOL, "mode": ProbeMode.PROMPT_SCORING, "k": 5, "draw": 4, "continuation_tokens": 4,
        "positions": 4, "confirm_cycles": 2, "period_seconds": PERIOD, "act_on": frozenset(), "limits": {},
    }  # fmt: skip
    return WatchedSet(name, **{**own, **given})


def watchlist(*names: str, **rules: Any) -> Watchlist:
    asked = prober(answering())
    targets = {
        name: Watched(name, "int8", "chat", f"gw-{name}", asked, {"math": watched_set(), "code": watched_set("code")})
        for name in names
    }
    return Watchlist(asked, targets, {"chat": WatchedPool("chat", PoolRules(**rules), 3, PERIOD)})


def state(target: str, task_set: str = "math", minutes: float = 0, **given: Any) -> SetState:
    return SetState(target, task_set, **{"quality": Quality.OK, "last": Quality.OK, "at": at(minutes), **given})


def memory(*states: SetState, **given: Any) -> Memory:
    return Memory(sets={(one.target, one.task_set): one for one in states}, **given)


@pytest.mark.parametrize(
    ("given", "breaches"),
    [
        ({"quality": Quality.OK}, False),
        ({"quality": Quality.WARN}, False),
        ({"quality": Quality.UNKNOWN}, False),
        ({"quality": Quality.INCONCLUSIVE}, False),
        ({"quality": Quality.INCONCLUSIVE, "breaches": 1}, True),
        ({"quality": Quality.DEGRADED, "breaches": 2}, True),
        ({"quality": Quality.CORRUPTED}, True),
        ({"quality": Quality.DEGRADED, "breaches": 2, "last": Quality.SKIPPED}, True),
    ],
)
def test_a_member_breaches_confirmed_or_not(given: dict[str, Any], breaches: bool) -> None:
    known = memory(state("a", **given), state("b"))
    assert breaching("chat", watchlist("a", "b"), known, at(1)) == (frozenset("a") if breaches else frozenset())


def test_one_bad_task_set_is_enough_and_a_stale_one_is_not() -> None:
    bad = state("a", "code", quality=Quality.DEGRADED)
    known = memory(state("a"), bad)
    assert breaching("chat", watchlist("a"), known, at(25)) == {"a"}
    assert breaching("chat", watchlist("a"), known, at(26)) == frozenset()


def test_members_of_other_pools_and_unknown_task_sets_do_not_count() -> None:
    known = memory(state("a", "gone", quality=Quality.DEGRADED), state("x", quality=Quality.DEGRADED))
    assert breaching("chat", watchlist("a"), known, at(1)) == frozenset()


def bad(*names: str, minutes: float = 0) -> list[SetState]:
    return [state(name, minutes=minutes, quality=Quality.DEGRADED, breaches=2) for name in names]


def test_a_storm_ends_a_cooldown_after_it_has_calmed_down() -> None:
    watched = watchlist("a", "b", "c", storm_cooldown_seconds=1800.0)
    pool, known = watched.pools["chat"], memory(*bad("a", "b"))
    assert storming(pool, watched, known, at(1))
    assert (known.storms["chat"].raging, known.storms["chat"].until) == (at(1), None)

    known.sets = memory(*bad("a", minutes=5)).sets
    assert storming(pool, watched, known, at(5))
    assert (known.storms["chat"].raging, known.storms["chat"].until) == (None, at(35))
    assert storming(pool, watched, known, at(34))
    assert not storming(pool, watched, known, at(35))
    assert (known.storms["chat"].state, known.storms["chat"].began) == (PoolState.HEALTHY, None)


def test_a_storm_that_comes_back_within_its_cooldown_has_a_whole_one_ahead() -> None:
    watched = watchlist("a", "b", "c", storm_cooldown_seconds=600.0)
    pool, known = watched.pools["chat"], memory(*bad("a", "b"))
    storming(pool, watched, known, at(0))
    known.sets = memory().sets
    storming(pool, watched, known, at(5))
    known.sets = memory(*bad("a", "b", minutes=12)).sets
    assert storming(pool, watched, known, at(12))
    known.sets = memory().sets
    assert storming(pool, watched, known, at(20))
    assert known.storms["chat"].until == at(30)


def test_one_bad_node_is_no_storm() -> None:
    watched = watchlist("a", "b", "c")
    assert not storming(watched.pools["chat"], watched, memory(*bad("a")), at(1))


def picture(known: Memory, watched: Watchlist, minutes: float = 1) -> Any:
    return paint(known, watched, {}, own=OWN, now=at(minutes))


def test_the_board_shows_every_target_with_its_task_sets() -> None:
    known = memory(state("a"), numbers={("a", "math"): {"kl_mean": 0.1}}, success={("a", "math"): at(0)})
    board = picture(known, watchlist("a", "b"))

    a, b = board.targets
    assert (a.state.target, a.quality, a.gateway_name) == ("a", Quality.OK, "gw-a")
    assert [(one.state.task_set, one.fresh) for one in a.sets] == [("math", True), ("code", False)]
    assert a.sets[0].numbers == {"kl_mean": 0.1}
    assert a.sets[0].success == at(0)
    assert (b.quality, b.queued, b.running) == (Quality.UNKNOWN, 0, None)
    assert board.own is OWN


def test_a_result_that_is_stale_no_longer_makes_the_targets_quality() -> None:
    board = picture(memory(state("a", quality=Quality.DEGRADED)), watchlist("a"), minutes=26)
    assert board.targets[0].quality is Quality.UNKNOWN


@pytest.mark.parametrize("routing", list(Routing))
def test_a_pool_counts_who_cannot_be_relied_on(routing: Routing) -> None:
    known = memory(targets={"a": TargetState("a", "chat", routing)})
    board = picture(known, watchlist("a", "b", "c", mode=PoolMode.ENFORCE, max_isolated=0.34))
    (pool,) = board.pools
    assert (pool.targets, pool.isolated, pool.allowed) == (3, int(routing in AWAY), 1)
    assert pool.mode is PoolMode.ENFORCE


def test_a_target_that_left_is_shown_as_long_as_it_is_out() -> None:
    known = memory(targets={"x": TargetState("x", "chat", Routing.OUT), "y": TargetState("y", "chat")})
    board = picture(known, watchlist("a"))
    assert [(one.state.target, one.left) for one in board.targets] == [("a", False), ("x", True)]


def test_a_pause_is_shown_until_its_time_is_over() -> None:
    pause = Pause("p-1", "all", "r", "ada", at(0), at(5))
    known = memory(pauses=[pause])
    assert picture(known, watchlist("a"), 4.9).pauses == (pause,)
    assert picture(known, watchlist("a"), 5).pauses == ()


@pytest.mark.parametrize("state", [None, *PoolState])
def test_a_pool_is_shown_as_it_stands(state: PoolState | None) -> None:
    stands = PoolStanding("chat") if state is None else PoolStanding("chat", state, since=at(0), until=at(9))
    (pool,) = picture(memory(storms={} if state is None else {"chat": stands}), watchlist("a")).pools
    assert (pool.storm, pool.stands) == (state not in (None, PoolState.HEALTHY), stands)


def test_the_baseline_is_as_sound_as_its_worst_self_check() -> None:
    sound = Check(at(1), sound=True, drift=0.001)
    moved = Check(at(2), sound=False, drift=0.3, trouble="it moved")
    board = picture(memory(checks={("a", "math"): sound, ("a", "code"): moved}), watchlist("a"))
    assert (board.baseline.sound, board.baseline.trouble) == (False, "it moved")
    assert (board.baseline.checked, board.baseline.drift) == (at(2), 0.3)

    assert picture(memory(checks={("a", "math"): sound}), watchlist("a")).baseline.sound is True
    nothing = picture(memory(), watchlist("a")).baseline
    assert (nothing.sound, nothing.trouble, nothing.checked, nothing.drift) == (None, None, None, None)


def test_a_baseline_that_waits_for_proof_has_been_checked_all_the_same() -> None:
    """Only a check that gave nothing is none: `status` tells "not proven" from "not checked" by this."""
    waiting, nothing = Check(at(1), sound=None, drift=0.0, new=True), Check(at(1), sound=None)
    assert picture(memory(checks={("a", "math"): waiting}), watchlist("a")).baseline.checked == at(1)
    assert picture(memory(checks={("a", "math"): nothing}), watchlist("a")).baseline.checked is None


def test_the_sentence_of_a_run_has_the_number_and_the_limit_that_decided() -> None:
    assert decisive(run(1, 0.09, quality=Quality.DEGRADED)) == "mean KL 0.09, limit 0.05"
    assert decisive(run(1, 0.02, quality=Quality.WARN)) == "mean KL 0.02, limit 0.01"


def test_the_sentence_of_a_run_without_a_number_is_its_reason() -> None:
    assert decisive(run(1, report=None, reason="cannot connect")) == "cannot connect"
    odd = replace(run(1), quality=Quality.UNKNOWN, report=set_report(), reason="the baseline is down")
    assert decisive(odd) == "the baseline is down"


def test_any_limit_changes_the_digest_of_the_limits() -> None:
    one, other = (watched_set(limits=limits_for(scheme)) for scheme in (Scheme.INT8, Scheme.INT4))
    assert one.limits_digest == watched_set(limits=limits_for(Scheme.FP8)).limits_digest != other.limits_digest
    assert len(one.limits_digest) == 12


def test_a_watchlist_knows_its_task_sets() -> None:
    assert watchlist("a", "b").task_sets == {"math", "code"}
    assert watchlist().task_sets == set()
