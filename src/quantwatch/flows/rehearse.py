"""A rehearsal at the gateway: one target goes out, is read back, comes back, is read back, without any fault.

Calls go the way of real orders (act/carry_out). Whatever happens after the first call, a release follows.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from quantwatch.act.carry_out import carry_out
from quantwatch.act.contract import ByHand, Driver, Lists, Seen
from quantwatch.act.traffic import Traffic
from quantwatch.clock import Clock
from quantwatch.flow.decision import DONE, Action, Intent, Order, Outcome, Result
from quantwatch.flow.run import stamp
from quantwatch.flows.witness import Step, Witness

GIVE_UP_SECONDS = {Action.ISOLATE: 60.0, Action.RELEASE: 300.0}
"""How long a call is tried again; to come back matters more than to go out."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """Who goes out. node: its name at the gateway. others: names of those who could take the traffic meanwhile."""

    target: str
    pool: str
    node: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What came of it. out, back: how the two orders ended, None for one that was not given.

    refused: why nothing was begun. interrupted: somebody broke it off. by_hand: how a person brings the node back,
    where it may still be out.
    """

    part: Part
    driver: str
    steps: tuple[Step, ...]
    out: Outcome | None = None
    back: Outcome | None = None
    refused: str | None = None
    interrupted: bool = False
    by_hand: str | None = None

    @property
    def proven(self) -> bool:
        """Whether it went out and came back, and the gateway's own state said so both times."""
        ends = [one.result if one is not None else None for one in (self.out, self.back)]
        return ends == [Result.VERIFIED, Result.VERIFIED] and not self.interrupted


class NoLedger:
    """A rehearsal leaves nothing in the store."""

    def __init__(self) -> None:
        self._attempts = 0

    async def begin_attempt(self, decision: str) -> int:  # noqa: ARG002, the contract's signature
        """Count a call."""
        self._attempts += 1
        return self._attempts

    async def settle(self, order: Order, outcome: Outcome) -> None:
        """Write nothing."""


async def rehearse(
    part: Part,
    driver: Driver,
    clock: Clock,
    *,
    tell: Callable[[Step], None],
    stop: asyncio.Event,
    traffic: Traffic | None = None,
) -> Rehearsal:
    """Take a target out and bring it back. stop: breaks it off; what may be out comes back first, and soon.

    traffic: asks through the gateway meanwhile.

    Raises nothing of the gateway's.
    """
    seen = Witness(driver, clock, tell, traffic)
    refused = await _objection(part, seen)
    if refused is not None or stop.is_set():
        return Rehearsal(part, driver.name, tuple(seen.steps), refused=refused, interrupted=stop.is_set())
    out: Outcome | None = None
    try:
        out = await _unless(stop, _carry(part, Action.ISOLATE, seen, stop=stop))
    finally:
        untouched = not seen.sent or (out is not None and out.result is Result.REFUSED and not out.doubt)
        back = None if untouched else await _carry(part, Action.RELEASE, seen)
    by_hand = None
    if back is not None and back.result not in DONE:
        by_hand = await _by_hand(driver, _order(part, Action.RELEASE, driver.name, clock))
    return Rehearsal(
        part, driver.name, tuple(seen.steps), out=out, back=back, interrupted=stop.is_set(), by_hand=by_hand
    )


async def _objection(part: Part, seen: Witness) -> str | None:
    """Why nothing may be begun. A driver whose gateway lists its nodes objects itself, when it is called."""
    if isinstance(seen.inner, Lists):
        return None
    if not seen.abilities.reads_back:
        return None if part.others else f"{part.target} is alone in pool {part.pool}, and nobody would take its traffic"
    stands = await seen.observe(_question(part.node, part, seen))
    if stands is Seen.ISOLATED:
        return f"{part.target} is isolated at the gateway already, and a rehearsal would bring it back"
    if stands is Seen.UNKNOWN:
        return f"the gateway does not tell how {part.target} stands, so what comes of it could not be told either"
    for other in part.others:
        if await seen.inner.observe(_question(other, part, seen)) is Seen.ROUTABLE:
            return None
    return f"nobody else of pool {part.pool} is routable at the gateway, and {part.target} would be missed"


async def _carry(part: Part, action: Action, seen: Witness, *, stop: asyncio.Event | None = None) -> Outcome:
    order = _order(part, action, seen.name, seen.clock)
    return await carry_out(
        Intent(order, seen.clock.now()),
        seen,
        NoLedger(),
        seen.clock,
        give_up_seconds=GIVE_UP_SECONDS[action],
        wanted=lambda: "interrupted" if stop is not None and stop.is_set() else None,
        tell=lambda _: None,
    )


async def _unless(stop: asyncio.Event, action: Coroutine[Any, Any, T]) -> T | None:
    """What an action gives, None when it was stopped before its end."""
    running, stopped = asyncio.ensure_future(action), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
        return running.result() if running.done() else None
    finally:
        running.cancel()
        stopped.cancel()
        await asyncio.gather(running, stopped, return_exceptions=True)


async def _by_hand(driver: Driver, order: Order) -> str:
    if isinstance(driver, ByHand):
        return await driver.by_hand(order)
    return f"take {order.node} back into traffic at the gateway, by its own means"


def _question(node: str, part: Part, seen: Witness) -> Order:
    return Order("", Action.ISOLATE, part.target, part.pool, node, seen.name, reason="", verdict="")


def _order(part: Part, action: Action, driver: str, clock: Clock) -> Order:
    id_ = stamp("d", clock.now(), "rehearsal")
    return Order(id_, action, part.target, part.pool, part.node, driver, reason="a rehearsal", verdict="ok")
