"""What a gateway's driver has to remember, kept in the daemon's store."""

from quantwatch.flows.keeper import Keeper


class StoreNotes:
    """Notes in the store: durable before the call that they are about."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    async def keep(self, key: str, text: str) -> None:
        """Write a text down, in place of the last one. Raises StoreError."""
        await self._keeper.write(lambda store: store.keep_note(key, text))

    async def kept(self, key: str) -> str | None:
        """The text of a key, None without one. Raises StoreError."""
        return await self._keeper.write(lambda store: store.note(key))
