"""Watches a driver, and requests through its gateway: every exchange becomes a step that can be shown."""

from collections.abc import Callable
from dataclasses import dataclass, field

from quantwatch.act.contract import Abilities, Driver, Seen
from quantwatch.act.traffic import Met, Traffic, Word
from quantwatch.clock import Clock
from quantwatch.errors import GatewayError
from quantwatch.flow.decision import Order


@dataclass(frozen=True, slots=True)
class Step:
    """One exchange with the gateway. what: `look`, `isolate`, `release`, `read back`, `traffic`. said: its answer."""

    what: str
    seconds: float
    said: str
    ok: bool


@dataclass(slots=True)
class Witness:
    """A driver that is watched. tell: hears of every exchange when it has ended. sent: a call was begun.

    asks: requests through its gateway, which are watched too; None without them.
    """

    inner: Driver
    clock: Clock
    tell: Callable[[Step], None]
    asks: Traffic | None = None
    looks: str = "look"
    sent: bool = False
    steps: list[Step] = field(default_factory=list)
    name: str = field(init=False)
    abilities: Abilities = field(init=False)
    traffic: Traffic | None = field(init=False)

    def __post_init__(self) -> None:
        self.name, self.abilities = self.inner.name, self.inner.abilities
        self.traffic = None if self.asks is None else WatchedTraffic(self.asks, self)

    async def call(self, order: Order) -> str:
        """Pass the order on."""
        self.sent, self.looks = True, "read back"
        started = self.clock.monotonic()
        try:
            said = await self.inner.call(order)
        except GatewayError as exc:
            self.step(order.action.value, started, str(exc), ok=False)
            raise
        self.step(order.action.value, started, said, ok=True)
        return said

    async def observe(self, order: Order) -> Seen:
        """Pass the question on."""
        started = self.clock.monotonic()
        seen = await self.inner.observe(order)
        self.step(self.looks, started, seen.value, ok=seen is not Seen.UNKNOWN)
        return seen

    def step(self, what: str, started: float, said: str, *, ok: bool) -> None:
        """Tell of an exchange that has ended. started: by the monotonic clock."""
        self.steps.append(Step(what, self.clock.monotonic() - started, said, ok))
        self.tell(self.steps[-1])


@dataclass(frozen=True, slots=True)
class WatchedTraffic:
    """Requests through the gateway, of which a witness tells."""

    inner: Traffic
    seen: "Witness"

    async def ask(self, order: Order) -> Word:
        """Pass the question on."""
        started = self.seen.clock.monotonic()
        word = await self.inner.ask(order)
        self.seen.step("traffic", started, word.said, ok=word.met is Met.OTHERS)
        return word
