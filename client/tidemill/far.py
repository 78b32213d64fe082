"""Failures that are to come again after longer than a broker waits: they go to the delay service, with their whole
messages, and from there to their group alone.

    failure   event                                  next
    waits     the delay service has it               kept     its broker is told an ACK
    waits     nobody takes it in time                told     as a NACK, with the longest delay that a broker knows
    waits     its subject lets nothing wait so long  told     as a NACK without a delay, and raised to who asked for it
    kept      its time has come                      given    to the group, with its attempts; or a dead letter

First it is stored there, and then acked here: who dies in between has it twice, and never loses it. A broker keeps a
failure by reference, and all of the log from there on with it; that is why it does not wait for weeks itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgpack

from tidemill.asking import ask
from tidemill.delivery import Delivery
from tidemill.errors import BrokerUnreachable, CorruptBatch, Refused, TidemillError, Unavailable, wait_of
from tidemill.router import Router
from tidemill.settings import ClientSettings
from tidemill.whole import content_of, runs_of
from tidemill.why import Why
from tidemill_wire.batch import SINGLES_FROM, BatchIds, Flags, Origin
from tidemill_wire.columns import build_batch
from tidemill_wire.commands import SendBatches, Sent
from tidemill_wire.fields import DEAD_PROPERTY, DEAD_UNREAD, again_for, living_subject
from tidemill_wire.limits import NACK_DELAY_MS_MAX

PAUSE_S = 0.2
"""Between two attempts to reach the delay service."""
PATIENCE_S = 10.0
"""So long it is tried, and not longer than half of a lease."""

log = logging.getLogger("tidemill")


class Far:
    """Of one consumer."""

    beyond_ms = NACK_DELAY_MS_MAX
    """What is to wait for longer goes to the delay service."""

    def __init__(self, settings: ClientSettings, router: Router, group: str) -> None:
        self._settings = settings
        self._router = router
        self._group = group

    async def keep(self, delivery: Delivery, ranges: Sequence[int], why: Why, lease_s: float) -> int:
        """Until when the delay service keeps all of it; 0: it does not, as of what a broker can wait for itself."""
        if why.delay_ms <= self.beyond_ms or why.reject:
            return 0
        subject = living_subject(delivery.subject)
        now_ms = self._settings.now_ms()
        runs = runs_of(delivery, ranges)
        batches = [self._batch_of(delivery, rows, subject, why, now_ms) for rows in runs]
        try:
            async with asyncio.timeout(min(PATIENCE_S, lease_s / 2) if lease_s else PATIENCE_S):
                for batch in batches:
                    await self._insist(batch)
        except (TidemillError, TimeoutError, OSError) as error:
            if isinstance(error, Refused) and error.kind.name == "delay_not_allowed":
                raise
            days = NACK_DELAY_MS_MAX // 86_400_000
            log.warning(
                "failure_not_kept %s: no delay service has taken it (%s), it comes again after %d day",
                subject, str(error) or type(error).__name__, days,
            )  # fmt: skip
            return 0
        log.info("failure_kept %s: the delay service gives it to %s again", subject, self._group)
        return now_ms + why.delay_ms

    async def _insist(self, batch: bytes) -> None:
        """Until it is stored: with the same bytes, and at one delay group, so that it is stored once."""
        group = ""
        while True:
            try:
                open_now = [one for one in await self._router.delays() if one.group == group or not group]
                if not open_now:
                    raise BrokerUnreachable("no delay service is there")
                address = self._settings.random.choice(open_now)
                group = address.group
                answer = await ask(address, self._settings, SendBatches(bytearray(batch)))
                if isinstance(answer, Sent):
                    if not answer.refused:
                        return
                    raise answer.errors[0]
                raise answer if isinstance(answer, TidemillError) else BrokerUnreachable("it does not say")
            except (BrokerUnreachable, Unavailable, OSError) as error:
                if isinstance(error, Refused):
                    raise
                wait_s = wait_of(error)
            await asyncio.sleep(max(PAUSE_S, wait_s))

    def _batch_of(
        self, delivery: Delivery, rows: Sequence[int], subject: str, why: Why, now_ms: int
    ) -> bytes:
        content = content_of(delivery, rows)
        content.properties = list(_said(delivery, rows, why, now_ms))
        content.attempts = [delivery.attempts] * len(rows)
        content.deliver_deltas = [why.delay_ms] * len(rows)
        flags = Flags.REDELIVERED | Flags.DELAYED
        if content.order_keys is not None:
            flags |= Flags.ORDERED
        producer = SINGLES_FROM | self._settings.random.getrandbits(63)
        origin = Origin(
            again_for(subject, self._group).encode(), producer, 1, BatchIds(producer).next(now_ms), now_ms,
            self._settings.codec, flags, delivery.batch.header.priority,
        )  # fmt: skip
        return bytes(build_batch(origin, content))


def _said(delivery: Delivery, rows: Sequence[int], why: Why, now_ms: int) -> Iterator[bytes]:
    """The messages' properties, and in each what failed, and since when."""
    for row in rows:
        own, unread = _read(delivery, row)
        before: object = own.get(DEAD_PROPERTY)
        known: Mapping[str, Any] = cast("Mapping[str, Any]", before) if isinstance(before, dict) else {}
        sequence = max(0, delivery.sequence_of(row))
        said = {
            "reason": why.reason, "error": why.error, "place": why.place, "since": known.get("since") or now_ms,
            "sequence": sequence, "original": sequence,
        }  # fmt: skip
        yield cast("bytes", msgpack.packb({**own, DEAD_PROPERTY: {**said, **unread}}))


def _read(delivery: Delivery, row: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A message's properties; what nobody can read goes along as it came, as the broker keeps it in a dead letter."""
    try:
        return delivery.properties_of(row), {}
    except CorruptBatch:
        return {}, {DEAD_UNREAD: delivery.packed_of(row)}
