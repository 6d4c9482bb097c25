"""Carries out one order: write down, call, read back, settle.

An order ends, whatever the gateway does: every wait is bounded, and the whole by give_up_seconds. What cannot be read
back from a gateway that otherwise can be is never success. A call whose reply was lost may have taken effect, so from
the first such call on, every end that is not success carries `doubt`.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from quantwatch.act.contract import Driver, Ledger, Seen, Unanswered, wished
from quantwatch.act.traffic import Checked, Met, Traffic, Word
from quantwatch.clock import Clock
from quantwatch.errors import GatewayRefused, GatewayUnavailable, StoreError
from quantwatch.flow.decision import DONE, Action, Intent, Order, Outcome, Result

LONGEST_WAIT = 60.0
"""Seconds between two tries at most, before jitter; a Retry-After counts up to here too."""

JITTER = 0.25
"""Share of a wait that chance adds, so that many orders do not come back at once."""

LOOKS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 60.0, 60.0, 60.0)
"""Seconds between looks at a gateway that has said yes; gateways queue. After the last one UNKNOWN stays unknown."""

NOES = 5
"""Looks that must find the opposite before the gateway counts as contradicting itself."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call as metrics and logs want it.

    failure: what went wrong in words, None when the gateway said yes. kind: the same in one word, for a label.
    """

    driver: str
    action: Action
    seconds: float
    failure: str | None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a call has to be tried again. retry_after: seconds that the gateway asks to wait."""

    reason: str
    retry_after: float | None = None


async def carry_out(
    intent: Intent,
    driver: Driver,
    ledger: Ledger,
    clock: Clock,
    *,
    give_up_seconds: float,
    wanted: Callable[[], str | None],
    tell: Callable[[Attempt], None],
    chance: Callable[[], float] = random.random,
) -> Outcome:
    """Bring an open intent to its end, write the outcome down, and return it.

    wanted: why the order is no longer wanted, None while it is; asked before every call. tell: hears of every call.
    chance: numbers from 0 to 1 for the jitter. give_up_seconds count from the intent's opening, over all process lives.
    Raises StoreError when the outcome could not be written for that long; the intent then stays open. Cancelled, it
    leaves the intent open with every call that may have been sent counted, and can be called again with it.
    """
    age = max(0.0, (clock.now() - intent.opened).total_seconds())  # a wall clock that was set back gives none
    errand = _Errand(
        intent.order,
        driver,
        ledger,
        clock,
        tell,
        attempts=intent.attempts,
        doubt=intent.attempts > 0,
        traffic=driver.traffic if isinstance(driver, Checked) and intent.order.action is Action.ISOLATE else None,
    )
    outcome = await errand.run(Waits(clock, chance, clock.monotonic() + give_up_seconds - age), wanted)
    await _write(intent.order, outcome, ledger, Waits(clock, chance, clock.monotonic() + give_up_seconds))
    return outcome


@dataclass(slots=True)
class Waits:
    """Growing waits until an end, in monotonic seconds."""

    clock: Clock
    chance: Callable[[], float]
    end: float
    count: int = 0

    def over(self, ahead: float = 0.0) -> bool:
        """Whether the end has passed, or will have in `ahead` seconds."""
        return self.clock.monotonic() + ahead > self.end

    async def once(self, asked: float | None = None) -> bool:
        """Wait, at least as long as asked; False at once when the end would pass meanwhile."""
        grown = max(min(2.0 ** min(self.count, 16), LONGEST_WAIT), min(asked or 0.0, LONGEST_WAIT))
        wait = grown * (1 + JITTER * self.chance())
        self.count += 1
        if self.over(wait):
            return False
        await self.clock.sleep(wait)
        return True


async def _write(order: Order, outcome: Outcome, ledger: Ledger, waits: Waits) -> None:
    while True:
        try:
            await ledger.settle(order, outcome)
        except StoreError:
            if not await waits.once():
                raise
        else:
            return


@dataclass(slots=True)
class _Errand:
    """An order under way. doubt: a call may have taken effect without our knowing."""

    order: Order
    driver: Driver
    ledger: Ledger
    clock: Clock
    tell: Callable[[Attempt], None]
    attempts: int
    doubt: bool
    traffic: Traffic | None = None
    trouble: Trouble = field(default_factory=lambda: Trouble("no time was left for another"))

    async def run(self, waits: Waits, wanted: Callable[[], str | None]) -> Outcome:
        while True:
            if self.doubt and await self._look() is self._wish:
                return await self._done(Result.VERIFIED, f"an earlier call took effect: the gateway says {self._wish}")
            if (why := wanted()) is not None:
                return self._unwanted(why)
            if waits.over():
                return self._given_up()
            outcome = await self._attempt()
            if outcome is not None:
                return outcome
            if not await waits.once(self.trouble.retry_after):
                return self._given_up()

    async def _attempt(self) -> Outcome | None:
        """One call, written down before it is sent; None when there is to be another."""
        try:
            self.attempts = await self.ledger.begin_attempt(self.order.decision)
        except StoreError as exc:
            self.trouble = Trouble(f"nothing was sent, because no call could be written down: {exc}")
            return None
        started = self.clock.monotonic()
        try:
            said = await self.driver.call(self.order)
        except GatewayUnavailable as exc:
            known = exc if isinstance(exc, Unanswered) else Unanswered(str(exc))
            self._told(started, str(exc), "unavailable")
            self.doubt = self.doubt or known.arrived
            self.trouble = Trouble(str(exc), known.retry_after)
            return None
        except GatewayRefused as exc:
            self._told(started, str(exc), "refused")
            return await self._refused(str(exc))
        self._told(started, None)
        return await self._accepted(said)

    async def _accepted(self, said: str) -> Outcome:
        """The gateway said yes; what its own state says decides, where that can be read."""
        if not self.driver.abilities.reads_back:
            return await self._done(Result.ACCEPTED, f"{said}; it cannot be read back")
        self.doubt = True
        seen = await self._settled()
        if seen is self._wish:
            return await self._done(Result.VERIFIED, f"{said}, and its state says {seen}")
        if seen is Seen.UNKNOWN:
            return self._end(Result.FAILED, f"{said}, but its state could not be read, so nothing is proven")
        return self._end(Result.CONTRADICTED, f"{said}, but its state says {seen}")

    async def _refused(self, said: str) -> Outcome:
        """A refusal changes nothing, but may be the answer to a repeat."""
        if self.doubt and await self._look() is self._wish:
            took = f"{said}; an earlier call took effect: the gateway says {self._wish}"
            return await self._done(Result.VERIFIED, took)
        return self._end(Result.REFUSED, f"{said}{self._perhaps}")

    async def _done(self, result: Result, detail: str) -> Outcome:
        """An end that the driver calls done; requests through the gateway can only contradict it."""
        if self.traffic is None:
            return self._end(result, detail)
        word = await self._met(self.traffic)
        if word.met is not Met.NODE:
            return self._end(result, f"{detail}; {word.said}")
        self.doubt = True
        return self._end(Result.CONTRADICTED, f"{detail}, but {word.said}")

    async def _met(self, traffic: Traffic) -> Word:
        """Whom requests meet once the gateway has had time, as long as it also has to read back."""
        for wait in LOOKS[: NOES - 1]:
            word = await traffic.ask(self.order)
            if word.met is not Met.NODE:
                return word
            await self.clock.sleep(wait)
        return await traffic.ask(self.order)

    def _unwanted(self, why: str) -> Outcome:
        result = Result.FAILED if self.doubt else Result.WITHDRAWN
        return self._end(result, f"no longer wanted: {why}{self._perhaps or '; nothing was done'}")

    def _given_up(self) -> Outcome:
        return self._end(Result.FAILED, f"given up after {self.attempts} calls: {self.trouble.reason}{self._perhaps}")

    async def _look(self) -> Seen:
        return await self.driver.observe(self.order) if self.driver.abilities.reads_back else Seen.UNKNOWN

    async def _settled(self) -> Seen:
        """What the gateway's state says once it has had time: as wished, or NOES times the opposite, or UNKNOWN."""
        noes = 0
        for wait in (*LOOKS, None):
            seen = await self._look()
            noes += seen not in (self._wish, Seen.UNKNOWN)
            if seen is self._wish or noes == NOES:
                return seen
            if wait is not None:
                await self.clock.sleep(wait)
        return Seen.UNKNOWN

    @property
    def _wish(self) -> Seen:
        return wished(self.order.action)

    @property
    def _perhaps(self) -> str:
        return "; an earlier call may have taken effect all the same" if self.doubt else ""

    def _told(self, started: float, failure: str | None, kind: str | None = None) -> None:
        seconds = self.clock.monotonic() - started
        self.tell(Attempt(self.driver.name, self.order.action, seconds, failure, kind))

    def _end(self, result: Result, detail: str) -> Outcome:
        doubt = self.doubt and result not in DONE
        return Outcome(result, detail, self.clock.now(), self.attempts, doubt=doubt)
