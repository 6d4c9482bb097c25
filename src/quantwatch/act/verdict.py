"""The driver that makes no call: the gateway asks /verdict/<target> or by agent-check, and our record answers."""

from collections.abc import Callable

from quantwatch.act.contract import Abilities, Seen
from quantwatch.flow.decision import Order


class VerdictDriver:
    """Our record is the gateway's state.

    state: whether a target is isolated by what /verdict answers now. It must be true as soon as the target is LEAVING
    and false again as soon as it is RETURNING, or every order counts as contradicted.
    """

    name = "verdict"
    abilities = Abilities(reads_back=True, proven=True, calls=False)

    def __init__(self, state: Callable[[str], bool]) -> None:
        self._state = state

    async def call(self, order: Order) -> str:
        """Send nothing and say so."""
        return f"no call is made; the gateway learns of it from /verdict/{order.target}"

    async def observe(self, order: Order) -> Seen:
        """What /verdict answers for the order's target."""
        return Seen.ISOLATED if self._state(order.target) else Seen.ROUTABLE
