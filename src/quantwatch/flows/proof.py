"""Proves the yardstick at once where many nodes breach: its stored answers are asked again, and the nodes greeted."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from quantwatch.flow.handshake import Handshake
from quantwatch.flows.ask import Server
from quantwatch.flows.compare import Comparison
from quantwatch.flows.cycle import Turn, checked, plan_of
from quantwatch.flows.generation import Generation
from quantwatch.flows.handshake import handshake
from quantwatch.flows.library import chosen
from quantwatch.flows.memory import Memory, Pair
from quantwatch.flows.self_check import self_check
from quantwatch.flows.watched import Watched, WatchedSet

PROOF_SECONDS = 120.0
"""How long it may take; what was found by then counts."""


Prover = Callable[[Generation, Memory, Collection[Pair]], Awaitable[None]]


async def prove(
    generation: Generation, memory: Memory, guilty: Collection[Pair], *, seconds: float = PROOF_SECONDS
) -> None:
    """Hold the baseline against its stored answers to every guilty task set, and against every guilty node.

    What is found stands in memory as what a run finds does. guilty: targets and task sets that breach.
    """
    generation.users += 1
    try:
        async with asyncio.timeout(seconds):
            await self_check(generation, memory, thorough=True)
            for name, targets in _by_set(generation, guilty).items():
                await _proved(name, targets, generation.turn, memory)
    except TimeoutError:
        return  # what is not proven by then is not proven
    finally:
        await generation.leave()


def _by_set(generation: Generation, guilty: Collection[Pair]) -> Mapping[str, list[Watched]]:
    """Targets by guilty task set; of those that have left the configuration nothing is asked."""
    found: dict[str, list[Watched]] = {}
    for target, task_set in sorted(guilty):
        known = generation.watchlist.targets.get(target)
        if known is not None and task_set in known.sets:
            found.setdefault(task_set, []).append(known)
    return found


async def _proved(name: str, targets: Sequence[Watched], turn: Turn, memory: Memory) -> None:
    wanted = targets[0].sets[name]
    choice = await chosen(turn.library, wanted, turn.baseline)
    plan = plan_of(wanted, seed=turn.random.getrandbits(31))
    comparison = Comparison(choice.baseline, [], plan, cache=turn.cache, tell=turn.tell)
    comparison.refuse_baseline(choice.standing.trouble)
    await comparison.run()  # without a node it only lets the baseline introduce itself
    if choice.standing.stored:
        check = choice.standing.check(turn.clock.now())
    else:
        check = await checked(comparison, wanted, turn, thorough=True, clean=False)
        await comparison.baseline.look_back()
    met = await asyncio.gather(*(_met(one, wanted, comparison.baseline) for one in targets))
    who = comparison.baseline.identity
    now = memory.yardstick_of(who, name) if who is not None else None
    for one, shaken in zip(targets, met, strict=True):
        same = now is not None and memory.yardsticks.get((one.name, name)) == now
        if same or check.sound is False:  # a breach by another yardstick is not proven by this one
            memory.heed((one.name, name), check)
        if shaken.ok is not None:
            memory.handshakes[one.name] = shaken


async def _met(target: Watched, wanted: WatchedSet, baseline: Server) -> Handshake:
    """What a node says of itself now, against the baseline; one that does not answer tells nothing."""
    node = Server(target.prober)
    await node.greet(wanted.k, {wanted.mode})
    await node.look_back()
    return handshake(node, baseline)
