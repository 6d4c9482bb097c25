"""Who of a pool gets traffic by the gateway's own list: a configuration may name nodes that are not there."""

import asyncio
from collections.abc import Mapping
from datetime import datetime

from quantwatch.act.contract import Driver, Tells
from quantwatch.errors import GatewayError
from quantwatch.flow.fleet import Roll
from quantwatch.flow.state import AWAY
from quantwatch.flows.memory import Memory
from quantwatch.flows.scene import members
from quantwatch.flows.watched import WatchedPool, Watchlist

ROLL_SECONDS = 10.0
"""How long the gateway may take to tell."""


async def call_roll(pool: WatchedPool, watchlist: Watchlist, memory: Memory, *, driver: Driver, now: datetime) -> None:
    """Ask the gateway about every member of a pool, where its driver can, and remember what it told. Raises nothing.

    What cannot be read is remembered as not known, and an isolation then objects.
    """
    if not isinstance(driver, Tells):
        memory.rolls.pop(pool.name, None)
        return
    nodes = _nodes(pool, watchlist, memory)
    try:
        async with asyncio.timeout(ROLL_SECONDS):
            there = await driver.present(tuple(sorted(set(nodes.values()))))
    except GatewayError as exc:
        memory.rolls[pool.name] = Roll(now, trouble=str(exc))
    except TimeoutError:
        memory.rolls[pool.name] = Roll(now, trouble=f"it did not tell within {ROLL_SECONDS:g} s")
    else:
        memory.rolls[pool.name] = Roll(now, frozenset(name for name, node in nodes.items() if node in there))


def missing(pool: str, watchlist: Watchlist, memory: Memory) -> tuple[str, ...] | None:
    """Members that are in traffic on record, and that the gateway sends nothing to; None where it is not known."""
    roll = memory.rolls.get(pool)
    if roll is None or roll.trouble is not None:
        return None
    there = [one.target for one in members(pool, watchlist, memory) if one.routing not in AWAY]
    return tuple(sorted(set(there) - roll.present))


def _nodes(pool: WatchedPool, watchlist: Watchlist, memory: Memory) -> Mapping[str, str]:
    """Every member's name at the gateway."""
    found: dict[str, str] = {}
    for one in members(pool.name, watchlist, memory):
        target = watchlist.targets.get(one.target)
        found[one.target] = target.gateway_name if target is not None else one.node or one.target
    return found
