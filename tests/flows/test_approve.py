"""Mode approve: a wish waits for a person, and acts once, on evidence of the moment it is approved."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quantwatch.errors import InputError, StoreError
from quantwatch.flow.decision import Action, Brake, Result, Ruling
from quantwatch.flow.proposal import Fate, Proposal
from quantwatch.flow.state import Routing
from quantwatch.flow.word import Word
from quantwatch.flows.approve import approve, reject
from quantwatch.flows.words import hold
from quantwatch.record.engine import Pragmas
from quantwatch.record.store import Options
from support.watching import EVERY, Bench, restarted, settings, watching

BAD = 1.0
IMPATIENT = Options(pragmas=Pragmas(busy_seconds=0.01))


def asking(*targets: str, **pool: Any) -> dict[str, Any]:
    """The usual settings with a pool that asks."""
    return settings(*targets, pool={"mode": "approve", "minimum_hold": "1s", **pool})


async def proposed(bench: Bench, name: str = "a") -> Proposal:
    """Let a node go bad until its isolation waits."""
    if not bench.runs():
        await bench.rounds(1)
    restarted(bench.nodes[name], damage=BAD)
    await bench.rounds(1)
    return waiting(bench)


def waiting(bench: Bench) -> Proposal:
    (one,) = bench.board().proposals
    return one


def fate(bench: Bench, decision: str) -> Proposal:
    (made,) = [one for one in bench.decisions() if one.id == decision]
    assert made.proposal is not None
    return made.proposal


async def test_a_confirmed_breach_is_proposed_once_and_nothing_acts(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        one = await proposed(bench)
        assert (one.target, one.action, one.task_set, one.fate) == ("a", Action.ISOLATE, "letters", Fate.OPEN)
        assert one.reason.startswith("letters is degraded")
        assert one.evidence in [run.id for run in bench.runs("a")]
        assert one.objections == ""
        (made,) = bench.decisions()
        assert (made.id, made.ruling) == (one.decision, Ruling.PROPOSED)
        assert [each["brake"] for each in made.objections] == [Brake.AWAITING_APPROVAL]
        assert await bench.series("open_approvals", pool="chat") == 1
        assert one.decision in (await bench.get("/")).text

        await bench.rounds(3)
        assert waiting(bench) == one
        assert len(bench.decisions()) == 1
        assert bench.gateway.calls == []
        assert bench.routing() is Routing.IN


async def test_an_approved_isolation_acts_like_enforce_under_the_same_id(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        one = await proposed(bench)
        heard = await approve(bench.watch, one.decision[-6:], author="ada", reason="seen it myself")
        await bench.settle()

        assert heard.decision == one.decision
        assert [call.id for call in bench.gateway.calls] == [one.decision]
        assert bench.routing() is Routing.OUT
        assert bench.board().proposals == ()
        ended = fate(bench, one.decision)
        assert (ended.fate, ended.author, ended.said) == (Fate.APPROVED, "ada", "seen it myself")
        (made,) = bench.decisions()
        assert made.intent is not None
        assert made.intent.outcome is not None
        assert made.intent.outcome.result is Result.VERIFIED
        assert made.intent.order.origin == "approved"
        assert bench.target().state.owner == one.decision
        leaving = next(change for change in bench.timeline() if change.new == "leaving")
        assert (leaving.author, leaving.decision) == ("ada", one.decision)
        assert await bench.series("proposals_closed_total", fate="approved", action="isolate") == 1
        with pytest.raises(InputError, match="no open proposal of this id"):
            await approve(bench.watch, one.decision, author="bob")


async def test_of_two_who_approve_at_once_one_acts(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        one = await proposed(bench)
        both = (approve(bench.watch, one.decision, author=author) for author in ("ada", "bob"))
        done = await asyncio.gather(*both, return_exceptions=True)
        await bench.settle()
        assert sorted(type(each).__name__ for each in done) == ["Heard", "InputError"]
        assert len(bench.gateway.calls) == 1


async def test_a_return_is_proposed_as_well(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        await approve(bench.watch, (await proposed(bench)).decision, author="ada")
        await bench.settle()
        restarted(bench.nodes["a"])
        await bench.rounds(3)
        assert bench.routing() is Routing.OUT
        one = waiting(bench)
        assert one.action is Action.RELEASE
        await approve(bench.watch, one.decision, author="bob")
        await bench.settle()
        assert bench.routing() is Routing.IN
        assert bench.gateway.calls[-1].id == one.decision


async def test_a_proposal_outlives_the_daemon_and_is_not_made_twice(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        one = await proposed(bench)
        gateway, clock = bench.gateway, bench.clock
        nodes = bench.nodes
    async with watching(tmp_path, asking(), gateway=gateway, clock=clock, nodes=nodes) as bench:
        assert waiting(bench) == one
        await bench.rounds(1)
        assert waiting(bench) == one
        await approve(bench.watch, one.decision, author="ada")
        await bench.settle()
        assert [call.id for call in gateway.calls] == [one.decision]


async def test_an_approved_order_is_ended_by_the_next_life_and_not_given_again(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        one = await proposed(bench)
        bench.gateway.down = True
        await approve(bench.watch, one.decision, author="ada")
        await bench.settle()
        gateway, clock, nodes = bench.gateway, bench.clock, bench.nodes
    gateway.down = False
    async with watching(tmp_path, asking(), gateway=gateway, clock=clock, nodes=nodes) as bench:
        await bench.settle()
        await bench.advance(60)
        assert bench.routing() is Routing.OUT
        assert [call.id for call in gateway.calls] == [one.decision]
        with pytest.raises(InputError):
            await approve(bench.watch, one.decision, author="bob")


async def test_a_breach_that_no_longer_stands_cannot_be_approved(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        one = await proposed(bench)
        restarted(bench.nodes["a"])
        await bench.round("a")
        with pytest.raises(InputError, match="what spoke for it no longer stands"):
            await approve(bench.watch, one.decision, author="ada")
        assert fate(bench, one.decision).fate is Fate.WITHDRAWN
        assert bench.board().proposals == ()
        assert bench.gateway.calls == []


async def test_a_breach_that_is_too_old_cannot_be_approved(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        one = await proposed(bench)
        await bench.advance(3 * EVERY)
        with pytest.raises(InputError, match="too old to count"):
            await approve(bench.watch, one.decision, author="ada")


async def test_a_brake_that_objects_now_is_told_and_the_proposal_stays(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        one = await proposed(bench)
        pause = await bench.people.pause("pool:chat", reason="upgrade", author="bob", seconds=None)
        with pytest.raises(InputError, match=r"stays open: bob paused pool:chat: upgrade"):
            await approve(bench.watch, one.decision, author="ada")
        assert waiting(bench) == one

        await bench.people.resume(pause.id, author="bob")
        await approve(bench.watch, one.decision, author="ada")
        await bench.settle()
        assert bench.routing() is Routing.OUT


async def test_the_last_backend_is_proposed_with_what_objects_and_not_approved(tmp_path: Path) -> None:
    async with watching(tmp_path, asking("a", "b")) as bench:
        await bench.rounds(1)
        bench.wire.down.add("b")
        await bench.rounds(3, "b")
        one = await proposed(bench)
        assert "no sound backend left" in one.objections
        with pytest.raises(InputError, match="no sound backend left"):
            await approve(bench.watch, one.decision, author="ada")


async def test_what_was_rejected_rests_and_needs_new_evidence(tmp_path: Path) -> None:
    async with watching(tmp_path, asking(approval_expires="1h")) as bench:
        one = await proposed(bench)
        await bench.rounds(1)  # a newer proof, which was there as well when it was rejected
        await reject(bench.watch, one.decision, author="ada", reason="we know")
        ended = fate(bench, one.decision)
        assert (ended.fate, ended.author, ended.said) == (Fate.REJECTED, "ada", "we know")
        assert ended.evidence == bench.runs("a")[-1].id
        await bench.rounds(5)
        assert bench.board().proposals == ()
        assert len(bench.decisions()) == 1
        await bench.rounds(1)
        assert waiting(bench).decision != one.decision


async def test_a_rejection_outlives_the_daemon(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        one = await proposed(bench)
        await reject(bench.watch, one.decision, author="ada", reason="we know")
        gateway, clock, nodes = bench.gateway, bench.clock, bench.nodes
    async with watching(tmp_path, asking(), gateway=gateway, clock=clock, nodes=nodes) as bench:
        await bench.rounds(3)
        assert bench.board().proposals == ()


async def test_what_nobody_answers_expires_with_a_record(tmp_path: Path) -> None:
    async with watching(tmp_path, asking(approval_expires="25m")) as bench:
        one = await proposed(bench)
        await bench.rounds(2)
        await bench.advance(EVERY - 1)
        with pytest.raises(InputError, match="it has expired"):
            await approve(bench.watch, one.decision, author="ada")
        ended = fate(bench, one.decision)
        assert (ended.fate, ended.author) == (Fate.EXPIRED, "quantwatch")
        await bench.rounds(1)
        assert waiting(bench).decision != one.decision


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (settings(pool={"mode": "observe"}), "the mode of its pool is observe now"),
        (settings("b"), "its target has left the configuration"),
    ],
)
async def test_a_proposal_that_nobody_asks_for_is_withdrawn(tmp_path: Path, after: dict[str, Any], why: str) -> None:
    async with watching(tmp_path, asking()) as bench:
        one = await proposed(bench)
        await bench.reload(after)
        await bench.mend()
        assert bench.board().proposals == ()
        assert (fate(bench, one.decision).fate, fate(bench, one.decision).said) == (Fate.WITHDRAWN, why)


async def test_a_persons_word_withdraws_a_proposal(tmp_path: Path) -> None:
    async with watching(tmp_path, asking()) as bench:
        one = await proposed(bench)
        await hold(bench.watch, Word("a", "ada", "mine"))
        await bench.mend()
        assert fate(bench, one.decision).said == "a person has set the target to held"


async def test_nothing_is_proposed_under_a_pause_or_where_the_driver_changes_nothing(tmp_path: Path) -> None:
    raw = asking()
    raw["gateway"] = {"driver": "dry_run"}
    async with watching(tmp_path, raw) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert bench.board().proposals == ()
        assert [one.ruling for one in bench.decisions()] == [Ruling.WOULD_HAVE]
        await bench.reload(asking())
        await bench.people.pause("all", reason="x", author="bob", seconds=None)
        await bench.rounds(1)
        assert bench.board().proposals == ()


async def test_too_many_open_proposals_pause_the_pool(tmp_path: Path) -> None:
    names = ("a", "b", "c", "d", "e", "f", "g")
    async with watching(tmp_path, asking(*names, storm_share=1.0)) as bench:
        await bench.rounds(1)
        for name in names[:6]:
            restarted(bench.nodes[name], damage=BAD)
            await bench.round(name)
        assert len(bench.board().proposals) == 5
        (pause,) = bench.board().pauses
        assert (pause.scope, pause.author) == ("pool:chat", "quantwatch")
        assert pause.until is not None
        assert "5 proposals wait" in pause.reason


async def test_what_cannot_be_written_down_is_neither_proposed_nor_approved(tmp_path: Path) -> None:
    async with watching(tmp_path, asking(), options=IMPATIENT) as bench:
        one = await proposed(bench)
        lock = bench.lock()
        with pytest.raises((StoreError, InputError)):
            await approve(bench.watch, one.decision, author="ada")
        with pytest.raises(StoreError):
            await reject(bench.watch, one.decision, author="ada", reason="x")
        lock.close()
        await bench.settle()
        assert bench.gateway.calls == []
        assert waiting(bench) == one
        await bench.mend()
        await approve(bench.watch, one.decision, author="ada")
        await bench.settle()
        assert bench.routing() is Routing.OUT
