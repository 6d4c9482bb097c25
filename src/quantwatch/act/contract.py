"""What every gateway driver promises, and what carrying out an order needs from the store."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from quantwatch.errors import GatewayUnavailable
from quantwatch.flow.decision import Action, Order, Outcome


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a driver can do.

    reads_back: observe() can tell. proven: tested against the real program, not only against a stand-in. calls: an
    order goes over the network. acts: an order can change anything at all; where not, it is only described.
    """

    reads_back: bool
    proven: bool
    calls: bool
    acts: bool = True


class Seen(StrEnum):
    """How a node stands at the gateway. UNKNOWN is never taken for success."""

    ISOLATED = "isolated"
    ROUTABLE = "routable"
    UNKNOWN = "unknown"


def wished(action: Action) -> Seen:
    """How a node stands once the action is done."""
    return Seen.ISOLATED if action is Action.ISOLATE else Seen.ROUTABLE


class Unanswered(GatewayUnavailable):
    """A GatewayUnavailable that tells more.

    arrived: False only where it is certain that the order never reached the gateway, or that the gateway put it off.
    retry_after: seconds that the gateway asks to wait, None when it does not say.
    """

    def __init__(self, reason: str, *, arrived: bool = True, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.arrived = arrived
        self.retry_after = retry_after


class Driver(Protocol):
    """One kind of gateway. name: as in the configuration, gateway.driver."""

    name: str
    abilities: Abilities

    async def call(self, order: Order) -> str:
        """Send the order once and return a sentence on what was answered; a yes proves nothing.

        Raises GatewayUnavailable when the same call may be sent again (Unanswered where more is known), GatewayRefused
        when a person has to look. A call that is refused has changed nothing.
        """
        ...

    async def observe(self, order: Order) -> Seen:
        """How the order's node stands at the gateway now; UNKNOWN on any trouble. Never raises."""
        ...


@runtime_checkable
class Lists(Protocol):
    """A driver whose gateway tells everyone that it sends traffic to; it never takes the last of them out."""

    async def names(self) -> tuple[str, ...]:
        """Every name on the gateway's own list, sorted. Raises GatewayError when it cannot be read."""
        ...


@runtime_checkable
class Tells(Protocol):
    """A driver whose gateway tells who is really there: who is configured with us need not be so with the gateway."""

    async def present(self, nodes: Sequence[str]) -> frozenset[str]:
        """Which of these nodes the gateway has and could send a request to now.

        Raises GatewayError when that cannot be read.
        """
        ...


@runtime_checkable
class ByHand(Protocol):
    """A driver whose orders a person can carry out with one line in a shell."""

    async def by_hand(self, order: Order) -> str:
        """That line; a secret stands in it as `...`."""
        ...


class Notes(Protocol):
    """What a driver has to remember of a node, over all process lives."""

    async def keep(self, key: str, text: str) -> None:
        """Write a text down, in place of the last one; durable on return. Raises StoreError."""
        ...

    async def kept(self, key: str) -> str | None:
        """The text of a key, None without one. Raises StoreError."""
        ...


class MemoryNotes:
    """Notes for one process life, where there is no store or none may be written."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    async def keep(self, key: str, text: str) -> None:
        """Remember a text."""
        self._texts[key] = text

    async def kept(self, key: str) -> str | None:
        """The text of a key, None without one."""
        return self._texts.get(key)


class Ledger(Protocol):
    """What the store keeps of an order under way."""

    async def begin_attempt(self, decision: str) -> int:
        """Write down that a call is about to be sent and return how many that makes, over all process lives.

        The line is durable on return. Raises StoreError.
        """
        ...

    async def settle(self, order: Order, outcome: Outcome) -> None:
        """Close the order's intent. Raises StoreError; the same outcome may then be given again."""
        ...
