"""One order against a gateway that behaves in every way it can: it ends, honestly, and with one decision id."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from starlette.responses import Response

from quantwatch.act.carry_out import LONGEST_WAIT, LOOKS, NOES, Attempt, carry_out
from quantwatch.act.contract import Driver
from quantwatch.act.dry_run import DryRun
from quantwatch.act.verdict import VerdictDriver
from quantwatch.act.webhook import WebhookDriver
from quantwatch.errors import StoreError
from quantwatch.flow.decision import DONE, Action, Intent, Outcome, Result
from quantwatch.net import Endpoint, Link
from support.builders import QUICK, FakeClock
from support.gateway import Fault, Gateway, MemoryLedger, order

NODE = order().node
HOUR = 3600.0
Wanted = Callable[[], str | None]


@dataclass
class Bench:
    """Everything that one order needs; the gateway queues on the same clock."""

    gateway: Gateway = field(default_factory=Gateway)
    clock: FakeClock = field(default_factory=FakeClock)
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    told: list[Attempt] = field(default_factory=list)
    reads: bool = True
    wanted: Wanted = lambda: None
    give_up: float = 2 * HOUR
    chance: float = 0.0
    key: str | None = None

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[WebhookDriver]:
        self.gateway.seconds = self.clock.monotonic

        def link(path: str) -> Link:
            endpoint = Endpoint("gateway", f"http://gateway/{path}", self.key)
            return Link(endpoint, QUICK, transport=self.gateway.transport())

        async with link("act") as act, link("state") as state:
            yield WebhookDriver(act, state=state if self.reads else None, clock=self.clock, signing_secret=self.key)

    async def run(
        self, action: Action = Action.ISOLATE, *, attempts: int = 0, age: float = 0.0, driver: Driver | None = None
    ) -> Outcome:
        self.ledger.attempts = attempts
        intent = Intent(order(action), self.clock.now() - timedelta(seconds=age), attempts)
        async with self.driver() as webhook:
            return await carry_out(
                intent,
                driver or webhook,
                self.ledger,
                self.clock,
                give_up_seconds=self.give_up,
                wanted=self.wanted,
                tell=self.told.append,
                chance=lambda: self.chance,
            )


def wanted_for(calls: int, why: str = "a person forces it in") -> Wanted:
    """Wanted that many times, and then no longer."""
    left = [None] * calls
    return lambda: left.pop() if left else why


async def test_an_order_is_written_down_sent_read_back_and_settled() -> None:
    bench = Bench()
    outcome = await bench.run()

    assert outcome.result is Result.VERIFIED
    assert outcome.detail == "gateway answered 200, and its state says isolated"
    assert (outcome.attempts, outcome.doubt) == (1, False)
    assert bench.ledger.settled == [(order().decision, outcome)]
    assert bench.gateway.changes == [(NODE, True)]
    assert bench.told == [Attempt("webhook", Action.ISOLATE, 0.0, None)]


async def test_a_release_is_carried_out_alike() -> None:
    bench = Bench()
    bench.gateway.isolated[NODE] = True

    assert (await bench.run(Action.RELEASE)).result is Result.VERIFIED
    assert bench.gateway.changes == [(NODE, False)]


async def test_a_yes_that_cannot_be_read_back_is_accepted_only() -> None:
    bench = Bench(reads=False)
    outcome = await bench.run()

    assert (outcome.result, outcome.doubt) == (Result.ACCEPTED, False)
    assert "cannot be read back" in outcome.detail
    assert bench.gateway.looks == 0


@pytest.mark.parametrize("delay", [0.5, 3.0, 14.0])
async def test_a_gateway_that_queues_is_given_time(delay: float) -> None:
    bench = Bench(Gateway(faults=[Fault.QUEUED], delay=delay))

    assert (await bench.run()).result is Result.VERIFIED
    assert len(bench.gateway.calls) == 1


async def test_a_yes_that_does_nothing_is_contradicted() -> None:
    bench = Bench(Gateway(always=Fault.YES_AND_NOTHING))
    outcome = await bench.run()

    assert (outcome.result, outcome.doubt) == (Result.CONTRADICTED, True)
    assert outcome.detail == "gateway answered 200, but its state says routable"
    assert (len(bench.gateway.calls), bench.gateway.looks) == (1, NOES)


async def test_a_yes_whose_state_stays_unreadable_is_never_success() -> None:
    bench = Bench(Gateway(state_reply=lambda: Response(status_code=404)))
    outcome = await bench.run()

    assert outcome.result not in DONE
    assert (outcome.result, outcome.doubt) == (Result.FAILED, True)
    assert "could not be read" in outcome.detail
    assert (len(bench.gateway.calls), bench.gateway.looks) == (1, len(LOOKS) + 1)


async def test_a_state_that_becomes_readable_counts() -> None:
    replies = [Response(status_code=503)] * 6
    bench = Bench()

    def state() -> Response:
        if len(replies) == 1:
            bench.gateway.state_reply = None
        return replies.pop()

    bench.gateway.state_reply = state

    assert (await bench.run()).result is Result.VERIFIED


async def test_a_refusal_is_final() -> None:
    bench = Bench(Gateway(always=Fault.REFUSED))
    outcome = await bench.run()

    assert (outcome.result, outcome.attempts, outcome.doubt) == (Result.REFUSED, 1, False)
    assert outcome.detail == "gateway answered 403. Look at gateway.api_key and gateway.signing_secret"
    assert bench.told[0].failure == outcome.detail
    assert bench.clock.waits == []


UNDONE = [Fault.ERROR_UNDONE, Fault.HANGS_UNDONE, Fault.BUSY]
DONE_SILENTLY = [Fault.ERROR_DONE, Fault.HANGS_DONE, Fault.CUT_DONE]


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("fault", UNDONE)
async def test_an_order_that_got_no_answer_is_sent_again_under_its_id(fault: Fault, reads: bool) -> None:
    bench = Bench(Gateway(faults=[fault] * 3), reads=reads)
    outcome = await bench.run()

    assert outcome.result is (Result.VERIFIED if reads else Result.ACCEPTED)
    assert outcome.attempts == len(bench.gateway.calls) == 4
    assert bench.gateway.ids == {order().decision}
    assert bench.gateway.changes == [(NODE, True)]
    assert [one.failure is None for one in bench.told] == [False, False, False, True]


@pytest.mark.parametrize("fault", DONE_SILENTLY)
async def test_an_order_that_was_done_silently_is_not_sent_again_where_it_can_be_read_back(fault: Fault) -> None:
    bench = Bench(Gateway(always=fault))
    outcome = await bench.run()

    assert (outcome.result, outcome.attempts) == (Result.VERIFIED, 1)
    assert outcome.detail == "an earlier call took effect: the gateway says isolated"
    assert len(bench.gateway.calls) == 1


@pytest.mark.parametrize("fault", DONE_SILENTLY)
async def test_an_order_that_was_done_silently_is_repeated_under_its_id_otherwise(fault: Fault) -> None:
    bench = Bench(Gateway(faults=[fault]), reads=False)
    outcome = await bench.run()

    assert (outcome.result, outcome.attempts) == (Result.ACCEPTED, 2)
    assert bench.gateway.ids == {order().decision}
    assert bench.gateway.changes == [(NODE, True)]


async def test_a_refused_repeat_is_read_back_first() -> None:
    """A gateway may refuse what it has done already."""
    bench = Bench(Gateway(faults=[Fault.ERROR_DONE, Fault.REFUSED], state_reply=lambda: Response(status_code=503)))

    def readable_after_the_first_call() -> None:
        if bench.gateway.calls:
            bench.gateway.state_reply = None

    bench.wanted = readable_after_the_first_call
    outcome = await bench.run()

    assert (outcome.result, outcome.attempts) == (Result.VERIFIED, 2)
    assert "took effect" in outcome.detail


async def test_a_refused_repeat_that_cannot_be_read_back_leaves_a_doubt() -> None:
    bench = Bench(Gateway(faults=[Fault.ERROR_DONE, Fault.REFUSED]), reads=False)
    outcome = await bench.run()

    assert (outcome.result, outcome.doubt) == (Result.REFUSED, True)
    assert outcome.detail.endswith("an earlier call may have taken effect all the same")


@pytest.mark.parametrize("reads", [True, False])
async def test_waits_double_up_to_a_minute(reads: bool) -> None:
    bench = Bench(Gateway(down=True), reads=reads, give_up=300)
    await bench.run()

    assert bench.clock.waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_chance_lengthens_a_wait_by_a_quarter_at_most() -> None:
    bench = Bench(Gateway(faults=[Fault.ERROR_UNDONE] * 2), chance=1.0, reads=False)
    await bench.run()

    assert bench.clock.waits == [1.25, 2.5]


@pytest.mark.parametrize(("asked", "wait"), [("7", 7), ("0", 1), ("86400", LONGEST_WAIT), ("soon", 1), (None, 1)])
async def test_the_gateway_is_asked_again_when_it_wants_to_be_within_a_minute(asked: str | None, wait: float) -> None:
    bench = Bench(Gateway(faults=[Fault.BUSY], retry_after=asked))
    await bench.run()

    assert bench.clock.waits == [wait]


@pytest.mark.parametrize("reads", [True, False])
async def test_an_hour_without_a_gateway_ends_with_one_id_and_few_calls(reads: bool) -> None:
    bench = Bench(Gateway(down=True), reads=reads, chance=0.5)

    def back_after_an_hour() -> None:
        bench.gateway.down = bench.clock.time < HOUR

    bench.wanted = back_after_an_hour
    outcome = await bench.run()

    assert outcome.result is (Result.VERIFIED if reads else Result.ACCEPTED)
    assert HOUR <= bench.clock.time <= HOUR + 1.25 * LONGEST_WAIT
    assert outcome.attempts == len(bench.told) <= 6 + HOUR / LONGEST_WAIT
    assert (len(bench.gateway.calls), bench.gateway.ids) == (1, {order().decision})
    assert bench.gateway.changes == [(NODE, True)]


async def test_a_gateway_that_stays_away_is_given_up_and_nothing_is_in_doubt() -> None:
    bench = Bench(Gateway(down=True), give_up=HOUR)
    outcome = await bench.run()

    assert (outcome.result, outcome.doubt) == (Result.FAILED, False)
    assert outcome.detail.startswith(f"given up after {outcome.attempts} calls: gateway: cannot connect")
    assert bench.clock.time <= HOUR
    assert outcome.attempts <= 6 + HOUR / LONGEST_WAIT


@pytest.mark.parametrize("fault", [Fault.ERROR_UNDONE, Fault.HANGS_UNDONE, Fault.ERROR_DONE])
async def test_calls_that_may_have_arrived_leave_a_doubt_when_given_up(fault: Fault) -> None:
    bench = Bench(Gateway(always=fault), reads=False, give_up=HOUR)
    outcome = await bench.run()

    assert (outcome.result, outcome.doubt) == (Result.FAILED, True)
    assert outcome.detail.endswith("an earlier call may have taken effect all the same")
    assert bench.gateway.ids == {order().decision}


async def test_time_before_a_restart_counts() -> None:
    bench = Bench(Gateway(down=True), give_up=HOUR)
    outcome = await bench.run(age=HOUR - 10, attempts=60)

    assert outcome.result is Result.FAILED
    assert bench.clock.time <= 10
    assert 61 <= outcome.attempts <= 64


async def test_an_order_whose_time_is_over_is_not_sent() -> None:
    bench = Bench()
    outcome = await bench.run(age=3 * HOUR)

    assert (outcome.result, outcome.attempts, outcome.doubt) == (Result.FAILED, 0, False)
    assert bench.gateway.calls == []


async def test_a_wall_clock_that_was_set_back_gives_no_extra_time() -> None:
    bench = Bench(Gateway(down=True), give_up=HOUR)
    await bench.run(age=-5 * HOUR)

    assert bench.clock.time <= HOUR


async def test_what_is_no_longer_wanted_is_not_sent() -> None:
    bench = Bench(wanted=wanted_for(0))
    outcome = await bench.run()

    assert (outcome.result, outcome.attempts, outcome.doubt) == (Result.WITHDRAWN, 0, False)
    assert outcome.detail == "no longer wanted: a person forces it in; nothing was done"
    assert bench.gateway.calls == []


@pytest.mark.parametrize("reads", [True, False])
async def test_what_certainly_never_arrived_is_withdrawn(reads: bool) -> None:
    bench = Bench(Gateway(down=True), reads=reads, wanted=wanted_for(3))
    outcome = await bench.run()

    assert (outcome.result, outcome.attempts, outcome.doubt) == (Result.WITHDRAWN, 3, False)


@pytest.mark.parametrize("fault", [Fault.ERROR_UNDONE, *DONE_SILENTLY])
async def test_what_may_have_arrived_is_not_withdrawn_but_in_doubt(fault: Fault) -> None:
    bench = Bench(Gateway(always=fault), reads=False, wanted=wanted_for(1))
    outcome = await bench.run()

    assert (outcome.result, outcome.attempts, outcome.doubt) == (Result.FAILED, 1, True)
    assert outcome.detail == (
        "no longer wanted: a person forces it in; an earlier call may have taken effect all the same"
    )


async def test_a_doubt_is_not_cleared_by_a_later_call_that_never_arrived() -> None:
    bench = Bench(Gateway(faults=[Fault.ERROR_DONE]), reads=False)

    def down_after_the_first_call() -> str | None:
        bench.gateway.down = bool(bench.gateway.calls)
        return "a person forces it in" if len(bench.told) == 2 else None

    bench.wanted = down_after_the_first_call
    outcome = await bench.run()

    assert (outcome.result, outcome.attempts, outcome.doubt) == (Result.FAILED, 2, True)


@pytest.mark.parametrize("fault", DONE_SILENTLY)
async def test_what_did_arrive_is_told_as_done_though_no_longer_wanted(fault: Fault) -> None:
    """Only then does the record say that the node is out, and a release can follow."""
    bench = Bench(Gateway(always=fault), wanted=wanted_for(1))

    assert (await bench.run()).result is Result.VERIFIED


async def test_nothing_is_sent_that_cannot_be_written_down() -> None:
    bench = Bench(ledger=MemoryLedger(begin_fails=3), reads=False)
    outcome = await bench.run()

    assert (outcome.result, outcome.attempts) == (Result.ACCEPTED, 1)
    assert bench.clock.waits == [1, 2, 4]


async def test_a_store_that_stays_full_sends_nothing_and_leaves_no_doubt() -> None:
    bench = Bench(ledger=MemoryLedger(begin_fails=10_000), give_up=HOUR)
    outcome = await bench.run()

    assert (outcome.result, outcome.attempts, outcome.doubt) == (Result.FAILED, 0, False)
    assert "nothing was sent" in outcome.detail
    assert bench.gateway.calls == []


async def test_an_outcome_is_written_when_the_store_is_back() -> None:
    bench = Bench(ledger=MemoryLedger(settle_fails=5))
    outcome = await bench.run()

    assert bench.ledger.settled == [(order().decision, outcome)]
    assert len(bench.gateway.calls) == 1


async def test_an_outcome_that_cannot_be_written_leaves_the_order_open() -> None:
    bench = Bench(ledger=MemoryLedger(settle_fails=10_000))
    with pytest.raises(StoreError):
        await bench.run()

    assert len(bench.gateway.calls) == 1
    assert bench.ledger.settled == []


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize(("attempts", "arrived"), [(0, False), (1, False), (1, True)])
async def test_after_a_crash_there_are_two_calls_at_most_one_id_and_one_change(
    attempts: int, reads: bool, arrived: bool
) -> None:
    """The first life began `attempts` calls and died; whether the call arrived, the second cannot know."""
    bench = Bench(reads=reads)
    if arrived:
        async with bench.driver() as first_life:
            await first_life.call(order())
    outcome = await bench.run(attempts=attempts, age=5)

    assert outcome.result is (Result.VERIFIED if reads else Result.ACCEPTED)
    assert len(bench.gateway.calls) <= 2
    assert len(bench.gateway.calls) == 1 or not reads
    assert bench.gateway.ids == {order().decision}
    assert bench.gateway.changes == [(NODE, True)]
    assert bench.ledger.settled == [(order().decision, outcome)]


@pytest.mark.parametrize("reads", [True, False])
async def test_after_a_crash_what_is_no_longer_wanted_is_in_doubt(reads: bool) -> None:
    bench = Bench(reads=reads, wanted=wanted_for(0))
    outcome = await bench.run(attempts=1)

    assert (outcome.result, outcome.doubt, outcome.attempts) == (Result.FAILED, True, 1)
    assert bench.gateway.calls == []


@dataclass
class Stuck:
    """A clock on which nobody wakes up; `reached` is set when somebody waits."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    inner: FakeClock = field(default_factory=FakeClock)

    now = property(lambda self: self.inner.now)
    monotonic = property(lambda self: self.inner.monotonic)

    async def sleep(self, seconds: float) -> None:  # noqa: ARG002, a clock's signature
        self.reached.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("fault", [Fault.ERROR_DONE, Fault.YES_AND_NOTHING, Fault.QUEUED])
async def test_a_shutdown_leaves_the_order_open_and_its_calls_counted(fault: Fault) -> None:
    bench, stuck = Bench(Gateway(faults=[fault], delay=1.0)), Stuck()
    async with bench.driver() as driver:
        job = asyncio.create_task(
            carry_out(
                Intent(order(), stuck.now()),
                driver,
                bench.ledger,
                stuck,
                give_up_seconds=HOUR,
                wanted=lambda: None,
                tell=bench.told.append,
            )
        )
        await stuck.reached.wait()
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job

    assert (bench.ledger.attempts, bench.ledger.settled) == (1, [])
    bench.clock.time += 5
    outcome = await bench.run(attempts=1, age=5)
    assert outcome.result is Result.VERIFIED
    assert bench.gateway.changes == [(NODE, True)]
    assert len(bench.gateway.calls) <= 2


async def test_a_driver_without_calls_is_verified_by_our_own_record() -> None:
    bench, record = Bench(), {order().target: True}
    outcome = await bench.run(driver=VerdictDriver(lambda target: record[target]))

    assert outcome.result is Result.VERIFIED
    assert "/verdict/int4-a" in outcome.detail


async def test_a_rehearsal_never_counts_as_carried_out() -> None:
    outcome = await Bench().run(driver=DryRun())

    assert (outcome.result, outcome.doubt) == (Result.REFUSED, False)
    assert outcome.result not in DONE


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("fault", [None, *Fault])
async def test_every_order_ends_whatever_the_gateway_does(fault: Fault | None, reads: bool) -> None:
    """Settled once, in bounded time and calls, under one id, no secret in it; success only where the node is out."""
    bench = Bench(Gateway(always=fault, api_key="sk-secret", delay=math.inf), reads=reads, give_up=HOUR, chance=1.0)
    bench.key = "sk-secret"
    outcome = await bench.run()

    assert bench.ledger.settled == [(order().decision, outcome)]
    assert bench.clock.time <= HOUR + sum(LOOKS)
    assert len(bench.gateway.calls) == outcome.attempts <= 70
    assert bench.gateway.ids == {order().decision}
    assert len(bench.gateway.changes) <= 1
    assert "sk-secret" not in f"{outcome} {bench.told}"
    out = bench.gateway.stands(NODE)
    assert outcome.result is not Result.VERIFIED or out
    assert not out or outcome.result in DONE or outcome.doubt, "an isolated node that nobody knows of"
