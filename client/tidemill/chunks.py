"""How many of an endless stream of messages are taken at once."""

from __future__ import annotations

from collections.abc import AsyncIterable

from tidemill.encode import Body

CHUNK_MESSAGES = 8192
"""Messages taken from an iterable at once: enough that a batch is full, few enough that memory stays bounded."""

CHUNK_BYTES_GUESS = 4096
"""A body longer than this on average makes the next chunk smaller."""


async def chunks(bodies: AsyncIterable[Body]) -> AsyncIterable[list[Body]]:
    """Lists of them, neither long nor large."""
    chunk: list[Body] = []
    size = 0
    async for body in bodies:
        chunk.append(body)
        size += len(body)
        if size >= CHUNK_MESSAGES * CHUNK_BYTES_GUESS // 32 or len(chunk) >= CHUNK_MESSAGES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
