"""A whole pool goes bad at once: by its yardstick, where nobody acts, or by its own nodes, where a person is asked."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quantwatch.errors import InputError, StoreError
from quantwatch.flow.decision import Action, Brake, Ruling
from quantwatch.flow.pool import PoolState
from quantwatch.flow.proposal import Fate, Proposal
from quantwatch.flow.state import Axis, Routing
from quantwatch.flow.word import Word
from quantwatch.flows.approve import approve, reject
from quantwatch.flows.words import hold
from quantwatch.record.engine import Pragmas
from quantwatch.record.store import Options
from support.gateway import Gateway
from support.receiver import Receiver
from support.watching import EVERY, Bench, HandClock, restarted, settings, watching

BAD = 2.0
HOOK = {"name": "ops", "kind": "webhook", "url": "http://hook/in", "min_severity": "info"}
POOL = "pool:chat"
ALL = ("a", "b", "c")
IMPATIENT = Options(pragmas=Pragmas(busy_seconds=0.01))


def asking(*targets: str, **pool: Any) -> dict[str, Any]:
    """Three quantized nodes before a full-precision fallback; nothing is confirmed within the first round."""
    given = {"fallback": "baseline", "storm_cooldown": "30m", "minimum_hold": "1s", "max_isolated": "34%", **pool}
    return settings(
        *(targets or ALL),
        pool=given,
        task_set={"confirm_cycles": 3, "draw": 5, "draw_at_most": 10},
        notifications=[HOOK],
        probe={"patience": "0s", "max_waiting": 50},
    )


def hear(bench: Bench) -> Receiver:
    receiver = Receiver()
    bench.wire.put("hook", receiver.transport())
    return receiver


async def rollout(bench: Bench, *names: str, rounds: int = 2) -> None:
    """Let nodes come back bad, all of them, and measure them so often."""
    if not bench.runs():
        await bench.rounds(1)
    for name in names or ALL:
        restarted(bench.nodes[name], damage=BAD)
    await bench.rounds(rounds)


def stands(bench: Bench) -> PoolState:
    return bench.board().pools[0].stands.state


def waiting(bench: Bench) -> Proposal:
    (one,) = [each for each in bench.board().proposals if each.of_pool]
    return one


def storms(receiver: Receiver) -> list[tuple[str, bool]]:
    return [(one["state"], one["standing"]) for one in receiver.bodies if one["topic"] == "storm"]


def isolated(bench: Bench) -> list[str]:
    return [name for name, gone in bench.gateway.changes if gone]


async def test_a_wrong_baseline_takes_nobody_out_and_is_told_with_the_reason(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        restarted(bench.baseline, seed=99)  # another model, under a version that was never met
        bench.baseline.max_model_len = 4096
        await bench.rounds(3)
        await bench.mend()

        assert {bench.target(name).quality for name in ALL} == {"degraded"}
        assert bench.gateway.calls == []
        pool = bench.board().pools[0].stands
        assert pool.state is PoolState.STORM
        assert "the baseline is not proven sound: no clean run has proven its answers on letters yet" in pool.reason
        assert bench.board().proposals == ()
        assert bench.path_of("pool", POOL) == ["healthy", "storm"]
        assert storms(receiver) == [("storm", True)]
        (told,) = [one for one in receiver.bodies if one["topic"] == "storm"]
        assert (told["severity"], told["pool"]) == ("critical", "chat")
        assert "no clean run has proven its answers on letters yet" in told["reason"]
        assert await bench.series("pool_state", pool="chat", state="storm") == 1

        restarted(bench.baseline, seed=7)  # what was there before
        bench.baseline.max_model_len = 8192
        await bench.rounds(5)
        await bench.mend()
        assert stands(bench) is PoolState.HEALTHY
        assert bench.gateway.calls == []
        assert storms(receiver) == [("storm", True), ("healthy", False)]


async def test_a_baseline_that_moved_under_its_old_name_is_no_storm_of_nodes(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        restarted(bench.baseline, seed=99)
        await bench.rounds(3)
        assert bench.gateway.calls == []
        assert stands(bench) is PoolState.HEALTHY
        assert "baseline_moved" in {one["topic"] for one in receiver.bodies}


async def test_a_real_bad_rollout_is_told_proposed_approved_and_comes_to_an_end(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        receiver = hear(bench)
        await rollout(bench)
        assert bench.gateway.calls == []
        assert stands(bench) is PoolState.FLEET_DEGRADED
        assert await bench.series("pool_state", pool="chat", state="fleet_degraded") == 1
        assert storms(receiver) == [("fleet_degraded", True)]
        (told,) = [one for one in receiver.bodies if one["topic"] == "storm"]
        assert told["severity"] == "critical"
        assert told["reason"].endswith("and the baseline is proven sound")
        said = "3 of 3 members breach at once (a, b, c), and the baseline is proven sound"
        assert bench.board().pools[0].stands.reason == said

        one = waiting(bench)
        assert (one.target, one.pool, one.action, one.fate) == (POOL, "chat", Action.ISOLATE, Fate.OPEN)
        assert one.reason.startswith("every member with a confirmed breach (now ")
        assert "2 of 3 members of chat would be away" in one.objections
        assert "points to a common cause" in one.objections
        (asked,) = [each for each in receiver.bodies if each["topic"] == "proposal"]
        assert (asked["state"], asked["target"], asked["pool"]) == (one.decision, None, "chat")
        page = (await bench.get("/")).text
        assert one.decision in page
        assert "fleet_degraded" in page
        await bench.rounds(1)
        assert waiting(bench) == one  # the same evidence is not proposed twice

        heard = await approve(bench.watch, one.decision[-6:], author="ada", reason="all of them")
        await bench.settle()
        assert sorted(isolated(bench)) == ["http://a", "http://b", "http://c"]
        assert [bench.routing(name) for name in ALL] == [Routing.OUT] * 3
        assert heard.decision == one.decision
        assert any("overridden: 3 of 3 members of chat would be away" in line for line in heard.told)
        for name in ALL:
            (made,) = [each for each in bench.decisions(name) if each.ruling == Ruling.ACT]
            assert (made.author, made.origin, made.id == one.decision) == ("ada", "approved", False)
            assert one.decision in made.reason
            assert {each["brake"] for each in made.objections} <= {Brake.STORM, Brake.CAP, Brake.RATE}
            assert bench.target(name).state.owner == made.id
        (closed,) = [each for each in bench.decisions(POOL) if each.id == one.decision]
        assert (kept := closed.proposal) is not None
        assert (kept.fate, kept.author, str(kept.said)[:16]) == (Fate.APPROVED, "ada", "all of them; a l")
        with pytest.raises(InputError, match="no open proposal of this id"):
            await approve(bench.watch, one.decision, author="bob")

        await bench.rounds(1)
        assert stands(bench) is PoolState.FLEET_DEGRADED  # they are out, and no better
        for name in ALL:
            restarted(bench.nodes[name])
        await bench.rounds(3)
        assert [bench.routing(name) for name in ALL] == [Routing.IN] * 3
        await bench.rounds(3)
        await bench.mend()
        assert stands(bench) is PoolState.HEALTHY
        assert bench.path_of("pool", POOL) == ["healthy", "storm", "fleet_degraded", "healthy"]
        assert storms(receiver) == [("fleet_degraded", True), ("healthy", False)]


async def test_nobody_leaves_while_the_fallback_is_overloaded_or_nothing_can_be_written(tmp_path: Path) -> None:
    async with watching(tmp_path, asking(), options=IMPATIENT) as bench:
        await rollout(bench)
        one = waiting(bench)
        bench.baseline.waiting = 9
        with pytest.raises(InputError, match="requests waiting 9"):
            await approve(bench.watch, one.decision, author="ada")
        assert bench.gateway.calls == []
        assert waiting(bench) == one

        bench.baseline.waiting = 0
        lock = bench.lock()
        with pytest.raises((StoreError, InputError)):
            await approve(bench.watch, one.decision, author="ada")
        lock.close()
        await bench.mend()
        assert bench.gateway.calls == []
        assert waiting(bench) == one

        await approve(bench.watch, one.decision, author="ada")
        await bench.settle()
        assert len(isolated(bench)) == 3


async def test_without_a_fallback_the_last_sound_backend_stays(tmp_path: Path) -> None:
    async with watching(tmp_path, asking("a", "b", "c", "d", fallback=None)) as bench:
        await rollout(bench, "a", "b", "c")
        await approve(bench.watch, waiting(bench).decision, author="ada")
        await bench.settle()
        assert sorted(isolated(bench)) == ["http://a", "http://b", "http://c"]
        assert bench.routing("d") is Routing.IN


async def test_without_a_fallback_and_with_no_sound_backend_nobody_leaves(tmp_path: Path) -> None:
    async with watching(tmp_path, asking(fallback=None)) as bench:
        await rollout(bench)
        with pytest.raises(InputError, match="no sound backend left, and no fallback is named"):
            await approve(bench.watch, waiting(bench).decision, author="ada")
        assert bench.gateway.calls == []


async def test_who_is_held_stays_and_the_approver_is_told_who_leaves(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        await rollout(bench)
        await hold(bench.watch, Word("b", "bob", "it serves a demo"))
        heard = await approve(bench.watch, waiting(bench).decision, author="ada")
        await bench.settle()
        assert sorted(isolated(bench)) == ["http://a", "http://c"]
        assert [line.partition(" leaves")[0] for line in heard.told if " leaves " in line] == ["a", "c"]


async def test_a_persons_pause_covers_a_pool_that_is_asked_about(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        pause = await bench.people.pause("pool:chat", reason="we know", author="bob", seconds=None)
        await rollout(bench, rounds=3)
        assert stands(bench) is PoolState.FLEET_DEGRADED
        assert bench.board().proposals == ()
        await bench.people.resume(pause.id, author="bob")
        await bench.rounds(1)
        one = waiting(bench)
        await bench.people.pause("all", reason="again", author="bob", seconds=None)
        with pytest.raises(InputError, match="bob paused all: again"):
            await approve(bench.watch, one.decision, author="ada")
        assert bench.gateway.calls == []


@pytest.mark.parametrize("mode", ["observe", "dry_run"])
async def test_in_a_mode_that_only_looks_on_nobody_is_asked(tmp_path: Path, mode: str) -> None:
    async with watching(tmp_path, asking(mode=mode)) as bench:
        await rollout(bench, rounds=3)
        assert stands(bench) is PoolState.FLEET_DEGRADED
        assert bench.gateway.calls == []
        assert bench.board().proposals == ()
        made = bench.decisions(POOL)
        assert {one.ruling for one in made} == (set() if mode == "observe" else {Ruling.WOULD_HAVE})
        await bench.rounds(1)
        assert bench.decisions(POOL) == made  # once for as long as the same things object


@pytest.mark.parametrize("mode", ["enforce", "approve"])
async def test_up_to_cap_the_storm_objects_no_more_and_everything_else_does(tmp_path: Path, mode: str) -> None:
    raw = asking("a", "b", "c", "d", mode=mode, max_isolated="50%", on_fleet_degraded="up_to_cap")
    async with watching(tmp_path, raw) as bench:
        await rollout(bench, "a", "b", "c", rounds=3)
        assert stands(bench) is PoolState.FLEET_DEGRADED
        assert not any(one.of_pool for one in bench.board().proposals)
        if mode == "approve":
            assert {one.target for one in bench.board().proposals} == {"a", "b", "c"}
            assert bench.gateway.calls == []
            return
        assert len(isolated(bench)) == 2
        (left,) = {f"http://{name}" for name in ("a", "b", "c")} - set(isolated(bench))
        held = bench.decisions(left.removeprefix("http://"))[-1]
        assert [each["brake"] for each in held.objections] == [Brake.CAP]


async def test_up_to_cap_nothing_acts_while_the_yardstick_is_not_proven(tmp_path: Path) -> None:
    raw = asking(max_isolated="100%", on_fleet_degraded="up_to_cap", fallback=None)
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(1)
        restarted(bench.baseline, seed=99)
        bench.baseline.max_model_len = 4096
        await bench.rounds(3)
        assert stands(bench) is PoolState.STORM
        assert bench.gateway.calls == []


@pytest.mark.parametrize("names", [("a",), ("a", "b")])
async def test_a_pool_of_one_or_two_is_never_in_a_storm(tmp_path: Path, names: tuple[str, ...]) -> None:
    async with watching(tmp_path, asking(*names, max_isolated="100%")) as bench:
        await rollout(bench, *names)
        assert stands(bench) is PoolState.HEALTHY
        assert bench.path_of("pool", POOL) == []
        assert sorted(isolated(bench)) == [f"http://{name}" for name in names]


async def test_a_restart_goes_on_with_the_state_and_tells_and_asks_nothing_again(tmp_path: Path) -> None:
    gateway, clock = Gateway(), HandClock()
    async with watching(tmp_path, asking(), gateway=gateway, clock=clock) as bench:
        receiver = hear(bench)
        await rollout(bench)
        one, before = waiting(bench), bench.board().pools[0].stands
        assert storms(receiver) == [("fleet_degraded", True)]
        nodes = bench.nodes
    async with watching(tmp_path, asking(), gateway=gateway, clock=clock, nodes=nodes) as bench:
        again = hear(bench)
        await bench.mend()
        assert bench.board().pools[0].stands == before
        assert waiting(bench) == one
        await bench.rounds(1)
        await bench.mend()
        assert waiting(bench) == one
        assert storms(again) == []
        assert [each["topic"] for each in again.bodies if each["topic"] == "proposal"] == []
        assert [made.id for made in bench.decisions(POOL)] == [one.decision]
        assert bench.path_of("pool", POOL) == ["healthy", "storm", "fleet_degraded"]
        await approve(bench.watch, one.decision, author="ada")
        await bench.settle()
        assert len(isolated(bench)) == 3


async def test_what_was_approved_is_ended_by_the_next_life_and_given_once(tmp_path: Path) -> None:
    gateway, clock = Gateway(), HandClock()
    async with watching(tmp_path, asking(), gateway=gateway, clock=clock) as bench:
        await rollout(bench)
        gateway.down = True
        await approve(bench.watch, waiting(bench).decision, author="ada")
        await bench.settle()
        assert [bench.routing(name) for name in ALL] == [Routing.LEAVING] * 3
        nodes = bench.nodes
    gateway.down = False
    async with watching(tmp_path, asking(), gateway=gateway, clock=clock, nodes=nodes) as bench:
        await bench.settle()
        await bench.advance(60)
        assert [bench.routing(name) for name in ALL] == [Routing.OUT] * 3
        assert len({call.id for call in gateway.calls}) == len(gateway.calls) == 3


async def test_a_rejected_pool_rests_and_comes_again_on_new_evidence(tmp_path: Path) -> None:
    async with watching(tmp_path, asking(approval_expires="20m")) as bench:
        await rollout(bench)
        one = waiting(bench)
        await reject(bench.watch, one.decision, author="ada", reason="known")
        await bench.rounds(1)
        assert bench.board().proposals == ()
        await bench.rounds(2)
        assert waiting(bench).evidence != one.evidence


async def test_a_proposal_about_a_pool_expires(tmp_path: Path) -> None:
    async with watching(tmp_path, asking(approval_expires="5m")) as bench:
        await rollout(bench)
        one = waiting(bench)
        await bench.advance(300)
        await bench.mend()
        (made,) = bench.decisions(POOL)
        assert made.proposal is not None
        assert made.proposal.fate is Fate.EXPIRED
        with pytest.raises(InputError):
            await approve(bench.watch, one.decision, author="ada")


async def test_a_proposal_whose_storm_has_passed_is_withdrawn(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        await rollout(bench)
        one = waiting(bench)
        for name in ALL:
            restarted(bench.nodes[name])
        await bench.rounds(1)
        await bench.mend()
        (made,) = bench.decisions(POOL)
        assert made.proposal is not None
        assert (made.proposal.fate, made.id) == (Fate.WITHDRAWN, one.decision)
        assert "not degraded as a whole any more" in (made.proposal.said or "")


async def test_of_two_who_approve_a_pool_at_once_one_acts(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        await rollout(bench)
        one = waiting(bench)
        both = (approve(bench.watch, one.decision, author=author) for author in ("ada", "bob"))
        done = await asyncio.gather(*both, return_exceptions=True)
        await bench.settle()
        assert sorted(type(each).__name__ for each in done) == ["Heard", "InputError"]
        assert len(bench.gateway.calls) == 3


async def test_a_yardstick_that_moves_in_the_storm_takes_the_proof_and_the_proposal_back(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        await rollout(bench)
        one = waiting(bench)
        restarted(bench.baseline, seed=99)
        await bench.round("a")
        await bench.mend()
        assert stands(bench) is PoolState.STORM
        assert bench.board().proposals == ()
        with pytest.raises(InputError):
            await approve(bench.watch, one.decision, author="ada")
        assert bench.gateway.calls == []


async def test_a_baseline_that_cannot_be_asked_proves_nothing_and_is_asked_again(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        heard: list[str] = []
        for name in ALL:
            restarted(bench.nodes[name], damage=BAD)
        bench.watch.prover = _nobody_answers(heard, bench)
        await bench.rounds(1)
        await bench.mend()
        assert len(heard) == 1
        assert stands(bench) is PoolState.STORM
        assert storms(receiver) == [("storm", True)]
        await bench.rounds(1)
        assert len(heard) == 2
    assert [one.axis for one in bench.timeline(POOL)][:1] == [Axis.POOL]
    assert EVERY > 300


def _nobody_answers(heard: list[str], bench: Bench) -> Any:
    """The baseline goes away just when it is to be checked, and stays away."""

    async def prove(*_: Any) -> None:
        heard.append("asked")
        bench.wire.down.add("baseline")

    return prove
