"""The driver that calls nothing: a rehearsal says what would be sent, and nothing is ever reported as done."""

import json

from quantwatch.act.contract import Abilities, Seen
from quantwatch.act.payload import payload
from quantwatch.errors import GatewayRefused
from quantwatch.flow.decision import Order


class DryRun:
    """No gateway. An order that reaches it all the same is refused, so that it never counts as carried out."""

    name = "dry_run"
    abilities = Abilities(reads_back=False, proven=True, calls=False, acts=False, steers=True)

    def describe(self, order: Order) -> str:
        """What a gateway would be asked to do: a sentence and the body of the call."""
        return f"would {order.action.value} {order.node} (target {order.target}): {json.dumps(payload(order))}"

    async def call(self, order: Order) -> str:
        """Refuse. Raises GatewayRefused."""
        raise GatewayRefused(
            f"driver dry_run calls nothing, so {order.node} stands as before; set gateway.driver to one that does"
        )

    async def observe(self, order: Order) -> Seen:  # noqa: ARG002, the contract's signature
        """There is no gateway to look at."""
        return Seen.UNKNOWN
