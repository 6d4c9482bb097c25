"""What is known right now, and what of it an earlier life has left."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from quantwatch.flow.check import Check
from quantwatch.flow.load import Load
from quantwatch.flow.pool import PoolStanding
from quantwatch.flow.state import Axis, Pause, Routing, TargetState
from quantwatch.flow.verdict import Quality
from quantwatch.flows.memory import Memory
from quantwatch.flows.upkeep import end_pauses
from support.builders import FakeClock
from support.stored import NODE, after, at, decision, intent, leaving, opened, run, set_report


def restored(folder: Path, minutes: float = 60) -> Memory:
    memory = Memory()
    with opened(folder) as store:
        memory.restore(store, at(minutes))
    return memory


def test_a_new_life_knows_states_numbers_and_pauses_of_the_one_before(tmp_path: Path) -> None:
    made = decision()
    with opened(tmp_path) as store:
        store.add_run(run(1, 0.02), after(run(1, 0.02)))
        store.decide(made, intent=intent(made), state=leaving(made))
        store.add_pause(Pause("p-1", "all", "rollout", "ada", at(1)))
        store.add_pause(Pause("p-2", "all", "rollout", "ada", at(1), at(2)))

    memory = restored(tmp_path)
    assert memory.set_state("int8-a", "math").quality is Quality.OK
    assert memory.set_state("int8-a", "math").run == run(1).id
    assert memory.target_state("int8-a", "llama") == leaving(made)
    assert [one.id for one in memory.pauses] == ["p-1"]
    assert memory.numbers["int8-a", "math"]["kl_mean"] == 0.02
    assert memory.success["int8-a", "math"] == run(1).started.replace(minute=1, second=30)


def test_numbers_are_those_of_the_last_run_that_gave_any(tmp_path: Path) -> None:
    silent = run(2, quality=Quality.UNKNOWN, report=None)
    with opened(tmp_path) as store:
        store.add_run(run(1, 0.02), after(run(1, 0.02)))
        store.add_run(silent, after(silent))

    memory = restored(tmp_path)
    assert memory.numbers["int8-a", "math"]["kl_mean"] == 0.02
    assert memory.set_state("int8-a", "math").quality is Quality.UNKNOWN


def test_a_new_life_knows_the_latest_counts_of_each_target(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        for number, task_set in ((1, "zeal"), (2, "math")):
            one = run(number, task_set=task_set, load_before=Load(), load_after=Load(broken_rows=number))
            store.add_run(one, after(one))
        mute = run(3, target="int8-b", load_after=Load(prompt_tokens=5))
        store.add_run(mute, after(mute))

    assert restored(tmp_path).counts == {"int8-a": Load(broken_rows=2)}


def test_an_empty_store_leaves_nothing(tmp_path: Path) -> None:
    memory = restored(tmp_path)
    assert (memory.sets, memory.targets, memory.numbers, memory.pauses) == ({}, {}, {}, [])
    assert memory.set_state("x", "math").quality is Quality.UNKNOWN
    assert memory.target_state("x", "chat") == TargetState("x", "chat")


def test_a_change_from_the_future_is_taken_for_one_of_now(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.save_target(replace(leaving(decision()), routing=Routing.OUT, since=at(500)))

    assert restored(tmp_path, minutes=60).targets["int8-a"].since == at(60)


def test_the_numbers_shown_after_a_restart_are_those_shown_before(tmp_path: Path) -> None:
    record, memory = run(1, 0.02), Memory()
    memory.learn(record, after(record), at(2))
    with opened(tmp_path) as store:
        store.add_run(record, after(record))

    again = restored(tmp_path)
    told, shown = again.numbers["int8-a", "math"], memory.numbers["int8-a", "math"]
    assert {key: told[key] for key in shown if key != "kl_max"} == {
        key: shown[key] if not isinstance(shown[key], tuple) else list(shown[key]) for key in shown if key != "kl_max"
    }


def test_a_run_that_changes_the_quality_is_a_transition_with_its_sentence() -> None:
    memory, record = Memory(), run(1)
    (told,) = memory.learn(record, after(record), at(2))

    assert (told.axis, told.old, told.new) == (Axis.QUALITY, "unknown", "ok")
    assert (told.task_set, told.run, told.reason, told.at) == ("math", record.id, record.reason, at(2))
    assert memory.learn(run(2), after(run(2)), at(3)) == []


def test_a_run_without_numbers_leaves_the_last_numbers_and_their_time() -> None:
    memory = Memory()
    memory.learn(run(1, 0.02), after(run(1)), at(2))
    for empty in (run(2, report=None), run(3, report=replace(set_report(), divergence=None), node=None)):
        memory.learn(empty, after(empty), at(9))

    assert memory.numbers["int8-a", "math"]["kl_mean"] == 0.02
    assert memory.success["int8-a", "math"] == at(2)
    assert memory.identities["int8-a"] == NODE


def test_findings_are_those_of_the_run_that_proved_the_breach() -> None:
    memory, guilty = Memory(), run(1, 0.09, quality=Quality.DEGRADED)
    assert memory.findings("int8-a", "math") == ()
    memory.learn(guilty, after(guilty, proof=guilty.id), at(2))
    proven = memory.findings("int8-a", "math")
    assert proven == set_report(0.09, quality=Quality.DEGRADED).verdict.findings

    # A run that cannot tell leaves the proof, and one that clears the node takes it away.
    silent = run(2, quality=Quality.UNKNOWN, report=None)
    memory.learn(silent, after(silent, quality=Quality.DEGRADED, proof=guilty.id), at(3))
    assert memory.findings("int8-a", "math") == proven
    memory.learn(run(3), after(run(3)), at(4))
    assert memory.findings("int8-a", "math") == ()


def test_what_is_no_longer_configured_is_forgotten() -> None:
    guilty = run(1, 0.09, quality=Quality.DEGRADED)
    memory = Memory(checks={("int8-a", "math"): Check(at(1), sound=False), ("b", "math"): Check(at(1), sound=True)})
    memory.learn(guilty, after(guilty, proof=guilty.id), at(2))
    memory.keep([("b", "math")])

    assert list(memory.checks) == [("b", "math")]
    assert memory.findings("int8-a", "math") == ()


def test_the_clean_time_of_a_target_moves_with_the_wall_clock_and_is_never_ahead(tmp_path: Path) -> None:
    back = TargetState("x", "chat", since=at(1), ejections=2, well_since=at(5))
    memory = Memory(targets={"x": back})
    memory.shift(-120.0)
    assert memory.targets["x"].well_since == at(5) - timedelta(seconds=120)

    with opened(tmp_path) as store:
        store.save_target(back)
        for now, since in ((at(9), at(5)), (at(4), at(4))):
            memory.restore(store, now)
            assert memory.targets["x"] == replace(back, well_since=since)


@pytest.mark.parametrize("routing", list(Routing))
def test_a_target_that_left_is_kept_as_long_as_it_is_not_in_traffic(routing: Routing) -> None:
    memory = Memory(targets={"x": TargetState("x", "chat", routing), "y": TargetState("y", "chat", Routing.OUT)})
    kept = [one.target for one in memory.left_behind(["y"])]
    assert kept == ([] if routing is Routing.IN else ["x"])


def test_a_target_that_moved_to_another_pool_belongs_there() -> None:
    memory = Memory(targets={"x": TargetState("x", "old", Routing.OUT, owner="d-1")})
    assert memory.target_state("x", "new") == TargetState("x", "new", Routing.OUT, owner="d-1")


def test_setting_the_clock_moves_every_moment_and_no_age() -> None:
    memory = Memory(
        targets={"x": TargetState("x", "chat", Routing.OUT, since=at(3)), "y": TargetState("y", "chat")},
        storms={"chat": PoolStanding("chat", began=at(1), until=at(9)), "calm": PoolStanding("calm")},
        checked={"chat": at(2)},
    )
    memory.learn(run(1), after(run(1)), at(2))
    memory.shift(-60.0)

    assert (memory.targets["x"].since, memory.targets["y"].since) == (at(2), None)
    assert memory.storms["chat"] == PoolStanding("chat", began=at(0), until=at(8))
    assert memory.storms["calm"] == PoolStanding("calm")
    assert memory.checked == {"chat": at(1)}
    assert memory.success["int8-a", "math"] == at(1)
    assert memory.sets["int8-a", "math"].at == after(run(0)).at


def test_pauses_end_when_their_time_is_over_and_not_before() -> None:
    clock = FakeClock()
    memory = Memory(
        pauses=[Pause("p-1", "all", "r", "ada", at(0), at(5)), Pause("p-2", "all", "r", "ada", at(0), None)]
    )
    clock.time = 299.0
    end_pauses(memory, clock)
    assert [one.id for one in memory.pauses] == ["p-1", "p-2"]

    clock.time = 300.0
    end_pauses(memory, clock)
    assert [one.id for one in memory.pauses] == ["p-2"]
