"""Every brake, from a run through the daemon to its count in `actions_suppressed_total` and its words on record."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from quantwatch.flow.decision import Action, Brake, Ruling, Wish
from quantwatch.flow.state import Routing
from quantwatch.flow.word import Word
from quantwatch.flows.case import Case
from quantwatch.flows.words import hold
from quantwatch.record.engine import Pragmas
from quantwatch.record.store import Options
from support.watching import Bench, node, restarted, settings, watching

IMPATIENT = Options(pragmas=Pragmas(busy_seconds=0.01))
Scene = Callable[[Bench], Awaitable[None]]


async def goes_bad(bench: Bench, *names: str) -> None:
    """Everything is measured and found sound, then these go bad."""
    await bench.rounds(1)
    for name in names or ("a",):
        restarted(bench.nodes[name], damage=1.0)
    await bench.rounds(1)
    await bench.advance(60)


async def all_go_bad(bench: Bench) -> None:
    """The second breach of each stands before the third of the first, which asks for an isolation."""
    await goes_bad(bench, "a", "b", "c")
    await bench.rounds(1)


async def one_after_the_other(bench: Bench) -> None:
    await goes_bad(bench, "a", "b")
    await bench.rounds(1)


async def bad_from_the_start(bench: Bench) -> None:
    """No clean run ever proved the baseline."""
    await bench.rounds(1, "a")
    await bench.advance(60)


async def under_a_pause(bench: Bench) -> None:
    await bench.people.pause("pool:chat", reason="upgrade", author="ada", seconds=None)
    await goes_bad(bench)


async def without_the_baseline_s_room(bench: Bench) -> None:
    bench.baseline.waiting = 5
    await goes_bad(bench)


async def while_the_spare_is_down(bench: Bench) -> None:
    await bench.rounds(1)
    bench.wire.down.add("spare")
    restarted(bench.nodes["a"], damage=1.0)
    await bench.round("a")


async def while_it_stands_in(bench: Bench) -> None:
    """The spare's own breach comes while it carries the traffic of a."""
    await goes_bad(bench, "a")
    assert bench.routing("a") is Routing.OUT
    restarted(bench.nodes["spare"], damage=1.0)
    await bench.rounds(1)


async def while_the_store_is_locked(bench: Bench) -> None:
    await bench.rounds(1)
    with contextlib.closing(bench.lock()):
        restarted(bench.nodes["a"], damage=1.0)
        await bench.rounds(1)


async def through_another_driver(bench: Bench) -> None:
    await goes_bad(bench)
    await bench.reload(settings() | {"gateway": {"driver": "verdict"}})
    restarted(bench.nodes["a"])
    await bench.rounds(3)


async def between_wish_and_ruling(bench: Bench) -> None:
    """A word that is heard after the wish; the lock leaves no such moment, so this rules on an old wish."""
    await bench.rounds(1)
    watchlist = bench.watch.watchlist
    wish = Wish(Action.ISOLATE, "a", "chat", "letters is degraded")
    await hold(bench.watch, Word("a", "ada", "under the microscope"))
    case = Case(wish, watchlist.targets["a"], watchlist.pools["chat"], watchlist)
    await bench.watch.turns.decider._rule(case, None)


def pool(*targets: str, **given: Any) -> dict[str, Any]:
    return settings(*targets, pool=given)


def spare(*targets: str, mode: str = "observe", **given: Any) -> dict[str, Any]:
    """A pool whose fallback is watched in a pool of its own."""
    raw = pool(*targets, fallback="spare", **given)
    raw["targets"] += [
        {"name": one, "url": f"http://{one}", "scheme": "int8", "pool": "spares"} for one in ("spare", "e")
    ]
    raw["pools"]["spares"] = {"mode": mode, "max_isolated": "50%"}
    return raw


FOUR = ("a", "b", "c", "d")
ROOM = {"patience": "0s", "max_waiting": 50}

SCENES: dict[Brake, tuple[dict[str, Any], Scene]] = {
    Brake.DRY_RUN: (pool(mode="dry_run"), goes_bad),
    Brake.AWAITING_APPROVAL: (pool(mode="approve"), goes_bad),
    Brake.CAP: (pool(max_isolated="49%"), goes_bad),
    Brake.LAST_BACKEND: (pool("a"), goes_bad),
    Brake.FALLBACK: (spare("a", "b"), while_the_spare_is_down),
    Brake.FALLBACK_OVERLOADED: (settings(pool={"fallback": "baseline"}, probe=ROOM), without_the_baseline_s_room),
    Brake.FALLBACK_IN_USE: (spare("a", "b", mode="enforce"), while_it_stands_in),
    Brake.STORM: (settings("a", "b", "c", task_set={"confirm_cycles": 3}), all_go_bad),
    Brake.YARDSTICK: (pool(), bad_from_the_start),
    Brake.RATE: (pool(*FOUR, max_isolated="75%", storm_share=1.0, actions_per_hour=1), one_after_the_other),
    Brake.PAUSED: (pool(), under_a_pause),
    Brake.HUMAN: (pool(), between_wish_and_ruling),
    Brake.STORE: (pool(), while_the_store_is_locked),
    Brake.DRIVER: (pool(), through_another_driver),
}


@contextlib.asynccontextmanager
async def scene(folder: Path, brake: Brake) -> AsyncIterator[Bench]:
    nodes = {"a": node(damage=1.0)} if brake is Brake.YARDSTICK else {}
    async with watching(folder, SCENES[brake][0], nodes=nodes, options=IMPATIENT) as bench:
        yield bench


def test_every_brake_has_a_scene() -> None:
    assert set(SCENES) == set(Brake)


@pytest.mark.parametrize("brake", Brake)
async def test_each_objection_is_counted_under_its_reason_and_told_in_words(tmp_path: Path, brake: Brake) -> None:
    async with scene(tmp_path, brake) as bench:
        assert await bench.series("actions_suppressed_total", reason=brake.value) == 0
        await SCENES[brake][1](bench)
        counted = await bench.series("actions_suppressed_total", reason=brake.value)
        assert counted >= 1
        if brake is Brake.STORE:
            return  # nothing can be written down then, so there is no record to look into
        told = [(made, one) for made in bench.decisions() for one in made.objections if one["brake"] == brake]
        assert told
        assert all(len(one["reason"].split()) >= 4 and made.ruling is not Ruling.ACT for made, one in told)
