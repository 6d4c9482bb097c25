"""The pulse of the loop: how late it is, whether the wall clock jumped, and a sign of life for systemd."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from quantwatch.clock import Clock
from quantwatch.daemon.systemd import Notifier
from quantwatch.expose.meters import Meters
from quantwatch.log import logger

log = logger()

BEAT_SECONDS = 1.0
JUMP_SECONDS = 5.0
"""A wall clock that differs by more from the monotonic one was set, or the machine was suspended."""

REMEMBERED = 60
"""Beats over which the worst lag is told."""


@dataclass(slots=True)
class Heartbeat:
    """Beats once a second. jumped: hears by how many seconds the wall clock jumped."""

    clock: Clock
    meters: Meters
    notifier: Notifier
    jumped: Callable[[float], None]
    lags: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    @property
    def lag(self) -> float:
        """Seconds that the loop was late at worst within the last minute."""
        return max(self.lags, default=0.0)

    async def beat(self) -> None:
        """Beat for ever."""
        while True:
            await self.once()

    async def once(self) -> None:
        """One beat: wait, compare the two clocks, tell."""
        wall, steady = self.clock.now(), self.clock.monotonic()
        await self.clock.sleep(BEAT_SECONDS)
        passed = self.clock.monotonic() - steady
        late = max(0.0, passed - BEAT_SECONDS)
        self.lags.append(late)
        self.meters.loop_lag(late)
        jump = (self.clock.now() - wall).total_seconds() - passed
        if abs(jump) > JUMP_SECONDS:
            self.meters.clock_jumped()
            log.warning("the wall clock jumped; all times are reckoned anew", seconds=round(jump, 1))
            self.jumped(jump)
        if self.notifier.watchdog_seconds is not None:
            self.notifier.tell("WATCHDOG=1")
