"""A person brings a target back that nothing else would, and every release goes the way the isolation went."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quantwatch.daemon.desk import Desk
from quantwatch.errors import InputError, StoreError
from quantwatch.expose.calls import Reloaded
from quantwatch.flow.decision import Action, Brake, Result, Ruling
from quantwatch.flow.state import Routing
from quantwatch.flow.word import Heard, Word
from quantwatch.flows.release import release
from quantwatch.record.engine import Pragmas
from quantwatch.record.store import Options
from support.gateway import Fault, Gateway
from support.watching import Bench, restarted, settings, watching

BAD = 1.0
IMPATIENT = Options(pragmas=Pragmas(busy_seconds=0.01))


async def isolated(bench: Bench, name: str = "a") -> None:
    """Let a node go bad and be taken out."""
    await bench.rounds(1)
    restarted(bench.nodes[name], damage=BAD)
    await bench.rounds(1)
    assert bench.routing(name) is Routing.OUT


def renamed(name: str, **given: Any) -> dict[str, Any]:
    """The usual settings, with another name of target a at the gateway."""
    raw = settings(**given)
    raw["targets"][0]["gateway_name"] = name
    return raw


def with_driver(driver: str) -> dict[str, Any]:
    """The usual settings with another driver."""
    raw = settings()
    raw["gateway"] = {"driver": driver}
    return raw


def made(bench: Bench) -> list[tuple[str, str]]:
    """Calls at the gateway: what, and under which name."""
    return [(one.body["action"], one.body["node_endpoint"]) for one in bench.gateway.calls]


# The same way back


async def test_a_node_whose_name_has_changed_comes_back_by_hand_only_and_under_its_old_name(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        await bench.reload(renamed("pod-7"))
        restarted(bench.nodes["a"])
        await bench.rounds(4)
        assert [one["brake"] for one in bench.decisions("a")[-1].objections] == [Brake.DRIVER]
        assert "isolated as http://a, and pod-7 is what is measured now" in repr(bench.decisions("a")[-1].objections)
        assert bench.routing() is Routing.OUT

        await release(bench.watch, Word("a", "ada", "the old pod"))
        await bench.settle()
        assert made(bench) == [("isolate", "http://a"), ("release", "http://a")]
        assert bench.routing() is Routing.IN
        assert bench.gateway.stands("http://a") is False

        # The next isolation goes under the new one.
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert made(bench)[-1] == ("isolate", "pod-7")


@pytest.mark.parametrize(("driver", "others"), [("verdict", []), ("dry_run", [Brake.DRY_RUN])])
async def test_nothing_is_released_through_another_driver_than_it_was_isolated_through(
    tmp_path: Path, driver: str, others: list[Brake]
) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        await bench.reload(with_driver(driver))
        restarted(bench.nodes["a"])
        await bench.rounds(4)

        latest = bench.decisions("a")[-1]
        assert (latest.action, latest.ruling) == (Action.RELEASE, Ruling.SUPPRESSED)
        assert [one["brake"] for one in latest.objections] == [Brake.DRIVER, *others]
        assert f"isolated through webhook, and the configuration names {driver} now" in latest.objections[0]["reason"]
        assert bench.routing() is Routing.OUT

        await bench.reload(settings())
        await bench.rounds(1)
        assert bench.routing() is Routing.IN
        assert bench.gateway.stands("http://a") is False


async def test_name_and_driver_of_an_isolation_outlive_the_daemon(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        gateway, clock = bench.gateway, bench.clock
    async with watching(tmp_path, renamed("pod-7"), gateway=gateway, clock=clock) as bench:
        await bench.rounds(1)
        await release(bench.watch, Word("a", "ada", "x"))
        await bench.settle()
        assert made(bench)[-1] == ("release", "http://a")
        assert bench.routing() is Routing.IN
        state = bench.target().state
        assert (state.node, state.driver, state.owner) == (None, None, None)


# By hand


async def test_a_person_brings_a_target_back_that_left_the_configuration(tmp_path: Path) -> None:
    async with watching(tmp_path, settings("a", "b", "c")) as bench:
        await isolated(bench)
        await bench.reload(settings("b", "c"))
        assert bench.board().pools[0].targets == 3  # what left while it was out is missing from its pool
        assert bench.board().pools[0].isolated == 1

        decision = (await release(bench.watch, Word("a", "ada", "gone for good"))).decision
        await bench.settle()

        assert made(bench)[-1] == ("release", "http://a")
        assert bench.gateway.calls[-1].id == decision
        assert bench.gateway.calls[-1].body["reason"] == "ada: gone for good"
        assert bench.board().target("a") is None
        assert (bench.board().pools[0].targets, bench.board().pools[0].isolated) == (2, 0)
        assert bench.path_of("routing") == ["in", "leaving", "out", "returning", "in"]
        (latest,) = [one for one in bench.decisions("a") if one.id == decision]
        assert latest.intent is not None
        assert latest.intent.outcome is not None
        assert latest.intent.outcome.result is Result.VERIFIED


@pytest.mark.parametrize("mode", ["observe", "dry_run", "approve"])
async def test_a_person_brings_a_target_back_whose_pool_is_not_in_enforce_any_more(tmp_path: Path, mode: str) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        await bench.reload(settings(pool={"mode": mode}))
        restarted(bench.nodes["a"])
        await bench.rounds(6)
        assert bench.routing() is Routing.OUT  # nothing brings it back by itself

        await release(bench.watch, Word("a", "ada", "repaired"))
        await bench.settle()
        assert bench.routing() is Routing.IN
        assert bench.gateway.stands("http://a") is False


async def test_in_enforce_a_person_need_not_wait_for_clean_runs(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        restarted(bench.nodes["a"])
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT  # two clean runs are asked for
        await release(bench.watch, Word("a", "ada", "repaired"))
        await bench.settle()
        assert bench.routing() is Routing.IN


async def test_a_breach_does_not_hold_a_person_back_and_takes_the_node_out_again(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        heard = await release(bench.watch, Word("a", "ada", "I know better"))
        await bench.settle()
        assert bench.routing() is Routing.IN
        assert ["letters is degraded" in one for one in heard.told] == [True]
        assert bench.decisions("a")[-1].author == "ada"

        await bench.rounds(1)
        assert bench.routing() is Routing.OUT
        assert bench.gateway.changes == [("http://a", True), ("http://a", False), ("http://a", True)]


async def test_a_release_by_hand_waits_for_a_gateway_that_is_down(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        await bench.reload(settings("b"))
        bench.gateway.down = True
        await release(bench.watch, Word("a", "ada", "x"))
        await bench.settle()
        await bench.advance(60)
        assert bench.routing() is Routing.RETURNING

        bench.gateway.down = False
        await bench.advance(120)
        assert bench.gateway.stands("http://a") is False
        assert bench.board().target("a") is None


async def test_a_release_by_hand_goes_under_the_name_of_the_isolation(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        await bench.reload(renamed("pod-7", pool={"mode": "observe"}))
        await release(bench.watch, Word("a", "ada", "x"))
        await bench.settle()
        assert made(bench)[-1] == ("release", "http://a")


async def test_where_it_is_not_known_how_the_gateway_stands_a_person_can_release(tmp_path: Path) -> None:
    async with watching(tmp_path, gateway=Gateway(always=Fault.BUSY)) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        await bench.reload(settings("b"))
        assert bench.routing() is Routing.CONTRADICTED
        bench.gateway.always = None

        await release(bench.watch, Word("a", "ada", "x"))
        await bench.settle()
        assert bench.board().target("a") is None


# What is refused


async def refusal(bench: Bench, name: str = "a") -> str:
    """Why a release is refused; nothing has changed then."""
    calls, decisions = len(bench.gateway.calls), len(bench.decisions())
    with pytest.raises(InputError) as caught:
        await release(bench.watch, Word(name, "ada", "x"))
    await bench.settle()
    assert (len(bench.gateway.calls), len(bench.decisions())) == (calls, decisions)
    return str(caught.value)


@pytest.mark.parametrize("name", ["a", "b", "nobody"])
async def test_what_is_not_isolated_cannot_be_released(tmp_path: Path, name: str) -> None:
    async with watching(tmp_path, settings(pool={"mode": "observe"})) as bench:
        await bench.rounds(1)
        assert await refusal(bench, name) == f"{name} is not isolated by quantwatch"


async def test_what_came_back_cannot_be_released_again(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        await bench.reload(settings(pool={"mode": "observe"}))
        await release(bench.watch, Word("a", "ada", "x"))
        await bench.settle()
        assert await refusal(bench) == "a is not isolated by quantwatch"


async def test_an_order_under_way_is_not_crossed_by_another(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        await bench.reload(settings("b"))
        bench.gateway.down = True
        await release(bench.watch, Word("a", "ada", "x"))
        assert await refusal(bench) == "an order for a is under way already"


async def test_of_two_people_who_release_at_once_one_is_refused(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        await bench.reload(settings("b"))
        both = (release(bench.watch, Word("a", author, "x")) for author in ("ada", "bob"))
        done = await asyncio.gather(*both, return_exceptions=True)
        await bench.settle()

        assert [type(one) for one in done] == [Heard, InputError]
        assert str(done[1]) == "an order for a is under way already"
        assert made(bench) == [("isolate", "http://a"), ("release", "http://a")]


@pytest.mark.parametrize("scope", ["all", "pool:chat", "target:a"])
async def test_a_pause_is_told_and_does_not_hold_a_person_back(tmp_path: Path, scope: str) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        await bench.reload(settings("b"))
        await bench.people.pause(scope, reason="rollout", author="bob", seconds=None)
        heard = await release(bench.watch, Word("a", "ada", "x"))
        assert heard.told == (f"bob paused {scope}: rollout",)
        await bench.settle()
        assert bench.board().target("a") is None


async def test_what_another_driver_isolated_is_not_released_by_hand_either(tmp_path: Path) -> None:
    async with watching(tmp_path) as bench:
        await isolated(bench)
        raw = with_driver("verdict")
        raw["pools"]["chat"]["mode"] = "observe"
        await bench.reload(raw)
        said = await refusal(bench)
        assert said == "a was isolated through webhook, and the configuration names verdict now"


async def test_what_cannot_be_written_down_is_not_released(tmp_path: Path) -> None:
    async with watching(tmp_path, options=IMPATIENT) as bench:
        await isolated(bench)
        await bench.reload(settings(pool={"mode": "observe"}))
        lock = bench.lock()
        with pytest.raises(StoreError):
            await release(bench.watch, Word("a", "ada", "x"))
        lock.close()
        await bench.settle()

        assert bench.routing() is Routing.OUT
        assert [one for one, _ in made(bench)] == ["isolate"]


async def test_while_the_daemon_starts_nothing_can_be_released() -> None:
    async def reload() -> Reloaded:
        raise AssertionError("nobody asked for it")

    with pytest.raises(InputError, match="still starting"):
        await Desk(reload).release(Word("a", "ada", "x"))
