"""A keeper as tests of it need one."""

import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from quantwatch.expose.meters import Meters
from quantwatch.flows.keeper import Keeper
from quantwatch.record.engine import Pragmas
from support.stored import opened


@contextlib.asynccontextmanager
async def keeping(folder: Path, *, most: int = 100) -> AsyncIterator[tuple[Keeper, Meters]]:
    """A keeper of a real store that is impatient with locks."""
    meters = Meters()
    with ThreadPoolExecutor(1) as executor, opened(folder, pragmas=Pragmas(busy_seconds=0.01)) as store:
        yield Keeper(store, executor, meters, most=most), meters
