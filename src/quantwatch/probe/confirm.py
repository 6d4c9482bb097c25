"""One confirming probe: a corrupted reply counts only when asking once more gives another.

NaN is sticky on real servers: a probe that provokes it can spoil the next users' answers. So a suspicion is confirmed
by one request, never by many, and afterwards the node is asked nothing more.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from quantwatch.errors import ProbeError, ReplyCorrupted
from quantwatch.flow.distribution import Distribution


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a probe of one sequence showed.

    distribution: None where the server refused to write its numbers. corruption: what was seen, in words, or None.
    confirmed: a second request showed corruption as well.
    """

    distribution: Distribution | None
    corruption: str | None = None
    confirmed: bool = False


async def sight(ask: Callable[[], Awaitable[Distribution]]) -> Sighting:
    """Ask, and once more when the answer is corrupted; trouble with the second probe does not wipe out the first sign.

    Raises every other ProbeError of the first probe.
    """
    first = await _once(ask)
    if first.corruption is None:
        return first
    try:
        second = await _once(ask)
    except ProbeError:
        return Sighting(first.distribution, first.corruption, confirmed=False)
    if second.corruption is None:
        return Sighting(second.distribution, first.corruption, confirmed=False)
    return Sighting(second.distribution or first.distribution, first.corruption, confirmed=True)


async def _once(ask: Callable[[], Awaitable[Distribution]]) -> Sighting:
    try:
        distribution = await ask()
    except ReplyCorrupted as exc:
        return Sighting(None, str(exc))
    if not distribution.marks:
        return Sighting(distribution)
    mark = distribution.marks[0]
    position = distribution.positions[mark.row]
    words = f"{len(distribution.marks)} corrupted positions, the first at {position}: {mark.kind}, {mark.detail}"
    return Sighting(distribution, words)
