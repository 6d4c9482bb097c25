"""Protects the node from its watchdog: caps on what a request may cost, one in flight, and a load gate.

The cost of prompt scoring follows positions x vocabulary (about 2 x positions x vocabulary x 4 bytes for a moment),
whatever k is; the size of the reply and the node's CPU time follow positions x k. Both are capped.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from quantwatch.clock import Clock
from quantwatch.errors import NodeBusy, OverBudget, ProbeError
from quantwatch.net import Link
from quantwatch.probe.node_metrics import Load, read_load

GLANCE_SECONDS = 5.0
"""How long a look at the node's load may take; it stands before every request."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What probes may cost a node.

    scored_tokens: prompt tokens of all prompt-scoring requests in flight. scored_entries: the same times k.
    prompt_tokens: tokens of one request in the other modes. prefixes: prompts of one request in the one-token modes.
    in_flight: requests at once. max_waiting, max_kv_usage: over these the node counts as busy. patience_seconds: how
    long to wait for a busy node. gate_seconds: how long one look at the node's load holds.
    """

    scored_tokens: int = 1024
    scored_entries: int = 40_960
    prompt_tokens: int = 8192
    prefixes: int = 4
    in_flight: int = 1
    max_waiting: int = 0
    max_kv_usage: float = 0.9
    patience_seconds: float = 30.0
    gate_seconds: float = 2.0

    def check_scoring(self, tokens: int, k: int, *, node: str) -> None:
        """Raise OverBudget when scoring a prompt of that many tokens, k entries each, would cost too much."""
        if tokens * self.in_flight > self.scored_tokens:
            raise OverBudget(
                f"scoring {tokens} tokens x {self.in_flight} in flight is over the budget of {self.scored_tokens}",
                node=node,
                advice="Use mode one_token, or allow more (--max-scored-tokens) if the node has memory to spare",
            )
        if tokens * k * self.in_flight > self.scored_entries:
            raise OverBudget(
                f"{tokens} tokens x k = {k} x {self.in_flight} in flight is over {self.scored_entries} entries",
                node=node,
                advice="Use a smaller k or mode one_token",
            )

    def check_prompt(self, tokens: int, *, node: str) -> None:
        """Raise OverBudget when a single prompt is longer than one request may carry."""
        if tokens > self.prompt_tokens:
            raise OverBudget(
                f"a prompt of {tokens} tokens is over the budget of {self.prompt_tokens}",
                node=node,
                advice="Use shorter prompts",
            )

    def batches(self, lengths: list[int]) -> list[range]:
        """Group consecutive prompts into requests: the first alone, so that the others find it in the prefix cache."""
        groups: list[range] = []
        start, tokens = 0, 0
        for i, length in enumerate(lengths):
            if i > start and (start == 0 or i - start >= self.prefixes or tokens + length > self.prompt_tokens):
                groups.append(range(start, i))
                start, tokens = i, 0
            tokens += length
        return [*groups, range(start, len(lengths))] if lengths else []


class Gate:
    """Lets one request at a time through, and none while the node is busy with its users.

    blind: the node did not tell its load at least once, so probes went out without looking.
    """

    def __init__(self, link: Link, budget: Budget, clock: Clock) -> None:
        self._link = link
        self._budget = budget
        self._clock = clock
        self._slots = asyncio.Semaphore(budget.in_flight)
        self._looked_at: float | None = None
        self._load: Load | None = None
        self.blind = False

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a free slot and for a node with capacity. Raises NodeBusy when patience runs out."""
        async with self._slots:
            await self._until_calm()
            yield

    async def _until_calm(self) -> None:
        deadline = self._clock.monotonic() + self._budget.patience_seconds
        while (why := await self._busy()) is not None:
            if self._clock.monotonic() >= deadline:
                raise NodeBusy(
                    f"load gate: {why}", node=self._link.name, advice="The probe was skipped to protect its users"
                )
            self._looked_at = None
            await self._clock.sleep(self._budget.gate_seconds)

    async def _busy(self) -> str | None:
        now = self._clock.monotonic()
        if self._looked_at is None or now - self._looked_at >= self._budget.gate_seconds:
            self._load = await self._look()
            self.blind = self.blind or self._load is None
            self._looked_at = self._clock.monotonic()
        load = self._load
        if load is None:
            return None
        if load.waiting > self._budget.max_waiting:
            return f"{load.waiting:g} requests waiting"
        if load.kv_usage > self._budget.max_kv_usage:
            return f"KV cache {load.kv_usage:.0%} full"
        return None

    async def _look(self) -> Load | None:
        """The node's load; None when it does not tell, which does not close the gate."""
        try:
            answer = await self._link.glance("/metrics", seconds=GLANCE_SECONDS)
        except ProbeError:
            return None
        return read_load(answer.body) if answer.status == 200 else None
