"""Many messages in one call: cut into batches, handed to the producer as it has room, and one answer for all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from tidemill.chunks import CHUNK_BYTES_GUESS, CHUNK_MESSAGES, chunks
from tidemill.encode import Body, as_bodies, as_pairs, check_many
from tidemill.later import extras_with
from tidemill.parcel import extras_of
from tidemill.producer import Producer
from tidemill.receipts import Many, Placed, Receipts


class Where(NamedTuple):
    """Where many messages go, and when; without ``due_ms`` now."""

    subject: str
    priority: int
    due_ms: int | None


async def send_many(
    producer: Producer, where: Where, bodies: Iterable[Body] | AsyncIterable[Body]
) -> Receipts:
    """Bodies of one subject, in their order."""
    check_many(bodies)
    many = Many(asyncio.get_running_loop())
    place = 0
    try:
        if isinstance(bodies, list | tuple):
            place = await _put(producer, where, bodies, place, many)
        elif isinstance(bodies, AsyncIterable):
            async for chunk in chunks(bodies):
                place = await _put(producer, where, chunk, place, many)
        else:
            rest = iter(bodies)
            size = CHUNK_MESSAGES
            while (chunk := list(islice(rest, size))) and many.error is None:
                place = await _put(producer, where, chunk, place, many)
                average = 1 + sum(map(len, chunk)) // len(chunk)
                size = max(1, min(CHUNK_MESSAGES, CHUNK_MESSAGES * CHUNK_BYTES_GUESS // average))
    finally:
        many.handed_in()
    return await many.future


async def send_keyed(
    producer: Producer,
    where: Where,
    bodies: Iterable[Body] | AsyncIterable[Body],
    dedup_keys: Sequence[str | None],
) -> Receipts:
    """The same with a dedup key for each, or none: each is waited for alone, for it may be stored already."""
    if not isinstance(bodies, list | tuple):
        raise TypeError("with dedup_keys, bodies must be a list: make one of them")
    if len(bodies) != len(dedup_keys):
        raise ValueError(
            f"{len(dedup_keys)} dedup_keys for {len(bodies)} bodies: give one, or None, for each"
        )
    subject, priority, due_ms = where
    keyed = [extras_of(0, None, None, None, None, key) if key is not None else None for key in dedup_keys]
    many = Many(asyncio.get_running_loop())
    try:
        for place, (body, extras) in enumerate(zip(as_bodies(bodies), keyed, strict=True)):
            if producer.full:
                await producer.room()
            if many.error is not None:
                break
            many.expect(1)
            waiter = Placed(many, place)
            if due_ms is None:
                producer.put(subject, body, extras, waiter, priority)
            else:
                producer.later.put(subject, body, extras_with(extras, due_ms), waiter, priority)
    finally:
        many.handed_in()
    return await many.future


async def send_each(producer: Producer, messages: Iterable[tuple[str, Body]]) -> Receipts:
    """Messages of many subjects."""
    many = Many(asyncio.get_running_loop())
    place = 0
    rest = iter(messages)
    try:
        while (chunk := list(islice(rest, CHUNK_MESSAGES))) and many.error is None:
            if producer.full:
                await producer.room()
            pairs = as_pairs(chunk)
            many.expect(len(pairs))
            producer.put_each(pairs, place, many)
            place += len(pairs)
    finally:
        many.handed_in()
    return await many.future


async def _put(
    producer: Producer, where: Where, bodies: list[Body] | tuple[Body, ...], place: int, many: Many
) -> int:
    if not bodies:
        return place
    subject, priority, due_ms = where
    for piece in producer.pieces(as_bodies(bodies)):
        if producer.full:
            await producer.room()
        if many.error is not None:
            break
        many.expect(1)
        if due_ms is None:
            producer.put_many(subject, piece, place, many, priority)
        else:
            producer.later.put_many(subject, piece, place, many, (priority, due_ms))
        place += len(piece)
    return place
