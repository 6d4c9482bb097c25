"""How the release gate's load is sent: what alternates, how much is in flight, and when it stops."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantwatch.flow.acceptance import Footprint, Memory, Timed
from quantwatch.flows.load_test import FAILURES, Ids, LoadPlan, Side, blocks, load_test, turned
from support.builders import FakeClock


@dataclass(slots=True)
class Scripted:
    """A node that answers as it is told and keeps a common log. errors: kinds in turn, None for a whole answer."""

    name: str
    log: list[tuple[str, Ids]]
    errors: list[str | None] = field(default_factory=list)
    calms: list[bool] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    in_flight: int = 0
    most: int = 0
    model: str = ""
    clock: FakeClock | None = None

    async def calm(self) -> bool:
        return self.calms.pop(0) if self.calms else True

    async def complete(self, ids: Sequence[int]) -> Timed:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.in_flight -= 1
        self.log.append((self.name, tuple(ids)))
        if self.clock is not None:
            self.clock.time += 1
        return Timed(0.1, self.errors.pop(0) if self.errors else None)

    async def footprint(self) -> Footprint:
        return Footprint(self.sizes.pop(0) if len(self.sizes) > 1 else next(iter(self.sizes), None), 1000)


def request(number: int) -> Ids:
    return (number,)


async def loaded(
    *scripted: Scripted, requests: int = 40, concurrency: int = 2, limit: float = 1e9, clock: FakeClock | None = None
) -> list[Side]:
    sides = [Side(one.name, one) for one in scripted]
    await load_test(sides, request, LoadPlan(requests, concurrency, limit), clock=clock or FakeClock())
    return sides


async def test_both_nodes_get_the_same_requests_each_once() -> None:
    log: list[tuple[str, Ids]] = []
    await loaded(Scripted("a", log), Scripted("b", log))
    for name in "ab":
        numbers = [ids[0] for who, ids in log if who == name and ids[0] >= 0]
        assert sorted(numbers) == list(range(40))


async def test_blocks_alternate_and_the_order_turns_round() -> None:
    log: list[tuple[str, Ids]] = []
    await loaded(Scripted("a", log), Scripted("b", log))
    counted = [who for who, ids in log if ids[0] >= 0]
    assert "".join(counted[::8]) == "abbaabbaab"
    assert all(len(set(counted[i : i + 8])) == 1 for i in range(0, 80, 8))


async def test_as_many_requests_are_in_flight_as_agreed() -> None:
    first, second = Scripted("a", []), Scripted("b", [])
    await loaded(first, second, requests=60, concurrency=5)
    assert (first.most, second.most) == (5, 5)


async def test_the_warm_up_is_not_counted() -> None:
    log: list[tuple[str, Ids]] = []
    (side,) = await loaded(Scripted("a", log, errors=["failed"] * 3), requests=12, concurrency=3)
    assert [ids[0] for _, ids in log[:3]] == [-1, -2, -3]
    assert len(side.samples) == 12
    assert all(one.error is None for one in side.samples)


async def test_a_node_that_fails_and_fails_gets_no_more() -> None:
    log: list[tuple[str, Ids]] = []
    dead, well = Scripted("a", log, errors=[None, None, *["unreachable"] * 99]), Scripted("b", log)
    a, b = await loaded(dead, well)
    assert a.stopped is not None
    assert f"{FAILURES} requests in a row failed (unreachable)" in a.stopped
    assert FAILURES <= len(a.samples) <= FAILURES + 1
    assert len(b.samples) == 40


async def test_failures_between_whole_answers_stop_nothing() -> None:
    (side,) = await loaded(Scripted("a", [], errors=[None, None, *(["failed", None] * 20)]))
    assert side.stopped is None
    assert len(side.samples) == 40


async def test_a_node_that_is_busy_with_its_users_gets_no_more() -> None:
    (side,) = await loaded(Scripted("a", [], calms=[True, True, False]))
    assert side.stopped is not None
    assert "busy with its users" in side.stopped
    assert len(side.samples) == 16


async def test_no_block_begins_after_the_time_limit() -> None:
    clock = FakeClock()
    (side,) = await loaded(Scripted("a", [], clock=clock), limit=11.0, clock=clock)
    assert side.stopped == "load.time_limit (11 s) ran out"
    assert len(side.samples) == 16, "2 of the warm-up and one block are over at 10, the next at 18"


async def test_memory_is_looked_at_before_during_and_after() -> None:
    (side,) = await loaded(Scripted("a", [], sizes=[100.0, 900.0, 300.0, 250.0]))
    assert side.memory == Memory(before=100.0, peak=900.0, after=250.0, kv_tokens=1000)


async def test_a_node_that_does_not_tell_its_memory_has_none() -> None:
    (side,) = await loaded(Scripted("a", []))
    assert side.memory == Memory(kv_tokens=1000)


@given(st.integers(1, 5000), st.integers(1, 100))
def test_blocks_cover_every_request_once_in_order(requests: int, concurrency: int) -> None:
    plan = LoadPlan(requests, concurrency, 1.0)
    assert [number for block in blocks(plan) for number in block] == list(range(requests))
    assert len(blocks(plan)) <= 10
    assert all(len(block) >= 4 * concurrency for block in blocks(plan)[:-1])


PROMPTS = [(1, 2, 3, 4), (5, 6, 7), (8,)]


def test_a_prompt_is_turned_another_time_each_time_round() -> None:
    sent = [turned(PROMPTS, number, prefix_cache=False) for number in range(0, 9, 3)]
    assert sent == [(2, 3, 4, 1), (3, 4, 1, 2), (4, 1, 2, 3)]
    assert turned(PROMPTS, 2, prefix_cache=False) == (8,)


def test_with_the_prefix_cache_prompts_go_as_they_are() -> None:
    assert [turned(PROMPTS, number, prefix_cache=True) for number in (0, 3)] == [(1, 2, 3, 4)] * 2


@pytest.mark.parametrize("number", [-1, -4, 0, 17])
def test_the_warm_up_sends_prompts_too(number: int) -> None:
    assert sorted(turned(PROMPTS, number, prefix_cache=False)) == sorted(PROMPTS[number % 3])
