"""Rows on their way to a broker, and what became of each.

Rows without an order key leave together, and the client makes batches of them. Of one order key a row leaves when the
one before it is stored: nothing depends then on what a client does with those behind one that failed. A broker that
refuses a batch refuses all that is in it; so whatever was refused is tried once more alone before it is set aside.

What goes one after the other is not begun any more when its time is over, and is as if it had not been read: whoever
sends it next must not find us still at it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemill.client import Client
from tidemill.errors import BrokerUnreachable, ClientClosed, CodecMissing, Refused, TidemillError
from tidemill.outbox.doing import carry_out
from tidemill.outbox.row import Row, TooNew, parse_deed, reason_of

REFUSED = (Refused, TypeError, ValueError)
"""The message is at fault: trying again does not help."""


@dataclass(slots=True)
class Fates:
    """What became of rows that were handed to a client. What is in none of them was not tried."""

    stored: list[int] = field(default_factory=list[int])
    refused: dict[int, str] = field(default_factory=dict[int, str])
    later: list[Row] = field(default_factory=list[Row])
    trouble: str = ""
    """Why later."""

    def __bool__(self) -> bool:
        return bool(self.stored or self.refused or self.later)


async def deliver(mq: Client, rows: Sequence[Row], until: float) -> Fates:
    """Send them; no send begins after ``until``, by ``time.monotonic``. Never fails for what a row or a broker does."""
    fates = Fates()
    strands: dict[int, list[Row]] = {}
    loose: list[Row] = []
    for row in rows:
        if row.order_hash is None:
            loose.append(row)
        else:
            strands.setdefault(row.order_hash, []).append(row)
    refused: list[Row] = []
    async with asyncio.TaskGroup() as group:
        for row in loose:
            group.create_task(_together(mq, row, fates, refused))
        for strand in strands.values():
            group.create_task(_in_order(mq, strand, fates, until))
    for row in refused:
        if time.monotonic() < until:
            await _alone(mq, row, fates)
    return fates


async def _together(mq: Client, row: Row, fates: Fates, refused: list[Row]) -> None:
    try:
        await _send(mq, row, fates)
    except REFUSED:
        refused.append(row)


async def _in_order(mq: Client, strand: Sequence[Row], fates: Fates, until: float) -> None:
    for row in strand:
        if time.monotonic() >= until or not await _alone(mq, row, fates):
            return


async def _alone(mq: Client, row: Row, fates: Fates) -> bool:
    """Whether the next one of its key may go. What is refused for good holds up nobody."""
    try:
        try:
            return await _send(mq, row, fates)
        except REFUSED:
            return await _send(mq, row, fates)
    except REFUSED as error:
        fates.refused[row.id] = reason_of(error)
        return True


async def _send(mq: Client, row: Row, fates: Fates) -> bool:
    try:
        deed = parse_deed(row.options)
        if deed.is_for_later and mq.later_is_away:
            raise BrokerUnreachable("no delay service can be reached")  # others do not wait for it
        await carry_out(mq, row, deed)
    except (Refused, ClientClosed, CodecMissing):
        raise
    except (TidemillError, TooNew) as error:
        fates.later.append(row)
        fates.trouble = reason_of(error)
        return False
    fates.stored.append(row.id)
    return True
