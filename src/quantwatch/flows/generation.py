"""One loaded configuration with its connections, which live as long as any run uses them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from quantwatch.act.channel import Subscriber
from quantwatch.act.contract import Driver
from quantwatch.act.traffic import Probed, Traffic
from quantwatch.config.windows import WindowSettings
from quantwatch.flows.cycle import Turn
from quantwatch.flows.watched import Watchlist


@dataclass(slots=True)
class Generation:
    """One loaded configuration. close: ends its connections, once no run uses them any more. channels: by name.

    traffic: asks through the gateway after an isolation, where that is configured.
    """

    watchlist: Watchlist
    driver: Driver
    give_up_seconds: float
    turn: Turn
    close: Callable[[], Awaitable[None]]
    channels: Mapping[str, Subscriber] = field(default_factory=dict)
    windows: Sequence[WindowSettings] = ()
    traffic: Traffic | None = None
    users: int = 0
    retired: bool = False

    @property
    def gateway(self) -> Driver:
        """The driver as orders are carried out by it."""
        return self.driver if self.traffic is None else Probed(self.driver, self.traffic)

    async def leave(self) -> None:
        """A run has ended; the last one of a retired configuration closes its connections."""
        self.users -= 1
        await self._close_if_unused()

    async def retire(self) -> None:
        """Close as soon as nothing uses it."""
        self.retired = True
        await self._close_if_unused()

    async def _close_if_unused(self) -> None:
        if self.retired and self.users == 0:
            await self.close()
