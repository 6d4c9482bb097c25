"""quantwatch pauses itself where what it does comes to nothing, nobody answers, or its store fails again and again."""

import functools
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from quantwatch.clock import Clock
from quantwatch.errors import StoreError
from quantwatch.expose.meters import Meters
from quantwatch.flow.run import stamp
from quantwatch.flow.state import Pause
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory
from quantwatch.log import logger
from quantwatch.record.store import Store

log = logger()

STORE_FAILURES = 5
STORE_WINDOW = timedelta(hours=1)
"""So many times within this the store fails after it had worked: what it says of the rest is in doubt too."""

STORE_REST = timedelta(hours=1)


def own_pause(scope: str, said: str, *, decision: str, at: datetime, lasts: timedelta) -> Pause:
    """A pause of our own. decision: the one that led to it, whose id the pause's follows."""
    return Pause(f"p-{decision[2:]}", scope, said, "quantwatch", at, at + lasts)


async def keep_pause(pause: Pause, memory: Memory, keeper: Keeper) -> None:
    """Let a pause of our own hold: at once, and over a restart as soon as it can be written down."""
    memory.pauses.append(pause)
    memory.unkept.append(pause)
    try:
        await keep_what_waits(memory, keeper)
    except StoreError:
        return  # it holds in memory, and is tried again


async def keep_what_waits(memory: Memory, keeper: Keeper) -> None:
    """Write pauses of our own down that could not be written when they were made. Raises StoreError."""
    for pause in list(memory.unkept):
        if pause not in memory.unkept:
            continue  # resumed while another one was written
        if pause in memory.pauses:
            await keeper.write(functools.partial(Store.add_pause, pause=pause))
        if pause in memory.unkept:
            memory.unkept.remove(pause)
        else:  # resumed while it was written
            await keeper.write(functools.partial(Store.end_pause, pause=pause.id, at=pause.since))


@dataclass(slots=True)
class StoreRest:
    """Hears of every time that the store fails after it had worked, and pauses everything when that is too often.

    While the store cannot be written nothing acts anyway, so one long outage needs no pause. A store that comes and
    goes does: between two failures it would let orders begin whose end may not be written.
    """

    memory: Memory
    meters: Meters
    clock: Clock
    _failed: deque[datetime] = field(default_factory=deque)

    def note(self, why: str) -> None:
        """Count a failure. The pause holds in memory; `keep_what_waits` writes it down once that works again."""
        now = self.clock.now()
        self._failed.append(now)
        while not timedelta() <= now - self._failed[0] <= STORE_WINDOW:
            self._failed.popleft()
        if len(self._failed) < STORE_FAILURES:
            return
        self._failed.clear()
        minutes = STORE_WINDOW.total_seconds() / 60
        said = f"the store failed {STORE_FAILURES} times within {minutes:g} min, at last: {why}"
        pause = Pause(stamp("p", now, "store"), "all", said, "quantwatch", now, now + STORE_REST)
        self.memory.pauses.append(pause)
        self.memory.unkept.append(pause)
        self.meters.paused_itself("store")
        log.error("paused, since the store fails again and again", pause_id=pause.id, reason=said)
