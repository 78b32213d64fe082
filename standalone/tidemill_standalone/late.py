"""A store that comes later: meta is made of it at once, and asks it nothing before it is there."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from tidemill_meta.storing import Board, Bulletin, Changes, Decide, Store, StoreAway


class LateStore:
    """Answers ``Store`` by another one, as soon as that is ``real``; what that one cannot do is told ``complain``."""

    alone = True

    def __init__(self, complain: Callable[[Exception], None]) -> None:
        self.real: Store | None = None
        self._complain = complain

    @property
    def _there(self) -> Store:
        if self.real is None:
            raise StoreAway("it is not open yet")
        return self.real

    async def open(self) -> None:
        with self._heard():
            await self._there.open()

    async def close(self) -> None:
        real, self.real = self.real, None
        if real is not None:
            await real.close()

    async def changes(self, after: int) -> Changes:
        with self._heard():
            return await self._there.changes(after)

    async def commit(self, after: int, decide: Decide) -> Changes:
        with self._heard():
            return await self._there.commit(after, decide)

    async def exchange(self, mine: Bulletin) -> Board:
        with self._heard():
            return await self._there.exchange(mine)

    async def forget(self, until: int, silent: Mapping[str, int]) -> int:
        with self._heard():
            return await self._there.forget(until, silent)

    @contextmanager
    def _heard(self) -> Generator[None]:
        try:
            yield
        except StoreAway as error:
            self._complain(error)
            raise
