"""What people are told of each other: a word about a target, and what waits for approval, until each is over."""

from pathlib import Path
from typing import Any

import pytest

from quantwatch.flow.state import Routing
from quantwatch.flow.word import Word
from quantwatch.flows.approve import approve, reject
from quantwatch.flows.release import confirm_healthy, release
from quantwatch.flows.words import hold, isolate
from support.gateway import Gateway
from support.receiver import Receiver
from support.watching import Bench, HandClock, restarted, settings, watching

BAD = 1.0
HOOK = {"name": "ops", "kind": "webhook", "url": "http://hook/in"}
APPROVE = {"mode": "approve", "minimum_hold": "1s"}


def told(**given: Any) -> dict[str, Any]:
    """A configuration with one channel that hears of warnings."""
    return settings(notifications=[HOOK], **given)


def hear(bench: Bench) -> Receiver:
    receiver = Receiver()
    bench.wire.put("hook", receiver.transport())
    return receiver


def heads(receiver: Receiver, *topics: str) -> list[tuple[str, str, bool]]:
    """Topic, state and whether it stands of what was told about these topics."""
    return [(one["topic"], one["state"], one["standing"]) for one in receiver.bodies if one["topic"] in topics]


async def proposed(bench: Bench) -> str:
    """Let a node go bad until its isolation waits; the decision's id."""
    await bench.rounds(1)
    restarted(bench.nodes["a"], damage=BAD)
    await bench.rounds(1)
    (waits,) = bench.board().proposals
    return waits.decision


async def test_a_hold_is_told_with_who_and_why_and_so_is_its_end(tmp_path: Path) -> None:
    async with watching(tmp_path, told()) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        await hold(bench.watch, Word("a", "ada", "a benchmark", seconds=3600))
        await bench.mend()
        (said,) = receiver.bodies
        assert (said["topic"], said["state"], said["severity"]) == ("word", "held", "warning")
        assert (said["reason"], said["target"], said["pool"]) == ("ada: a benchmark", "a", "chat")
        assert said["done"] == "no verdict changes its routing until 2026-01-01 01:10 UTC"
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert receiver.bodies[1]["done"] == "nothing: a person has set it to held"
        await bench.advance(3600)
        await bench.mend()
        assert heads(receiver, "word") == [("word", "held", True), ("word", "none", False)]


async def test_a_target_that_a_person_forced_out_is_told_once_also_over_a_restart(tmp_path: Path) -> None:
    clock, gateway = HandClock(), Gateway()
    async with watching(tmp_path, told(), clock=clock, gateway=gateway) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        await isolate(bench.watch, Word("a", "ada", "burns the lab down"))
        await bench.settle()
        await bench.mend()
        assert heads(receiver, "word", "routing") == [("routing", "out", True), ("word", "forced_out", True)]
        assert receiver.bodies[0]["reason"] == "ada: burns the lab down"
    async with watching(tmp_path, told(), clock=clock, gateway=gateway) as bench:
        again = hear(bench)
        await bench.mend()
        assert again.bodies == []
        await release(bench.watch, Word("a", "bob", "the fire is out"))
        await bench.settle()
        await bench.mend()
        assert heads(again, "word", "routing") == [("routing", "in", False), ("word", "none", False)]


async def test_a_breach_that_a_person_vouches_for_is_over_and_says_who_did(tmp_path: Path) -> None:
    async with watching(tmp_path, told(pool={"mode": "observe"})) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        await confirm_healthy(bench.watch, Word("a", "ada", "a new tokenizer"))
        await bench.mend()
        assert heads(receiver, "quality") == [("quality", "degraded", True), ("quality", "vouched", False)]
        assert receiver.bodies[-1]["reason"] == "ada vouched for it: a new tokenizer"


async def test_a_proposal_is_told_with_its_evidence_and_how_to_answer(tmp_path: Path) -> None:
    async with watching(tmp_path, told(pool=APPROVE)) as bench:
        receiver = hear(bench)
        decision = await proposed(bench)
        breach, waits = receiver.bodies
        assert (waits["topic"], waits["state"], waits["severity"]) == ("proposal", decision, "warning")
        assert waits["reason"].startswith("isolate: letters is degraded")
        assert f"`quantwatch approve {decision}`" in waits["done"]
        assert (waits["decision_id"], waits["run_id"]) == (decision, breach["run_id"])
        assert waits["evidence"] == breach["evidence"] != []
        assert breach["done"] == f"nothing yet: isolate waits for approval, decision {decision}"
        await bench.rounds(2)
        assert len(receiver.bodies) == 2


@pytest.mark.parametrize("fate", ["approved", "rejected", "expired", "withdrawn"])
async def test_a_proposal_is_over_once_it_is_answered_expired_or_withdrawn(tmp_path: Path, fate: str) -> None:
    async with watching(tmp_path, told(pool=APPROVE | {"approval_expires": "30m"})) as bench:
        receiver = hear(bench)
        decision = await proposed(bench)
        if fate == "approved":
            await approve(bench.watch, decision, author="ada")
        elif fate == "rejected":
            await reject(bench.watch, decision, author="ada", reason="it was me")
        elif fate == "expired":
            await bench.rounds(3)
        else:
            await hold(bench.watch, Word("a", "ada", "looking"))
        await bench.mend()
        found = [one for one in receiver.bodies if one["topic"] == "proposal"]
        assert [(one["state"], one["standing"]) for one in found[:2]] == [(decision, True), (fate, False)]
        assert found[1]["reason"].startswith(
            f"{fate} by {'ada' if fate in ('approved', 'rejected') else 'quantwatch'}: "
        )
        assert (bench.routing() is Routing.OUT) == (fate == "approved")


async def test_what_is_proposed_is_not_held_back_any_more(tmp_path: Path) -> None:
    async with watching(tmp_path, told(pool=APPROVE)) as bench:
        receiver = hear(bench)
        await bench.rounds(1)
        pause = await bench.people.pause("pool:chat", reason="looking", author="ada", seconds=None)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        await bench.people.resume(pause.id, author="ada")
        await bench.rounds(1)
        (waits,) = bench.board().proposals
        states = heads(receiver, "held_back", "proposal")
        assert [(topic, standing) for topic, _, standing in states] == [
            ("held_back", True),
            ("held_back", False),
            ("proposal", True),
        ]
        assert states[-1][1] == waits.decision
