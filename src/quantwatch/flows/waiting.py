"""Waiting for several things, and no longer than that."""

import asyncio
from collections.abc import Awaitable, Iterable


async def finished(waits: Iterable[Awaitable[None]], seconds: float) -> bool:
    """Wait for all of them for so many seconds; whether they came to their end."""
    try:
        async with asyncio.timeout(seconds):
            await asyncio.gather(*waits)
    except TimeoutError:
        return False
    return True
