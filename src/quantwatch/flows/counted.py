"""What nodes count of their own broken numbers, between the runs: a count that rises is a reason to look, at once.

It is no reason for anything else. A count does not tell what was asked, nor what the baseline would have answered: only
answers to our own questions, with the baseline's beside them, isolate a node.
"""

import asyncio
from collections.abc import Mapping

from quantwatch.flow.load import Load
from quantwatch.flow.verdict import Quality
from quantwatch.flows.watch import Watch
from quantwatch.flows.watched import Watched
from quantwatch.flows.worker import Worker
from quantwatch.log import logger

log = logger()

REST_SECONDS = 300.0
"""A target whose count goes on rising is asked no more often than that for it; what rose meanwhile is heeded then."""


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
    counts, earlier = watch.memory.counts, watch.memory.counts[target.name]
    now = await target.prober.load()
    if now is None or not now.counted or _runs(worker) or counts.get(target.name) is not earlier:
        return  # where a run has begun or even ended meanwhile, what it has read counts
    risen = {} if _unsure(watch, target, earlier) or _corrupted(watch, target) else now.risen(earlier)
    if risen:
        if _rests(watch, worker) or not _queue(watch, target, risen):
            return  # the count from which it rose stays, so that the rise is found again
        worker.heeded = watch.clock.monotonic()
    counts[target.name] = now


def _runs(worker: Worker) -> bool:
    return worker.running is not None


def _unsure(watch: Watch, target: Watched, earlier: Load) -> bool:
    """Whether a count is of before a run that could not read it afterwards: our own probes may have raised it since."""
    loads = (watch.memory.loads.get((target.name, task_set)) for task_set in target.sets)
    return any(one is not None and one[0] is earlier and one[1] is None for one in loads)


def _corrupted(watch: Watch, target: Watched) -> bool:
    """Whether nothing new can come of a run, since the node is known to be corrupted."""
    return any(one.quality is Quality.CORRUPTED for one in watch.memory.states_of(target.name, target.sets))


def _rests(watch: Watch, worker: Worker) -> bool:
    """Whether the target was asked for such a count lately."""
    return worker.heeded is not None and watch.clock.monotonic() - worker.heeded < REST_SECONDS


def _queue(watch: Watch, target: Watched, risen: Mapping[str, float]) -> bool:
    """Queue a run of the task set that was asked longest ago; whether one was really queued."""
    states = watch.memory.states_of(target.name, target.sets)
    oldest = min(states, key=lambda one: 0.0 if one.at is None else one.at.timestamp())
    queued = watch.due(target.name, oldest.task_set)
    log.warning(
        "a node counts broken numbers of its own and is looked at now",
        target=target.name,
        task_set=oldest.task_set,
        queued=queued,
        **{name: round(more) for name, more in risen.items()},
    )
    return queued
