"""Windows of the configuration hold as pauses that people make, and nobody keeps or ends them."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from quantwatch.errors import InputError
from quantwatch.flow.decision import Brake, PoolMode
from quantwatch.flow.state import Pause, Routing
from quantwatch.flow.word import Word
from quantwatch.flows.approve import approve
from quantwatch.flows.release import release
from quantwatch.flows.words import isolate
from support.gateway import Gateway
from support.watching import EVERY, Bench, HandClock, restarted, settings, watching

BAD = 1.0
START = datetime(2026, 1, 1, tzinfo=UTC)
"""When the clock of a watch begins."""


def window(**given: Any) -> dict[str, Any]:
    """A window that opens at the second round and is open for half an hour."""
    whole: dict[str, Any] = {"name": "nightly", "cron": "15 0 1 1 *", "duration": "30m", "reason": "new kernels"}
    return {key: value for key, value in (whole | given).items() if value is not None}


def held(*windows: dict[str, Any], **given: Any) -> dict[str, Any]:
    return settings(windows=list(windows or (window(),)), **given)


async def goes_bad_in_the_window(bench: Bench) -> None:
    await bench.rounds(1)
    await bench.advance(EVERY / 2)
    restarted(bench.nodes["a"], damage=BAD)
    await bench.rounds(1)


async def test_nothing_acts_in_a_window_the_brake_names_it_and_afterwards_it_acts(tmp_path: Path) -> None:
    async with watching(tmp_path, held()) as bench:
        await goes_bad_in_the_window(bench)
        assert bench.gateway.calls == []
        (objection,) = bench.decisions()[-1].objections
        assert objection == {"brake": Brake.PAUSED, "reason": "window nightly paused all: new kernels"}
        await bench.rounds(2)
        assert bench.routing() is Routing.OUT


@pytest.mark.parametrize("scope", ["pool:chat", "target:a"])
async def test_a_window_has_its_scope(tmp_path: Path, scope: str) -> None:
    async with watching(tmp_path, held(window(scope=scope))) as bench:
        await goes_bad_in_the_window(bench)
        assert bench.gateway.calls == []


async def test_a_window_of_another_target_holds_nothing(tmp_path: Path) -> None:
    async with watching(tmp_path, held(window(scope="target:b"))) as bench:
        await goes_bad_in_the_window(bench)
        assert bench.routing() is Routing.OUT


async def test_a_window_is_shown_while_it_is_open_and_is_in_no_store(tmp_path: Path) -> None:
    async with watching(tmp_path, held(window(scope="target:a"))) as bench:
        await bench.rounds(1)
        assert bench.board().pauses == ()
        assert await bench.series("paused", scope="target:a") == 0
        await bench.advance(EVERY)
        (shown,) = bench.board().pauses
        since, until = START.replace(minute=15), START.replace(minute=45)
        assert shown == Pause("window:nightly", "target:a", "new kernels", "window nightly", since, until)
        assert await bench.series("paused", scope="target:a") == 1
        page = (await bench.get("/")).text
        assert "Paused (target:a) by window nightly until 2026-01-01T00:45:00+00:00: new kernels" in page
        assert await bench.keeper.write(lambda store: store.pauses(bench.clock.now())) == []
        await bench.advance(3 * EVERY)
        assert bench.board().pauses == ()


async def test_nobody_ends_a_window(tmp_path: Path) -> None:
    async with watching(tmp_path, held()) as bench:
        await bench.advance(2 * EVERY)
        with pytest.raises(InputError, match="nightly is a window of the configuration"):
            await bench.people.resume("window:nightly", author="ada")
        assert len(bench.board().pauses) == 1


async def test_a_person_releases_in_a_window_and_is_told_of_it(tmp_path: Path) -> None:
    async with watching(tmp_path, held(window(cron="25 0 1 1 *"))) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert bench.routing() is Routing.OUT
        await bench.reload(held(window(cron="25 0 1 1 *"), pool={"mode": PoolMode.OBSERVE}))
        await bench.advance(EVERY)
        heard = await release(bench.watch, Word("a", "ada", "mended"))
        await bench.settle()
        assert "window nightly paused all: new kernels; it closes by itself" in heard.told
        assert bench.routing() is Routing.IN


async def test_a_person_isolates_in_a_window_and_what_they_ordered_is_not_withdrawn(tmp_path: Path) -> None:
    async with watching(tmp_path, held()) as bench:
        await bench.rounds(1)
        bench.wire.down.add("gateway")
        await isolate(bench.watch, Word("a", "ada", "burns the lab down"))
        await bench.settle()
        await bench.advance(EVERY)
        assert [one.author for one in bench.board().pauses] == ["window nightly"]
        assert bench.routing() is Routing.LEAVING
        bench.wire.down.clear()
        await bench.advance(300)
        assert bench.routing() is Routing.OUT


async def test_nothing_is_approved_in_a_window_and_the_proposal_stays_open(tmp_path: Path) -> None:
    async with watching(tmp_path, held(window(cron="25 0 1 1 *"), pool={"mode": PoolMode.APPROVE})) as bench:
        await bench.rounds(1)
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        (waits,) = bench.board().proposals
        await bench.advance(EVERY)
        with pytest.raises(InputError, match="stays open: window nightly paused all: new kernels"):
            await approve(bench.watch, waits.decision, author="ada")
        assert bench.board().proposals == (waits,)
        assert bench.gateway.calls == []


async def test_a_reload_brings_and_takes_windows(tmp_path: Path) -> None:
    async with watching(tmp_path, settings()) as bench:
        await bench.advance(2 * EVERY)
        await bench.reload(held())
        assert [one.id for one in bench.board().pauses] == ["window:nightly"]
        await bench.reload(held(window(name="other")))
        assert [one.id for one in bench.board().pauses] == ["window:other"]
        await bench.reload(settings())
        assert bench.board().pauses == ()


async def test_windows_may_overlap_each_other_and_a_pause(tmp_path: Path) -> None:
    late = window(name="late", cron="30 0 1 1 *", scope="pool:chat")
    async with watching(tmp_path, held(window(), late)) as bench:
        await bench.people.pause("all", reason="looking", author="ada", seconds=3 * EVERY)
        found = {}
        for minutes in (10, 20, 35, 50, 70):
            await bench.advance(minutes * 60 - bench.clock.time)
            found[minutes] = [one.author for one in bench.board().pauses]
        assert found == {
            10: ["ada"],
            20: ["ada", "window nightly"],
            35: ["window nightly", "window late"],
            50: ["window late"],
            70: [],
        }


async def test_a_rollout_window_makes_another_baseline_no_alarm(tmp_path: Path) -> None:
    async with watching(tmp_path, held(window(kind="rollout"))) as bench:
        await bench.rounds(1)
        await bench.advance(EVERY / 2)
        bench.baseline.model.damage = BAD
        await bench.rounds(1)
        said = bench.runs("a")[-1].reason
        assert "expected rollout by window nightly until 2026-01-01 00:45 UTC" in said
        await bench.rounds(3)
        assert "expected rollout" not in bench.runs("a")[-1].reason


async def test_an_order_under_way_is_withdrawn_when_a_window_opens(tmp_path: Path) -> None:
    async with watching(tmp_path, held(window(cron="21 0 1 1 *"))) as bench:
        await bench.rounds(1)
        bench.gateway.down = True
        bench.wire.down.add("gateway")
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert bench.routing() is Routing.LEAVING
        await bench.advance(300)
        assert bench.routing() is Routing.IN
        settled = bench.decisions()[0].intent
        assert settled is not None
        assert settled.outcome is not None
        assert "window nightly paused all" in settled.outcome.detail


async def test_an_order_of_an_earlier_life_is_not_sent_in_a_window(tmp_path: Path) -> None:
    clock, gateway = HandClock(), Gateway()
    async with watching(tmp_path, settings(), clock=clock, gateway=gateway) as bench:
        await bench.rounds(1)
        bench.wire.down.add("gateway")
        restarted(bench.nodes["a"], damage=BAD)
        await bench.rounds(1)
        assert bench.routing() is Routing.LEAVING
        nodes = bench.nodes
    async with watching(tmp_path, held(), clock=clock, gateway=gateway, nodes=nodes) as bench:
        await bench.settle()
        assert gateway.calls == []
        assert bench.routing() is Routing.CONTRADICTED  # an earlier call may have arrived
