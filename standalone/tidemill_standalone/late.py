"""A store that comes later: meta is made of it at once, and asks it nothing before it is there."""

from __future__ import annotations

from tidemill_meta.storing import Board, Bulletin, Changes, Decide, Store, StoreAway


class LateStore:
    """Answers ``Store`` by another one, as soon as that is ``real``."""

    alone = True

    def __init__(self) -> None:
        self.real: Store | None = None

    @property
    def _there(self) -> Store:
        if self.real is None:
            raise StoreAway("it is not open yet")
        return self.real

    async def open(self) -> None:
        await self._there.open()

    async def close(self) -> None:
        await self._there.close()

    async def changes(self, after: int) -> Changes:
        return await self._there.changes(after)

    async def commit(self, after: int, decide: Decide) -> Changes:
        return await self._there.commit(after, decide)

    async def exchange(self, mine: Bulletin) -> Board:
        return await self._there.exchange(mine)
