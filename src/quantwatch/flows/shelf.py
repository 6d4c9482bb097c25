"""Where a yardstick's stored answers come from: the daemon's store, or for a single look a copy that keeps nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from quantwatch.flows.keeper import Keeper
from quantwatch.record.archive import Archive
from quantwatch.record.references import StoredAnswer


class Shelf(Protocol):
    """Keeps the baseline's answers. Both raise StoreError."""

    async def load(self, fingerprint: str, pool: str) -> list[StoredAnswer]:
        """What is kept of this baseline for a pool of prompts."""
        ...

    async def keep(self, fingerprint: str, pool: str, answers: Sequence[StoredAnswer]) -> None:
        """Keep answers."""
        ...


class StoreShelf:
    """Answers in the daemon's store."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    async def load(self, fingerprint: str, pool: str) -> list[StoredAnswer]:
        """What is kept."""
        return await self._keeper.write(lambda store: store.references(fingerprint, pool))

    async def keep(self, fingerprint: str, pool: str, answers: Sequence[StoredAnswer]) -> None:
        """Keep answers for good."""
        await self._keeper.write(lambda store: store.keep_references(fingerprint, pool, answers))


class LookingShelf:
    """Answers read from a store that somebody else writes, if there is one; nothing is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load(self, fingerprint: str, pool: str) -> list[StoredAnswer]:
        """What is kept; nothing where there is no store yet."""
        if not self._path.is_file():
            return []
        with Archive.open(self._path) as archive:
            return archive.references(fingerprint, pool)

    async def keep(self, fingerprint: str, pool: str, answers: Sequence[StoredAnswer]) -> None:
        """Keep nothing: a look leaves no trace."""
