"""Protects the node from its watchdog: caps on what a request may cost, one in flight, and a load gate.

The cost of prompt scoring follows positions x vocabulary (about 2 x positions x vocabulary x 4 bytes for a moment),
whatever k is; the size of the reply and the node's CPU time follow positions x k. Both are capped, and so are the
tokens of all probes in any minute: those of the prompts as they are sent, cached by the server or not, and those asked
for.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta

from quantwatch.clock import Clock
from quantwatch.errors import NodeBusy, NodeRestarted, OverBudget, ProbeError
from quantwatch.flow.load import Load
from quantwatch.log import logger
from quantwatch.net import Link
from quantwatch.probe.account import Account
from quantwatch.probe.node_metrics import read_load

log = logger()

GLANCE_SECONDS = 5.0
"""How long a look at the node's load may take; it stands before every request."""

FURTHER_LOOKS = 3
"""When another process answers: looks that tell a restart from several servers behind one address."""

RESTARTED = "restarted while it was probed"
RESTARTED_ADVICE = "Look at its log; if a probe ended it, lower probe.max_scored_tokens"


@dataclass(frozen=True, slots=True)
class Budget:
    """What probes may cost a node.

    scored_tokens: prompt tokens of all prompt-scoring requests in flight. scored_entries: the same times k.
    prompt_tokens: tokens of one request in the other modes. prefixes: prompts of one request in the one-token modes.
    tokens_per_minute: prompt tokens sent and tokens asked for, in any minute, of all probes of a server. in_flight:
    requests at once. max_waiting, max_kv_usage: over these the node counts as busy. patience_seconds: how
    long to wait for a busy node. gate_seconds: how long one look at the node's load holds.
    """

    scored_tokens: int = 1024
    scored_entries: int = 40_960
    prompt_tokens: int = 8192
    prefixes: int = 4
    tokens_per_minute: int = 20_000
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

    def check_minute(self, tokens: int, *, node: str) -> None:
        """Raise OverBudget when one request is over what a whole minute allows: waiting would never end."""
        if tokens > self.tokens_per_minute:
            raise OverBudget(
                f"a request of {tokens} tokens is over the budget of {self.tokens_per_minute} tokens a minute",
                node=node,
                advice="Use shorter prompts, or allow more (probe.tokens_per_minute) if the node has room for it",
            )

    def batches(self, lengths: list[int]) -> list[range]:
        """Group consecutive prompts into requests: the first alone, so that the others find it in the prefix cache."""
        most = min(self.prompt_tokens, self.tokens_per_minute - self.prefixes)
        groups: list[range] = []
        start, tokens = 0, 0
        for i, length in enumerate(lengths):
            if i > start and (start == 0 or i - start >= self.prefixes or tokens + length > most):
                groups.append(range(start, i))
                start, tokens = i, 0
            tokens += length
        return [*groups, range(start, len(lengths))] if lengths else []


@dataclass(frozen=True, slots=True)
class Told:
    """Who hears of a server's probes. spent: tokens of a request as it is sent. restarted: it did so under one."""

    spent: Callable[[int], None] = lambda _: None
    restarted: Callable[[], None] = lambda: None


class Gate:
    """Lets one request at a time through, no more tokens a minute than the budget has, and none while the node is busy.

    account: what is shared with everything else that asks this server. blind: the node did not tell its load at least
    once, so probes went out without looking.
    """

    def __init__(
        self,
        link: Link,
        budget: Budget,
        clock: Clock,
        *,
        account: Account | None = None,
        told: Told | None = None,
    ) -> None:
        self._link = link
        self._budget = budget
        self._clock = clock
        self._told = told or Told()
        self._slots = asyncio.Semaphore(budget.in_flight)
        self._looked_at: float | None = None
        self._load: Load | None = None
        self.account = account or Account()
        self.blind = False

    @contextlib.asynccontextmanager
    async def turn(self, tokens: int, *, insist: bool = False) -> AsyncIterator[None]:
        """Wait for a free slot, for so many tokens, and for a node with capacity.

        insist: ask a busy node all the same. Raises OverBudget for what no minute allows, NodeBusy when patience runs
        out, NodeRestarted when another process answers than when the wait began.
        """
        self._budget.check_minute(tokens, node=self._link.name)
        async with self._slots:
            await self._admitted(tokens, insist=insist)
            try:
                yield
            except ProbeError:
                self._looked_at = None  # it may be down or another process by now, so look before the next request
                raise
            finally:
                self.account.at_risk()

    async def _admitted(self, tokens: int, *, insist: bool) -> None:
        account, most = self.account, self._budget.tokens_per_minute
        async with account.queue:  # in the order of arrival, so that a large request is not overtaken for ever
            before = account.restarts
            while (seconds := account.seconds_until(tokens, most=most, now=self._clock.monotonic())) > 0:
                await self._clock.sleep(seconds)
            await (self._glanced() if insist else self._until_calm())
            if account.restarts != before:
                raise NodeRestarted(RESTARTED, node=self._link.name, advice=RESTARTED_ADVICE)
            account.charge(tokens, now=self._clock.monotonic())
            self._told.spent(tokens)

    @property
    def resting(self) -> str | None:
        """Why the server is to be left alone for now; None when it may be asked."""
        seconds = self.account.resting(self._clock.monotonic())
        if seconds <= 0:
            return None
        until = self._clock.now() + timedelta(seconds=seconds)
        times = "once" if self.account.row == 1 else f"{self.account.row} times in a row"
        return f"left alone until {until:%H:%M} UTC: it restarted {times} while it was probed"

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
        load = await self._glanced()
        if load is None:
            return None
        if load.waiting > self._budget.max_waiting:
            return f"{load.waiting:g} requests waiting"
        if load.kv_usage > self._budget.max_kv_usage:
            return f"KV cache {load.kv_usage:.0%} full"
        return None

    async def _glanced(self) -> Load | None:
        """The node's load, at most gate_seconds old."""
        now = self._clock.monotonic()
        if self._looked_at is None or now - self._looked_at >= self._budget.gate_seconds:
            self._load = await self.look()
            self.blind = self.blind or self._load is None
            self._looked_at = self._clock.monotonic()
        return self._load

    async def look(self) -> Load | None:
        """The node's load; None when it does not tell, which does not close the gate. Notices restarts."""
        load = await self._page()
        if load is None:
            return None
        several = self.account.suspicious(load) and await self._several()
        if self.account.see(load, now=self._clock.monotonic(), several=several):
            self._struck()
        return load

    async def _several(self) -> bool:
        """Whether the process of before still answers: then a balancer is in between, and nothing has restarted."""
        for _ in range(FURTHER_LOOKS):
            load = await self._page()
            if load is not None and self.account.turns_with(load):
                return True
        return False

    async def _page(self) -> Load | None:
        try:
            answer = await self._link.glance("/metrics", seconds=GLANCE_SECONDS)
        except ProbeError:
            return None
        return read_load(answer.body) if answer.status == 200 else None

    def _struck(self) -> None:
        self._told.restarted()
        log.error(
            f"{self._link.name} restarted while it was probed, {self.account.row} in a row; a probe may have ended it",
            server=self._link.name,
            restarts_in_a_row=self.account.row,
            left_alone_seconds=round(self.account.resting(self._clock.monotonic())),
        )
