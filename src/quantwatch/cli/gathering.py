"""Runs a measurement to its end, to Ctrl-C or to a fault of our own, and gives back what it gathered until then."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

import typer


class Gathering(Protocol):
    """A measurement that can be read at any moment."""

    async def run(self) -> None:
        """Gather everything."""
        ...


G = TypeVar("G", bound=Gathering)


def gather(connect: Callable[[], AbstractAsyncContextManager[G]]) -> tuple[G, Exception | None]:
    """What was gathered, and the fault that broke it off, to be raised once the result is safe.

    Raises typer.Abort or the fault itself where nothing had been connected yet.
    """
    gathered: list[G] = []

    async def work() -> None:
        async with connect() as one:
            gathered.append(one)
            await one.run()

    try:
        asyncio.run(work())
    except KeyboardInterrupt:
        if not gathered:
            raise typer.Abort from None
    except Exception as exc:
        # One of the few broad handlers: hours of measuring are not lost to one fault.
        if not gathered:
            raise
        return gathered[0], exc
    return gathered[0], None
