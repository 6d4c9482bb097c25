"""Sends the load of a release gate: closed loop, one node at a time, in blocks that alternate between the nodes.

A machine or network that grows slower meanwhile slows both alike, since the order turns round from pair to pair.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from quantwatch.clock import Clock
from quantwatch.flow.acceptance import Footprint, Memory, Timed

Ids = tuple[int, ...]

BLOCKS = 10
"""Into how many blocks the requests of a node are cut."""

LEAST_LOOPS = 4
"""Each request slot of a block is filled at least that often, so that its ragged end weighs little."""

LOOKS = 4
"""How often the memory is looked at within a block, besides its ends."""

FAILURES = 20
"""After that many failures in a row a node is left alone; the rest of its load is not sent."""


class Sender(Protocol):
    """Sends load to one node, and looks at its memory. Nothing raises for trouble of the node.

    model: its name at the node, to be set before the first request.
    """

    model: str

    async def calm(self) -> bool:
        """Wait until the node has room; whether it has."""
        ...

    async def complete(self, ids: Sequence[int]) -> Timed:
        """Send one completion and time it."""
        ...

    async def footprint(self) -> Footprint:
        """The node's memory right now."""
        ...


@dataclass(slots=True)
class Side:
    """One node under load. stopped: why it got no more. samples: in the order in which they ended."""

    name: str
    sender: Sender
    samples: list[Timed] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    kv_tokens: int | None = None
    before: float | None = None
    stopped: str | None = None
    in_a_row: int = 0

    async def look(self) -> None:
        """Note the node's memory."""
        seen = await self.sender.footprint()
        self.kv_tokens = seen.kv_tokens if seen.kv_tokens is not None else self.kv_tokens
        if seen.size is not None:
            self.before = seen.size if self.before is None else self.before
            self.sizes.append(seen.size)

    async def send(self, ids: Ids) -> None:
        """Send one request and note its time."""
        sample = await self.sender.complete(ids)
        self.samples.append(sample)
        self.in_a_row = 0 if sample.error is None else self.in_a_row + 1
        if self.in_a_row >= FAILURES and self.stopped is None:
            self.stopped = f"{self.in_a_row} requests in a row failed ({sample.error}); the rest was not sent"

    @property
    def memory(self) -> Memory:
        """What was seen of its memory."""
        after = self.sizes[-1] if self.sizes else None
        return Memory(self.before, max(self.sizes, default=None), after, self.kv_tokens)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How much is sent to each side. time_limit: seconds after which no further block begins."""

    requests: int
    concurrency: int
    time_limit: float

    @property
    def block(self) -> int:
        """Requests of one block."""
        return max(-(-self.requests // BLOCKS), LEAST_LOOPS * self.concurrency)


def blocks(plan: LoadPlan) -> list[range]:
    """The requests in blocks."""
    return [range(i, min(i + plan.block, plan.requests)) for i in range(0, plan.requests, plan.block)]


def turned(prompts: Sequence[Ids], number: int, *, prefix_cache: bool) -> Ids:
    """The prompt of a request. Unless the prefix cache may help, its tokens are turned, another time each time round.

    A turned prompt has the same length and the same tokens in another order, and shares no first block with another.
    """
    ids = prompts[number % len(prompts)]
    by = 0 if prefix_cache else (1 + number // len(prompts)) % len(ids)
    return ids[by:] + ids[:by]


async def load_test(
    sides: Sequence[Side],
    request: Callable[[int], Ids],
    plan: LoadPlan,
    *,
    clock: Clock,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """Send the whole load; what was measured stands in the sides, also after an interruption.

    request: the ids of a numbered request, the same for every side; the warm-up takes numbers from -1 down. tell: hears
    whom a block went to.
    """
    deadline = clock.monotonic() + plan.time_limit
    for side in sides:
        await side.look()
        await _warm_up(side, request, plan)
    for i, block in enumerate(blocks(plan)):
        for side in sides if i % 2 == 0 else reversed(sides):
            await _turn(side, [request(number) for number in block], plan, late=clock.monotonic() >= deadline)
            tell(side.name)


async def _turn(side: Side, wanted: Sequence[Ids], plan: LoadPlan, *, late: bool) -> None:
    """One block for one side, unless there is a reason to leave it alone."""
    if side.stopped is None and late:
        side.stopped = f"load.time_limit ({plan.time_limit:g} s) ran out"
    elif side.stopped is None and not await side.sender.calm():
        side.stopped = "busy with its users; the rest of the load was not sent"
    if side.stopped is None:
        await _block(side, wanted, plan.concurrency)


async def _warm_up(side: Side, request: Callable[[int], Ids], plan: LoadPlan) -> None:
    """Connections, graphs and allocators are not what is measured: one request for every slot, not counted."""
    async with asyncio.TaskGroup() as group:
        for slot in range(plan.concurrency):
            group.create_task(side.sender.complete(request(-1 - slot)))


async def _block(side: Side, wanted: Sequence[Ids], concurrency: int) -> None:
    """Keep as many requests in flight as agreed until all are answered: each slot sends its next when one ends."""
    waiting, look_every = iter(wanted), max(len(wanted) // LOOKS, 1)
    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(wanted))):
            group.create_task(_slot(side, waiting, look_every))
    await side.look()


async def _slot(side: Side, waiting: Iterator[Ids], look_every: int) -> None:
    for ids in waiting:
        await side.send(ids)
        if side.stopped is not None:
            return
        if len(side.samples) % look_every == 0:
            await side.look()
