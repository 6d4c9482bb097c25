"""One order at a time at one gateway: what an order finds there still holds when it changes something.

The approval of a whole pool lets its orders begin together. Each would see the others in traffic and leave, and of two
that write back a whole list the second would undo the first.
"""

import asyncio
from abc import ABC, abstractmethod

from quantwatch.flow.decision import Order


class InTurn(ABC):
    """A driver that looks before it changes anything. Questions wait for nobody."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def call(self, order: Order) -> str:
        """Wait for the orders before, look, and do what is needed. Raises Unanswered or GatewayRefused."""
        async with self._one_at_a_time:
            return await self._look_and_do(order)

    @abstractmethod
    async def _look_and_do(self, order: Order) -> str:
        """What `call` promises; nobody else's order is under way meanwhile."""
