"""Stores of meta, opened for a test, and something to put into them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tidemill_meta.storing import Changes, Entry, Store


@asynccontextmanager
async def opened(*stores: Store) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for store in stores:
            stack.push_async_callback(store.close)
            await store.open()
        yield


async def write(store: Store, after: int, *entries: Entry) -> Changes:
    """A turn that writes whatever was written meanwhile."""
    return await store.commit(after, lambda _: entries)


def entry(name: str, version: int = 1, **body: object) -> Entry:
    return Entry("thing", name, version, body)
