"""The store keeps what it is given, whole and once, and gives it back as it was."""

import math
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from quantwatch.clock import SystemClock
from quantwatch.errors import StoreError
from quantwatch.flow.decision import Action, Decision, Outcome, Result
from quantwatch.flow.distribution import Distribution
from quantwatch.flow.load import Load
from quantwatch.flow.state import Human, Pause, Routing, SetState, TargetState
from quantwatch.flow.verdict import Quality
from quantwatch.record.documents import StoredRun, run_json
from quantwatch.record.store import Store
from support.stored import after, answer, at, decision, intent, leaving, moved, opened, run, suppressed

VERIFIED = Outcome(Result.VERIFIED, "the gateway says it is out", at(11), 2)


def add(store: Store, *numbers: int) -> None:
    for number in numbers:
        store.add_run(run(number), after(run(number)))


def rows(store: Store, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(store.path)) as connection:
        return connection.execute(query).fetchall()


def decided(store: Store, name: str = "d-1", minutes: float = 10) -> Decision:
    made = decision(name, minutes)
    store.decide(made, intent=intent(made), state=leaving(made), transitions=[moved("in", "leaving", decision=name)])
    return made


def test_a_run_leaves_its_state_its_numbers_and_its_transitions(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.add_run(run(1), after(run(1)), [moved("unknown", "ok", run=run(1).id)])

        assert store.set_states() == [after(run(1))]
        assert rows(store, "SELECT old, new FROM transitions") == [("unknown", "ok")]
        assert rows(store, "SELECT count(*) FROM numbers") == [(11,)]


def test_the_load_of_a_run_comes_back(tmp_path: Path) -> None:
    before = Load(waiting=1, kv_usage=0.5, started=5.0, running=2, prompt_tokens=7, generated_tokens=None)
    after_it = replace(before, broken_rows=3, corrupted_requests=0)
    with opened(tmp_path) as store:
        one = run(1, load_before=before, load_after=after_it)
        store.add_run(one, after(one))
        (found,) = store.last_documents().values()

    assert found.loads == (before, after_it)
    assert set(found.document["load_after"]) - set(found.document["load_before"]) == set(after_it.counted)


@pytest.mark.parametrize("older", [{}, {"load_before": None, "load_after": None}, {"load_before": "x"}])
def test_a_run_of_an_older_version_has_no_load(older: dict[str, object]) -> None:
    one = run(1)
    document = {name: value for name, value in run_json(one).items() if not name.startswith("load_")}
    facts = (one.id, one.target, one.task_set, one.started, one.seconds, one.quality, one.reason)

    assert StoredRun(*facts, {**document, **older}).loads == (None, None)


def test_the_numbers_of_a_run_stand_in_rows_with_their_limits(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        add(store, 1)

        (kl,) = rows(store, "SELECT value, low, high, warn, critical FROM numbers WHERE metric = 'kl_mean'")
        assert kl == pytest.approx((0.004, 0.0036, 0.0044, 0.01, 0.05))
        assert rows(store, "SELECT quality FROM numbers WHERE metric = 'kl_mean'") == [("ok",)]


def test_a_number_that_is_not_finite_becomes_null(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        add(store, 1)
        assert rows(store, "SELECT value FROM numbers WHERE metric = 'kl_max'") == [(None,)]


def test_the_same_run_twice_is_kept_once(tmp_path: Path) -> None:
    """The caller tries again when it could not learn whether the first time came through."""
    with opened(tmp_path) as store:
        for _ in range(2):
            store.add_run(run(1), after(run(1)), [moved("unknown", "ok")])

        assert rows(store, "SELECT count(*) FROM runs") == [(1,)]
        assert rows(store, "SELECT count(*) FROM transitions") == [(1,)]


def test_a_run_that_asked_nothing_is_kept_without_numbers(tmp_path: Path) -> None:
    down = run(2, quality=Quality.UNKNOWN, report=None, node=None, baseline=None)
    with opened(tmp_path) as store:
        add(store, 1)
        store.add_run(down, after(down))

        last = store.last_documents()["int8-a", "math"]
        assert last.id == run(1).id
        assert store.set_states()[0].run == down.id


def test_the_newest_run_with_numbers_is_given_for_each_pair(tmp_path: Path) -> None:
    other = run(7, target="int8-b")
    with opened(tmp_path) as store:
        add(store, 3, 1, 2)
        store.add_run(other, after(other))
        found = store.last_documents()

    assert {pair: one.id for pair, one in found.items()} == {
        ("int8-a", "math"): run(3).id,
        ("int8-b", "math"): other.id,
    }
    assert found["int8-b", "math"].numbers["kl_mean"] == 0.004
    assert found["int8-b", "math"].ended == at(7.5)


def test_states_come_back_as_they_were(tmp_path: Path) -> None:
    fresh = TargetState("int8-b", "llama", human=Human.HELD)
    never, guilty = SetState("int8-b", "math"), after(run(2, 0.09, quality=Quality.DEGRADED))
    assert None not in (guilty.proof, guilty.process)
    with opened(tmp_path) as store:
        store.save_target(leaving(decision()))
        store.save_target(fresh)
        store.save_target(replace(leaving(decision()), routing=Routing.OUT), [moved("leaving", "out")])
        store.add_run(run(1), never)
        store.add_run(run(2, 0.09, quality=Quality.DEGRADED), guilty)

    with opened(tmp_path) as store:
        assert store.target_states() == [replace(leaving(decision()), routing=Routing.OUT), fresh]
        assert sorted(store.set_states(), key=lambda one: one.target) == [guilty, never]


def test_half_a_character_of_a_server_is_no_obstacle(tmp_path: Path) -> None:
    odd = run(1, reason="the server said \ud83d")
    with opened(tmp_path) as store:
        store.add_run(odd, after(odd))
        assert store.set_states()[0].reason == "the server said \\ud83d"
        assert store.last_documents()["int8-a", "math"].document["reason"] == odd.reason


# ------------------------------------------------------------------ decisions and intents


def test_a_decision_its_intent_and_the_routing_are_kept_together(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        made = decided(store)

        assert store.open_intents() == [intent(made)]
        assert store.target_states() == [leaving(made)]


def test_a_decision_of_which_one_part_fails_leaves_nothing(tmp_path: Path) -> None:
    made = decision()
    with opened(tmp_path) as store:
        with pytest.raises(StoreError):
            store.decide(made, intent=intent(decision("another")), state=leaving(made))

        assert rows(store, "SELECT count(*) FROM decisions") == [(0,)]
        assert store.target_states() == []


def test_a_decision_tried_again_is_kept_once(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        decided(store)
        decided(store)
        assert len(store.open_intents()) == 1
        assert rows(store, "SELECT count(*) FROM transitions") == [(1,)]


def test_a_suppressed_decision_opens_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.decide(suppressed())
        assert store.open_intents() == []


def test_attempts_are_counted_over_process_lives(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        decided(store)
        assert store.begin_attempt("d-1") == 1
    with opened(tmp_path) as store:
        assert store.begin_attempt("d-1") == 2
        assert store.open_intents()[0].attempts == 2


def test_an_outcome_closes_the_intent_and_moves_the_target(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        made = decided(store)
        gone = replace(leaving(made), routing=Routing.OUT)
        store.settle("d-1", VERIFIED, state=gone, transitions=[moved("leaving", "out", decision="d-1")])

        assert store.open_intents() == []
        assert store.target_states() == [gone]


def test_an_outcome_is_written_once(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        decided(store)
        store.settle("d-1", VERIFIED)
        store.settle("d-1", VERIFIED, transitions=[moved("leaving", "out")])
        with pytest.raises(StoreError, match="has ended as verified already"):
            store.settle("d-1", replace(VERIFIED, result=Result.FAILED))
        with pytest.raises(StoreError, match="no open intent d-1"):
            store.begin_attempt("d-1")

        assert rows(store, "SELECT count(*) FROM transitions") == [(1,)]


def test_an_intent_that_nobody_opened_cannot_be_settled(tmp_path: Path) -> None:
    with opened(tmp_path) as store, pytest.raises(StoreError, match="no intent d-9"):
        store.settle("d-9", VERIFIED)


def test_isolations_of_a_pool_are_counted_since_a_moment(tmp_path: Path) -> None:
    release = decision("d-3", 30, action=Action.RELEASE, lane=None)
    elsewhere = decision("d-4", 40, pool="other")
    with opened(tmp_path) as store:
        decided(store, "d-1", 10)
        decided(store, "d-2", 20)
        for made in (release, elsewhere):
            store.decide(made, intent=intent(made))

        assert [store.actions_since("llama", at(minutes)) for minutes in (0, 10, 15, 21)] == [2, 2, 1, 0]


def test_a_number_without_a_value_comes_back_as_one(tmp_path: Path) -> None:
    (found,) = decision().wish.findings
    made = decision(findings=(replace(found, value=math.nan, interval=None),))
    with opened(tmp_path) as store:
        store.decide(made, intent=intent(made))
        (evidence,) = store.open_intents()[0].order.evidence

    assert math.isnan(evidence.value)
    assert (evidence.interval, evidence.limit) == (None, found.limit)


@pytest.mark.parametrize("change", ["UPDATE transitions SET reason = 'x'", "UPDATE decisions SET reason = 'x'"])
def test_history_is_never_rewritten(tmp_path: Path, change: str) -> None:
    with opened(tmp_path) as store:
        decided(store)
        with (
            closing(sqlite3.connect(store.path)) as other,
            pytest.raises(sqlite3.IntegrityError, match="never changed"),
        ):
            other.execute(change)


# ------------------------------------------------------------------ pauses and references


def test_a_pause_holds_until_it_ends_or_is_ended(tmp_path: Path) -> None:
    short = Pause("p-1", "all", "rollout", "ada", at(0), at(30))
    long = Pause("p-2", "pool:llama", "maintenance", "ben", at(1))
    with opened(tmp_path) as store:
        store.add_pause(long)
        store.add_pause(short)
        assert store.pauses(at(10)) == [short, long]
        assert store.pauses(at(30)) == [long]
        store.end_pause("p-2", at(40))
        assert store.pauses(at(40)) == []
        with pytest.raises(StoreError, match="no pause p-9"):
            store.end_pause("p-9", at(40))


def columns(one: Distribution) -> list[float]:
    return [*one.logprobs, *one.actual, *one.floor]


def test_references_come_back_bit_by_bit_but_for_float32(tmp_path: Path) -> None:
    given = answer()
    with opened(tmp_path) as store:
        store.keep_references("fp", "pool", [given])
    with opened(tmp_path) as store:
        (found,) = store.references("fp", "pool")

    assert replace(found, distribution=given.distribution) == given
    for name in ("prompt_id", "mode", "k", "prompt_length", "positions", "ids", "marks", "seconds"):
        assert getattr(found.distribution, name) == getattr(given.distribution, name)
    assert columns(found.distribution) == pytest.approx(columns(given.distribution), rel=1e-7, nan_ok=True)
    assert found.distribution.logprobs.typecode == given.distribution.logprobs.typecode


def test_an_answer_of_no_positions_comes_back(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.keep_references("fp", "pool", [replace(answer(rows=1), distribution=_empty())])
        (found,) = store.references("fp", "pool")
    assert (len(found.distribution), found.distribution.k) == (0, 2)


def _empty() -> Distribution:
    one = answer(rows=1).distribution
    none = {name: getattr(one, name)[:0] for name in ("positions", "ids", "logprobs", "actual", "floor")}
    return replace(one, marks=(), **none)


def test_references_belong_to_one_baseline_and_pool(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.keep_references("fp", "pool", [answer("a"), answer("b")])
        assert [one.prompt_id for one in store.references("fp", "pool")] == ["a", "b"]
        assert store.references("fp", "other") == store.references("other", "pool") == []


def test_a_newer_answer_supersedes_and_the_same_one_does_not(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for minutes in (0, 0, 5):
            store.keep_references("fp", "pool", [answer(minutes=minutes)])

        assert [one.made for one in store.references("fp", "pool")] == [at(5)]
        assert rows(store, "SELECT count(*), count(superseded) FROM reference_answers") == [(2, 1)]


def test_dropped_references_count_no_longer_and_stay_in_the_file(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.keep_references("fp", "pool", [answer("a"), answer("b")])
        assert store.drop_references(at=at(9)) == 2
        assert store.drop_references(at=at(9)) == 0
        assert store.references("fp", "pool") == []
        assert rows(store, "SELECT count(*) FROM reference_answers") == [(2,)]


def test_a_damaged_reference_is_said_and_not_used(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.keep_references("fp", "pool", [answer("a")])
        with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
            other.execute("UPDATE reference_answers SET floor = x'00000000'")
        with pytest.raises(StoreError, match="an answer to a that cannot be read: its columns differ"):
            store.references("fp", "pool")


# ------------------------------------------------------------------ pruning


def test_pruning_forgets_old_runs_and_keeps_the_newest_of_each_pair(tmp_path: Path) -> None:
    down = run(5, quality=Quality.UNKNOWN, report=None)
    with opened(tmp_path) as store:
        add(store, 1, 2, 3, 4)
        store.add_run(down, after(down))
        other = run(1, target="int8-b", id="r-b")
        store.add_run(other, after(other))

        assert store.prune(runs_before=at(100), decisions_before=at(0)) == 3
        left = {name for (name,) in rows(store, "SELECT id FROM runs")}
        assert left == {run(4).id, down.id, other.id}
        assert {name for (name,) in rows(store, "SELECT DISTINCT run FROM numbers")} == {run(4).id, other.id}


def test_pruning_keeps_what_is_young(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        add(store, 1, 2, 3, 4)
        assert store.prune(runs_before=at(3), decisions_before=at(3)) == 2


def test_pruning_keeps_what_open_intents_and_isolations_rest_on(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        add(store, 9, 10, 11)
        decided(store, "d-owner")
        store.settle("d-owner", VERIFIED)
        waiting = decision("d-open", 11, run=run(10).id)
        store.decide(waiting, intent=intent(waiting), transitions=[moved("a", "b", decision="d-open")])
        store.decide(suppressed("d-old", 12), transitions=[moved("c", "d", decision="d-old")])

        store.prune(runs_before=at(1000), decisions_before=at(1000))

        assert {name for (name,) in rows(store, "SELECT id FROM decisions")} == {"d-owner", "d-open"}
        assert {name for (name,) in rows(store, "SELECT decision FROM transitions")} == {"d-owner", "d-open"}
        assert {name for (name,) in rows(store, "SELECT id FROM runs")} == {run(9).id, run(10).id, run(11).id}
        assert [one.order.decision for one in store.open_intents()] == ["d-open"]


def test_pruning_forgets_decisions_when_nobody_owns_anything(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        made = decided(store)
        store.settle("d-1", VERIFIED, state=TargetState("int8-a", "llama"))
        store.add_pause(Pause("p-1", "all", "rollout", "ada", made.at, made.at + timedelta(minutes=1)))
        store.keep_references("fp", "pool", [answer()])
        store.drop_references(at=at(20))

        assert store.prune(runs_before=at(1000), decisions_before=at(1000)) == 4
        for table in ("decisions", "intents", "transitions", "pauses", "reference_answers"):
            assert rows(store, f"SELECT count(*) FROM {table}") == [(0,)]  # noqa: S608, our own names


# ------------------------------------------------------------------ threads


def test_the_store_is_opened_in_one_thread_and_used_in_another(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        worker = threading.Thread(target=add, args=(store, 1))
        worker.start()
        worker.join()
        assert len(store.set_states()) == 1


def test_threads_that_use_it_at_once_wait_for_each_other(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        workers = [threading.Thread(target=add, args=(store, *range(n * 20, n * 20 + 20))) for n in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert rows(store, "SELECT count(*) FROM runs") == [(80,)]


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.ping()


def test_a_note_is_kept_until_another_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store.open(path, clock=SystemClock()) as store:
        assert store.note("router http://a") is None
        store.keep_note("router http://a", "one")
        store.keep_note("router http://a", "two")
        store.keep_note("schema", "no key of the store's own")
    with Store.open(path, clock=SystemClock()) as store:
        assert (store.note("router http://a"), store.note("router http://b")) == ("two", None)
