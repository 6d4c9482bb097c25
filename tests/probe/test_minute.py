"""Tokens a minute: a sliding window a server, shared by everything that asks it."""

import asyncio
from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantwatch.errors import NodeBusy, OverBudget
from quantwatch.flow.prompt import ProbeMode
from quantwatch.probe.account import WINDOW_SECONDS, Account, Accounts
from quantwatch.probe.budget import Budget, Gate, Told
from quantwatch.probe.contract import Ask
from support.builders import SEQUENCE, FakeClock, answering, doing, link, prober
from support.tiny_node import TinyNode

CALM = b"vllm:num_requests_waiting 0\n"
BUSY = b"vllm:num_requests_waiting 3\n"
MINUTE = Budget(tokens_per_minute=100)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def sent(gate: Gate, *tokens: int) -> None:
    for count in tokens:
        async with gate.turn(count):
            pass


async def test_what_fits_into_the_minute_does_not_wait(clock: FakeClock) -> None:
    async with link(answering(200, CALM)) as node:
        await sent(Gate(node, MINUTE, clock), 60, 40)

    assert clock.waits == []


async def test_what_does_not_fit_waits_until_enough_of_the_minute_is_over(clock: FakeClock) -> None:
    async with link(answering(200, CALM)) as node:
        gate = Gate(node, MINUTE, clock)
        await sent(gate, 30, 30)
        clock.time = 10.0
        await sent(gate, 40, 31)

    assert clock.time == pytest.approx(WINDOW_SECONDS)


async def test_a_request_over_the_whole_minute_is_refused_at_once(clock: FakeClock) -> None:
    async with link(answering(200, CALM)) as node:
        with pytest.raises(
            OverBudget, match=r"101 tokens is over the budget of 100 tokens a minute.*tokens_per_minute"
        ):
            await sent(Gate(node, MINUTE, clock), 101)
        await sent(Gate(node, MINUTE, clock), 100)

    assert clock.waits == []


async def test_waiting_for_tokens_costs_no_patience(clock: FakeClock) -> None:
    """The node is busy until the wait for tokens is over and twenty seconds longer; thirty are allowed."""

    def load(request: httpx.Request) -> httpx.Response:
        busy = 1 < clock.time < WINDOW_SECONDS + 20
        return httpx.Response(200, content=BUSY if busy else CALM, request=request)

    async with link(doing(load)) as node:
        await sent(Gate(node, MINUTE, clock), 100, 100)

    assert WINDOW_SECONDS + 20 <= clock.time < WINDOW_SECONDS + 30


async def test_a_request_that_a_busy_node_kept_back_costs_nothing(clock: FakeClock) -> None:
    account = Account()
    async with link(answering(200, BUSY)) as node:
        with pytest.raises(NodeBusy):
            await sent(Gate(node, MINUTE, clock, account=account), 100)
    waited = len(clock.waits)
    async with link(answering(200, CALM)) as node:
        await sent(Gate(node, MINUTE, clock, account=account), 100)

    assert len(clock.waits) == waited


async def test_a_request_that_fails_was_sent_and_counts(clock: FakeClock) -> None:
    spent: list[int] = []
    async with link(answering(200, CALM)) as node:
        gate = Gate(node, MINUTE, clock, told=Told(spent=spent.append))
        with pytest.raises(NodeBusy):
            async with gate.turn(100):
                raise NodeBusy("HTTP 429", node="n")
        await sent(gate, 1)

    assert spent == [100, 1]
    assert clock.time >= WINDOW_SECONDS


async def test_two_gates_of_one_account_share_the_minute(clock: FakeClock) -> None:
    """As after a reload: another gate, perhaps with another limit, and the same server."""
    accounts = Accounts()
    async with link(answering(200, CALM)) as node:
        await sent(Gate(node, MINUTE, clock, account=accounts.of(node.url)), 100)
        later = Gate(node, Budget(tokens_per_minute=150), clock, account=accounts.of(node.url))
        await sent(later, 50)
        assert clock.waits == []
        await sent(later, 50)

    assert clock.time == pytest.approx(WINDOW_SECONDS)


async def test_a_large_request_is_not_overtaken(clock: FakeClock) -> None:
    order: list[int] = []
    account = Account()

    async with link(answering(200, CALM)) as node:
        gates = [Gate(node, MINUTE, clock, account=account) for _ in range(3)]

        async def ask(gate: Gate, tokens: int) -> None:
            async with gate.turn(tokens):
                order.append(tokens)

        await sent(gates[0], 50)
        await asyncio.gather(ask(gates[0], 90), ask(gates[1], 10), ask(gates[2], 20))

    assert order == [90, 10, 20]


async def test_the_time_limit_of_a_run_ends_the_wait() -> None:
    class Standing(FakeClock):
        async def sleep(self, _: float) -> None:
            await asyncio.Event().wait()

    async with link(answering(200, CALM)) as node:
        gate = Gate(node, MINUTE, Standing())
        await sent(gate, 100)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await sent(gate, 1)
        assert not gate.account.queue.locked()


@given(st.lists(st.tuples(st.integers(1, 100), st.floats(0, 90)), max_size=40))
def test_no_minute_ever_holds_more_than_it_may(asked: list[tuple[int, float]]) -> None:
    clock, spent = FakeClock(), list[tuple[float, int]]()

    async def all_of_them() -> None:
        async with link(answering(200, CALM)) as node:
            gate = Gate(node, MINUTE, clock, told=Told(spent=lambda tokens: spent.append((clock.time, tokens))))
            for tokens, pause in asked:
                clock.time += pause
                await sent(gate, tokens)

    asyncio.run(all_of_them())

    assert len(spent) == len(asked)
    assert all(one <= after for (one, _), (after, _) in pairwise(spent))
    for start, _ in spent:
        assert sum(tokens for at, tokens in spent if start <= at < start + WINDOW_SECONDS - 1e-6) <= 100


ASKS = [
    (Ask(ProbeMode.PROMPT_SCORING, 5), 10 + 1),
    (Ask(ProbeMode.FIRST_TOKEN, 5, (4,)), 4 + 1),
    (Ask(ProbeMode.ONE_TOKEN, 5, (4, 6, 9)), (4 + 1) + (6 + 1) + (9 + 1)),
]


@pytest.mark.parametrize(("ask", "expected"), ASKS)
async def test_prompts_count_as_they_are_sent_and_so_does_what_is_asked_for(ask: Ask, expected: int) -> None:
    """Prefixes share their beginning in the node's cache, and count whole: the node's own counter does the same."""
    node, clock = TinyNode(), FakeClock()
    one = prober(httpx.ASGITransport(app=node.app()), clock=clock, budget=Budget(tokens_per_minute=expected))
    await one.distribution(SEQUENCE, ask)

    assert node.prompt_tokens + node.generated_tokens == expected
    assert clock.waits == []
    poor = prober(httpx.ASGITransport(app=node.app()), budget=Budget(tokens_per_minute=3))
    with pytest.raises(OverBudget):
        await poor.distribution(SEQUENCE, ask)


async def test_a_free_answer_counts_with_all_it_may_become() -> None:
    spent: list[int] = []
    node = TinyNode()
    async with link(httpx.ASGITransport(app=node.app())) as there:
        gate = Gate(there, Budget(), FakeClock(), told=Told(spent=spent.append))
        one = prober(httpx.ASGITransport(app=node.app()), gate=gate)
        await one.generate(SEQUENCE.ids, limit=7)

    assert spent == [17]


@given(st.lists(st.integers(1, 90), min_size=1, max_size=40), st.integers(1, 8))
def test_requests_of_several_prefixes_fit_into_a_minute(lengths: list[int], prefixes: int) -> None:
    budget = Budget(tokens_per_minute=100, prefixes=prefixes)
    for batch in budget.batches(lengths):
        budget.check_minute(sum(lengths[i] + 1 for i in batch), node="n")
