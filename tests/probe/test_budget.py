"""The probe budget: what is never sent, how requests are cut, and the load gate."""

import asyncio

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantwatch.errors import NodeBusy, OverBudget
from quantwatch.probe.budget import Budget, Gate
from quantwatch.probe.node_metrics import read_load
from support.builders import FakeClock, answering, doing, link
from support.recordings import metrics_page

BUDGET = Budget(scored_tokens=100, scored_entries=1500, prompt_tokens=200, prefixes=3)


@pytest.mark.parametrize(("tokens", "k", "fits"), [(100, 15, True), (101, 1, False), (100, 16, False), (75, 20, True)])
def test_scoring_is_capped_by_length_and_by_length_times_k(tokens: int, k: int, fits: bool) -> None:
    if fits:
        BUDGET.check_scoring(tokens, k, node="n")
        return
    with pytest.raises(OverBudget):
        BUDGET.check_scoring(tokens, k, node="n")


def test_concurrency_counts_into_the_cap() -> None:
    with pytest.raises(OverBudget, match="60 tokens x 2 in flight"):
        Budget(scored_tokens=100, in_flight=2).check_scoring(60, 1, node="n")


def test_a_prompt_over_the_budget_is_refused() -> None:
    with pytest.raises(OverBudget, match="201 tokens is over the budget of 200"):
        BUDGET.check_prompt(201, node="n")


def test_the_first_prefix_goes_alone_to_fill_the_prefix_cache() -> None:
    assert BUDGET.batches([10, 11, 12, 13, 14]) == [range(1), range(1, 4), range(4, 5)]


@given(st.lists(st.integers(1, 200), max_size=40))
def test_batches_hold_every_prompt_once_and_keep_within_the_budget(lengths: list[int]) -> None:
    batches = BUDGET.batches(lengths)

    assert [i for batch in batches for i in batch] == list(range(len(lengths)))
    assert all(1 <= len(batch) <= BUDGET.prefixes for batch in batches)
    assert all(sum(lengths[i] for i in batch) <= BUDGET.prompt_tokens for batch in batches)


def page(waiting: float = 0, kv: float = 0.0) -> bytes:
    return f"vllm:num_requests_waiting {waiting}\nvllm:kv_cache_usage_perc {kv}\n".encode()


async def test_a_calm_node_is_asked_at_once() -> None:
    clock = FakeClock()
    async with link(answering(200, page())) as node, Gate(node, BUDGET, clock).turn(1):
        pass

    assert clock.waits == []


@pytest.mark.parametrize("busy", [page(waiting=1), page(kv=0.95)])
async def test_a_busy_node_is_left_alone(busy: bytes) -> None:
    clock = FakeClock()
    async with link(answering(200, busy)) as node:
        with pytest.raises(NodeBusy, match="load gate"):
            async with Gate(node, BUDGET, clock).turn(1):
                pytest.fail("the gate let a request through")

    assert sum(clock.waits) >= BUDGET.patience_seconds


async def test_a_node_that_calms_down_is_asked_then() -> None:
    clock = FakeClock()

    def calmer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=page(waiting=0 if clock.time > 5 else 3), request=request)

    async with link(doing(calmer)) as node, Gate(node, BUDGET, clock).turn(1):
        pass

    assert clock.waits == [2.0, 2.0, 2.0]


async def test_a_look_at_the_load_holds_for_a_while() -> None:
    looks, clock = [], FakeClock()

    def count(request: httpx.Request) -> httpx.Response:
        looks.append(1)
        return httpx.Response(200, content=page(), request=request)

    async with link(doing(count)) as node:
        gate = Gate(node, BUDGET, clock)
        for _ in range(5):
            async with gate.turn(1):
                clock.time += 0.5
        assert len(looks) == 2


@pytest.mark.parametrize("answer", [answering(404), answering(200, b"<html>"), answering(200, b"other_metric 1\n")])
async def test_a_node_that_does_not_tell_its_load_is_asked_all_the_same(answer: httpx.MockTransport) -> None:
    async with link(answer) as node:
        gate = Gate(node, BUDGET, FakeClock())
        async with gate.turn(1):
            assert gate.blind


async def test_one_request_at_a_time() -> None:
    most = now = 0
    async with link(answering(200, page())) as node:
        gate = Gate(node, BUDGET, FakeClock())

        async def ask() -> None:
            nonlocal most, now
            async with gate.turn(1):
                now += 1
                most = max(most, now)
                await asyncio.sleep(0)
                now -= 1

        await asyncio.gather(*(ask() for _ in range(5)))

    assert most == 1


def test_a_recorded_metrics_page_is_read() -> None:
    load = read_load(metrics_page())

    assert load is not None
    assert (load.waiting, load.kv_usage) == (0, 0)
    assert load.started == pytest.approx(1.79596519432e9)
    assert (load.running, load.prompt_tokens, load.generated_tokens) == (0, 212, 17)


def test_several_engines_add_up_and_the_fullest_counts() -> None:
    lines = [f'vllm:num_requests_waiting{{engine="{i}"}} {i}' for i in range(3)]
    lines += [f'vllm:kv_cache_usage_perc{{engine="{i}"}} 0.{i}' for i in range(3)]

    load = read_load("\n".join(lines).encode())

    assert load is not None
    assert (load.waiting, load.kv_usage) == (3, 0.2)


def test_the_old_name_of_the_cache_gauge_is_known() -> None:
    load = read_load(b"vllm:num_requests_waiting 0\nvllm:gpu_cache_usage_perc 0.7\n")

    assert load is not None
    assert load.kv_usage == 0.7


def test_tokens_of_several_engines_add_up() -> None:
    names = ("prompt_tokens_total", "generation_tokens_total")
    lines = [f'vllm:{name}{{engine="{i}"}} {10 * i}' for i in range(3) for name in names]

    load = read_load("\n".join([*lines, "vllm:num_requests_waiting 0"]).encode())

    assert load is not None
    assert (load.prompt_tokens, load.generated_tokens, load.tokens) == (30, 30, 60)


@pytest.mark.parametrize("line", ["vllm:prompt_tokens_total NaN", "vllm:prompt_tokens_created 5", "other 3"])
def test_tokens_that_are_not_told_are_unknown(line: str) -> None:
    load = read_load(f"vllm:num_requests_waiting 0\nvllm:generation_tokens_total 5\n{line}\n".encode())

    assert load is not None
    assert (load.prompt_tokens, load.generated_tokens, load.tokens) == (None, 5, None)


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_a_process_start_that_is_no_time_is_unknown(value: str) -> None:
    load = read_load(f"process_start_time_seconds {value}\n".encode())

    assert load is not None
    assert load.started is None
