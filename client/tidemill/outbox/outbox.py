"""The outbox of a program with an event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self, Unpack

import sqlalchemy as sql
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session

from tidemill.client import Client
from tidemill.encode import Body
from tidemill.errors import ClientClosed
from tidemill.later import Delay
from tidemill.outbox.database import Database
from tidemill.outbox.ledger import Ledger
from tidemill.outbox.pace import SEND_TIMEOUT_S, Pace
from tidemill.outbox.relay import Relay, Spans
from tidemill.outbox.row import Entry, Options, Written, cancelling, parse_entry, rescheduling
from tidemill.outbox.schema import TABLE, check, tables
from tidemill.outbox.scribe import Scribe
from tidemill.settings import ClientSettings

AsyncWhere = AsyncSession | AsyncConnection | async_scoped_session[Any]


class Plan:
    """What an outbox is made of, checked before anything is connected. The same with an event loop and without."""

    def __init__(
        self,
        engine: sql.Engine | AsyncEngine,
        mq: Client | str | None,
        table: str,
        pace: Pace,
        settings: ClientSettings | None = None,
    ) -> None:
        self._settings = settings or ClientSettings(name="outbox", send_timeout_s=SEND_TIMEOUT_S)
        self._given = mq if isinstance(mq, Client) else None
        self._make: Callable[[], Client] = lambda: Client(
            mq if isinstance(mq, str) else None, settings=self._settings
        )
        spooled = self._settings.spool_path is not None
        if self._given is not None:
            self._settings = self._given.settings
            spooled = self._given._spools is not None  # pyright: ignore[reportPrivateUsage]
        if spooled:
            raise ValueError(
                "an outbox is a spool already, and would take for stored what lies in a client's: "
                "give it a client without spool"
            )
        self.now_ms = self._settings.now_ms
        """The time of day of this program: what is for later is due by it."""
        timeout_s = self._settings.send_timeout_s
        self._pace = pace
        self._spans = Spans(timeout_s, pace.grace_for(timeout_s), pace.lease_for(timeout_s))
        self.database = Database(engine)
        self.ledger = Ledger(tables(name=table), pace, self._spans.grace)

    @property
    def sends(self) -> bool:
        """Whether this process sends anything."""
        return self._pace.sender or self._pace.watchdog

    async def open(self) -> Running:
        """Check the tables and begin; in the loop in which it is to live."""
        await self.database.run(check, self.ledger.tables)
        mq = self._given or self._make()
        relay = Relay(self.database, self.ledger, mq, self._pace, self._spans)
        relay.start()
        return Running(relay, mq, ours=self._given is None)


@dataclass(frozen=True, slots=True)
class Running:
    """What was begun."""

    relay: Relay
    mq: Client
    ours: bool
    """The client was made here, and ends here."""

    def statistics(self) -> dict[str, int]:
        """Of this process: rows ``sent``, of them ``recovered`` as the leader; ``postponed``, set ``aside``, ``left``
        to the watchdog; and whether it is ``leading``.
        """
        return {**self.relay.counts, "leading": int(self.relay.leading)}

    async def close(self) -> None:
        """Send what was committed, for a while, and end."""
        try:
            await self.relay.close()
        finally:
            if self.ours:
                await self.mq.close()


class Outbox:
    """Messages that are sent when, and only when, the transaction in which they were written commits.

    ``mq`` is a client, or the address of a queue. The engine's pool is used for at most two connections at a time.
    """

    def __init__(
        self,
        engine: AsyncEngine | sql.Engine,
        mq: Client | str | None = None,
        *,
        table: str = TABLE,
        pace: Pace | None = None,
    ) -> None:
        self._plan = Plan(engine, mq, table, pace or Pace())
        self._scribe = Scribe(self._plan.ledger, self._committed)
        self._running: Running | None = None
        self._begun = not self._plan.sends

    async def __aenter__(self) -> Self:
        if self._plan.sends and self._running is None:
            self._running = await self._plan.open()
        self._begun = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(
        self, session: AsyncWhere, subject: str, body: Body, **options: Unpack[Options]
    ) -> Written:
        """Write a message in the session's transaction; it is sent after its commit.

        The options are those of ``Client.send``. What could never be sent raises here, before anything is written.
        """
        return await self._write(session, parse_entry(subject, body, options, now_ms=self._plan.now_ms))

    async def cancel(self, session: AsyncWhere, *, subject: str, timer_key: str) -> Written:
        """Write in the session's transaction that what waits under a timer key is cancelled, after its commit: also
        what was written for it before, in this transaction or another one, and not sent yet. What is too far by then
        is not. Of a message that recurs nothing more comes.
        """
        return await self._write(session, cancelling(subject, timer_key))

    async def reschedule(
        self,
        session: AsyncWhere,
        *,
        subject: str,
        timer_key: str,
        delay: Delay | None = None,
        at: datetime | None = None,
    ) -> Written:
        """The same, that it is due at another time."""
        entry = rescheduling(subject, timer_key, delay, at, now_ms=self._plan.now_ms)
        return await self._write(session, entry)

    async def _write(self, session: AsyncWhere, entry: Entry) -> Written:
        if not self._begun:  # its rows would lie there, and nobody would say so
            raise ClientClosed(
                "the outbox has not begun: use it inside of `async with outbox`; or, where another process sends, make "
                "it with pace=Pace(sender=False, watchdog=False)"
            )
        connection = session if isinstance(session, AsyncConnection) else await session.connection()
        return await connection.run_sync(self._scribe.write, entry)

    def statistics(self) -> dict[str, int]:
        """Of this process: rows ``sent``, of them ``recovered`` as the leader; ``postponed``, set ``aside``, ``left``
        to the watchdog; and whether it is ``leading``.
        """
        return {} if self._running is None else self._running.statistics()

    async def close(self) -> None:
        """Send what was committed, for a while, and leave. A client that was given is left open."""
        running, self._running = self._running, None
        if running is not None:
            await running.close()

    def _committed(self, written: Sequence[Written]) -> None:
        if self._running is not None:
            self._running.relay.committed(written)
