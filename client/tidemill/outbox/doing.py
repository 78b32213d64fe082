"""What a row wants is done: a message is sent, what waits under a timer key is cancelled or has another time, or a
series begins.

Each may be done twice, when a process dies before it has written that it was done. A message is recognised by its
identity, to cancel or to give the same time twice does no harm, and a series would be two series for good: so it is
sent as the batch of a producer that follows from the row, which a delay service that has it recognises.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

from tidemill.asking import ask
from tidemill.client import Client
from tidemill.errors import BrokerUnreachable, TidemillError
from tidemill.outbox.row import Deed, Row, Verb
from tidemill.parcel import extras_of
from tidemill.routes import Address
from tidemill_wire.batch import SINGLES_FROM, Flags, Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import SendBatches, Sent


async def carry_out(mq: Client, row: Row, deed: Deed) -> None:
    """When it returns it is done; else it raises what ``Client.send`` raises."""
    if deed.verb is Verb.SEND and deed.recurs is None:
        await mq.send(row.subject, row.body, **deed.options)
        return
    try:
        async with asyncio.timeout(
            mq.settings.send_timeout_s / 2
        ):  # other rows are not to wait for it for long
            await _of_later(mq, row, deed)
    except TimeoutError as error:
        if isinstance(error, TidemillError):
            raise
        raise BrokerUnreachable("no delay service has answered") from None


async def _of_later(mq: Client, row: Row, deed: Deed) -> None:
    groups = await mq._router.delays()  # pyright: ignore[reportPrivateUsage]
    if not groups:
        raise BrokerUnreachable("no delay service can be reached")
    if deed.verb is Verb.SEND:
        await _begin_series(mq, row, deed, sorted(groups, key=lambda one: one.group))
        return
    timer_key = deed.options.get("timer_key")
    if deed.verb is Verb.CANCEL:
        await mq.cancel(subject=row.subject, timer_key=timer_key)
        return
    assert deed.due_ms is not None
    at = datetime.fromtimestamp(deed.due_ms / 1000, UTC)
    await mq.reschedule(subject=row.subject, timer_key=timer_key, at=at)


async def _begin_series(mq: Client, row: Row, deed: Deed, groups: Sequence[Address]) -> None:
    """At the same delay group each time, as long as these are the same."""
    digest = hashlib.sha256(row.identity.encode()).digest()
    producer = int.from_bytes(digest[:8], "big") | SINGLES_FROM
    batch = _batch_of(row, deed, (producer, digest[16:]), mq.settings.now_ms())
    answer = await ask(groups[producer % len(groups)], mq.settings, SendBatches(bytearray(batch)))
    if isinstance(answer, TidemillError):
        raise answer
    if not isinstance(answer, Sent):
        raise BrokerUnreachable("the delay service answered what was not asked")
    for error in answer.errors.values():
        raise error


def _batch_of(row: Row, deed: Deed, named: tuple[int, bytes], now_ms: int) -> bytes:
    """``named`` are producer and batch id."""
    options, due_ms = deed.options, deed.due_ms
    assert due_ms is not None
    tags = options.get("tags")
    extras = extras_of(
        len(row.body), options.get("key"), tags, options.get("properties"), options.get("order_key")
    )
    content = Content(
        [row.body],
        None if extras.key is None else [extras.key],
        None if not extras.tags else [extras.tags],
        None if extras.order_key is None else [extras.order_key],
        None if extras.properties is None else [extras.properties],
        deliver_deltas=[due_ms - now_ms],
        timer_keys=[options.get("timer_key")],
        cron=deed.recurs,
    )
    flags = Flags.DELAYED | (Flags(0) if extras.order_key is None else Flags.ORDERED)
    producer, batch_id = named
    origin = Origin(
        row.subject.encode(), producer, 1, batch_id, now_ms, flags=flags, priority=options.get("priority", 0)
    )
    return bytes(build_batch(origin, content))
