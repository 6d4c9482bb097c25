"""quantwatch pauses itself where what it does comes to nothing, or nobody answers."""

import contextlib
from datetime import datetime, timedelta

from quantwatch.errors import StoreError
from quantwatch.flow.state import Pause
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory


def own_pause(scope: str, said: str, *, decision: str, at: datetime, lasts: timedelta) -> Pause:
    """A pause of our own. decision: the one that led to it, whose id the pause's follows."""
    return Pause(f"p-{decision[2:]}", scope, said, "quantwatch", at, at + lasts)


async def keep_pause(pause: Pause, memory: Memory, keeper: Keeper) -> None:
    """Let a pause of our own hold: for this life at least, where it cannot be written down."""
    memory.pauses.append(pause)
    with contextlib.suppress(StoreError):
        await keeper.write(lambda store: store.add_pause(pause))
