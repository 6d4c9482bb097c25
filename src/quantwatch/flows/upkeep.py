"""What is done beside the runs, now and then: write what waits, forget what is old, end pauses that have run out."""

from dataclasses import dataclass
from datetime import timedelta

from quantwatch.clock import Clock
from quantwatch.errors import StoreError
from quantwatch.flows.keeper import Keeper
from quantwatch.flows.memory import Memory
from quantwatch.log import logger

log = logger()


@dataclass(frozen=True, slots=True)
class Retention:
    """How long things are kept, in seconds."""

    runs: float
    decisions: float


async def retry_store(keeper: Keeper) -> None:
    """Try again what could not be written."""
    if (keeper.trouble is not None or keeper.unwritten) and await keeper.flush():
        log.info("the store can be written again")
    await keeper.tokens.flush()


async def prune(keeper: Keeper, retention: Retention, clock: Clock) -> int:
    """Remove what is older than it is kept; gives how many rows went. A store in trouble is left alone."""
    now = clock.now()
    runs, decisions = (now - timedelta(seconds=age) for age in (retention.runs, retention.decisions))
    try:
        gone = await keeper.write(lambda store: store.prune(runs_before=runs, decisions_before=decisions))
    except StoreError as exc:
        log.warning("nothing was pruned", reason=str(exc))
        return 0
    if gone:
        log.info("pruned", rows=gone)
    return gone


def end_pauses(memory: Memory, clock: Clock) -> None:
    """Forget pauses whose time is over."""
    now = clock.now()
    over = [one for one in memory.pauses if one.until is not None and now >= one.until]
    for one in over:
        memory.pauses.remove(one)
        log.info("a pause has run out", scope=one.scope, reason=one.reason, pause_id=one.id)
