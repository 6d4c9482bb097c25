"""What nodes count of their own broken numbers, between the runs: a count that rises is a reason to look, at once.

It is no reason for anything else. A count does not tell what was asked, nor what the baseline would have answered: only
answers to our own questions, with the baseline's beside them, isolate a node.
"""

import asyncio

from quantwatch.flow.verdict import Quality
from quantwatch.flows.watch import Watch
from quantwatch.flows.watched import Watched
from quantwatch.flows.worker import Worker
from quantwatch.log import logger

log = logger()

REST_SECONDS = 300.0
"""A target whose count goes on rising is asked no more often than that for it."""


async def look(watch: Watch) -> None:
    """Read the counts of every target that is known to count; those of nodes that do not count cost nothing."""
    generation = watch.generation
    generation.users += 1
    try:
        counting = [one for name, one in watch.watchlist.targets.items() if name in watch.memory.counts]
        await asyncio.gather(*(_look(watch, one) for one in counting))
    finally:
        await generation.leave()


async def _look(watch: Watch, target: Watched) -> None:
    worker = watch.workers.get(target.name)
    if worker is None or _runs(worker):
        return  # the run reads them itself, and its own probes may be what is counted
    earlier, now = watch.memory.counts[target.name], await target.prober.load()
    if now is None or not now.counted:
        return
    watch.memory.counts[target.name] = now
    risen = now.risen(earlier)
    if risen and not _runs(worker) and not _known(watch, target, worker.heeded):
        worker.heeded = watch.clock.monotonic()
        _queue(watch, target, {name: round(more) for name, more in risen.items()})


def _runs(worker: Worker) -> bool:
    return worker.running is not None


def _known(watch: Watch, target: Watched, heeded: float | None) -> bool:
    """Whether nothing new can come of a run now: it is known to be corrupted, or was asked for such a count lately."""
    if any(one.quality is Quality.CORRUPTED for one in watch.memory.states_of(target.name, target.sets)):
        return True
    return heeded is not None and watch.clock.monotonic() - heeded < REST_SECONDS


def _queue(watch: Watch, target: Watched, risen: dict[str, int]) -> None:
    """Queue a run of the task set that was asked longest ago."""
    states = watch.memory.states_of(target.name, target.sets)
    oldest = min(states, key=lambda one: 0.0 if one.at is None else one.at.timestamp())
    queued = watch.due(target.name, oldest.task_set)
    log.warning(
        "a node counts broken numbers of its own and is looked at now",
        target=target.name,
        task_set=oldest.task_set,
        queued=queued,
        **risen,
    )
