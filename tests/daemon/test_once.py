"""One round without a daemon: looking keeps nothing, acting goes through the store as the daemon does."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from quantwatch.daemon.once import Once
from quantwatch.errors import InputError, StoreError
from quantwatch.flow.run import Trigger
from quantwatch.flow.verdict import Quality
from quantwatch.flows.plan import Progress
from quantwatch.record.archive import Archive
from quantwatch.record.care import check
from support.builders import FakeClock
from support.daemons import Site, inside, site, until
from support.gateway import Fault, Gateway, GatewayServer, served_gateway
from support.runs import node
from support.served import served
from support.tiny_node import TinyNode


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """A baseline, a sound node a, and a damaged node b."""
    with served(TinyNode()) as baseline, served(node()) as a, served(node(1.5)) as b:
        yield {"baseline": baseline, "a": a, "b": b}


@pytest.fixture
def gateway() -> Iterator[GatewayServer]:
    with served_gateway(Gateway()) as server:
        yield server


def place(folder: Path, urls: dict[str, str], gateway: GatewayServer | None = None, *names: str) -> Site:
    """A site with two targets; where a gateway is given, its pool may act."""
    where = site(folder, urls["baseline"], {name: urls[name] for name in names or ("a", "b")})
    if gateway is not None:
        where.content["pools"]["chat"] = {"mode": "enforce", "max_isolated": "50%"}
        where.content["gateway"] = {
            "driver": "webhook",
            "url": f"{gateway.url}/act",
            "state_url": f"{gateway.url}/state",
        }
    return where.write()


def once(where: Site, *, target: str | None = None, told: list[Progress] | None = None) -> Once:
    tell = told.append if told is not None else lambda _: None
    return Once(where.file, where.settings(), target, cache=where.cache, random=Random(3), tell=tell)


async def proven(where: Site) -> Site:
    """Let a clean run prove the baseline's answers, without which nothing acts."""
    await once(where, target="a").act()
    return where


async def test_a_look_tells_its_progress_and_what_every_target_is(tmp_path: Path, urls: dict[str, str]) -> None:
    told: list[Progress] = []
    one = once(place(tmp_path, urls), told=told)

    await one.look()

    found = {ran.record.target: ran.record.quality for ran in one.ran}
    assert found == {"a": Quality.OK, "b": Quality.DEGRADED}
    assert (told[0].done, told[-1].done, told[-1].total) == (0, 2, 2)
    assert not (tmp_path / "quantwatch.db").exists()


async def test_a_look_holds_the_baseline_against_the_answers_that_the_daemon_has_stored(
    tmp_path: Path, urls: dict[str, str]
) -> None:
    where = place(tmp_path, urls, None, "a")
    await once(where).act()
    before = where.store.read_bytes()
    one = once(where)

    await one.look()

    (ran,) = one.ran
    assert ran.check is not None
    assert ran.check.sound is True
    assert ran.check.drift == pytest.approx(0, abs=1e-9)
    assert where.store.read_bytes() == before


async def test_acting_confirms_a_breach_at_once_and_carries_it_out(
    tmp_path: Path, urls: dict[str, str], gateway: GatewayServer
) -> None:
    where = await proven(place(tmp_path, urls, gateway))
    one = once(where)

    await one.act()

    assert sorted(str(ran.record.trigger) for ran in one.ran) == ["confirm", "manual", "manual"]
    assert gateway.gateway.changes == [(urls["b"], True)]
    assert check(where.store, now=FakeClock().now()) == []


async def test_acting_again_does_not_isolate_again(
    tmp_path: Path, urls: dict[str, str], gateway: GatewayServer
) -> None:
    where = await proven(place(tmp_path, urls, gateway))
    await once(where).act()

    await once(where).act()

    assert len(gateway.gateway.calls) == 1


async def test_an_order_that_was_left_open_is_finished_under_its_old_id(
    tmp_path: Path, urls: dict[str, str], gateway: GatewayServer
) -> None:
    where = await proven(place(tmp_path, urls, gateway))
    gateway.gateway.always = Fault.HANGS_UNDONE
    first = asyncio.create_task(once(where).act())
    await until(lambda: gateway.gateway.calls)
    first.cancel()  # as Ctrl-C does
    with contextlib.suppress(asyncio.CancelledError):
        await first
    faults = check(where.store, now=FakeClock().now())
    gateway.gateway.always = None

    await once(where, target="a").act()

    assert faults == []
    assert gateway.gateway.changes == [(urls["b"], True)]
    assert len(gateway.gateway.ids) == 1


async def test_ctrl_c_while_it_runs_leaves_a_sound_store_and_no_half_run(tmp_path: Path, urls: dict[str, str]) -> None:
    seen: list[str] = []
    with served(node(delay=1.0, replace=seen.append)) as slow:
        where = place(tmp_path, {**urls, "slow": slow}, None, "slow")
        task = asyncio.create_task(once(where).act())
        await until(lambda: "/v1/completions" in seen)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    with Archive.open(where.store) as archive:
        assert archive.history(limit=None) == []
    assert check(where.store, now=FakeClock().now()) == []


async def test_acting_beside_a_daemon_is_refused(tmp_path: Path, urls: dict[str, str]) -> None:
    where = place(tmp_path, urls, None, "a")
    async with inside(where):
        with pytest.raises(StoreError, match="writes to this store already"):
            await once(where).act()


async def test_an_unknown_target_is_refused_before_anything_runs(tmp_path: Path, urls: dict[str, str]) -> None:
    one = once(place(tmp_path, urls), target="c")

    with pytest.raises(InputError, match="--target c: not in the configuration; known: a, b"):
        await one.look()

    assert one.ran == []


async def test_the_run_of_a_person_is_recorded_as_such(tmp_path: Path, urls: dict[str, str]) -> None:
    one = once(place(tmp_path, urls), target="a")

    await one.act()

    assert [ran.record.trigger for ran in one.ran] == [Trigger.MANUAL]
