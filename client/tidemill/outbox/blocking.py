"""The same outbox for programs without an event loop, and for plain DB-API cursors.

    from tidemill.outbox.blocking import Outbox

    outbox = Outbox(engine)
    with Session(engine) as session, session.begin():
        session.add(order)
        outbox.send(session, "order.created", b"...")

The loop runs in a thread, which begins with the first ``send``, or with ``start()``, in each process that a server has
forked. Fork before: a thread may be inside of the database's driver at that moment, and the child would inherit the
driver's locks. A child of a process that had begun begins anew, and its engine needs a new pool first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, Unpack, cast

import sqlalchemy as sql
from sqlalchemy.orm import Session, scoped_session

from tidemill.background import Background, Lock
from tidemill.encode import Body
from tidemill.errors import ClientClosed
from tidemill.later import Delay
from tidemill.outbox.outbox import Plan, Running
from tidemill.outbox.pace import Pace
from tidemill.outbox.plain import Cursor, Paramstyle
from tidemill.outbox.row import Entry, Options, Written, cancelling, parse_entry, rescheduling
from tidemill.outbox.schema import TABLE
from tidemill.outbox.scribe import Scribe
from tidemill.settings import ClientSettings

__all__ = ["Outbox"]

Where = Session | scoped_session[Any] | sql.Connection | Cursor


class Outbox:
    """Messages that are sent when, and only when, the transaction in which they were written commits.

    ``mq`` is the address of a queue, ``settings`` are those of the client that sends.
    """

    def __init__(
        self,
        engine: sql.Engine,
        mq: str | None = None,
        *,
        table: str = TABLE,
        pace: Pace | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        self._plan = Plan(engine, mq, table, pace or Pace(), settings)
        self._scribe = Scribe(self._plan.ledger, self._committed)
        self._lock = Lock()
        self._running: tuple[Background, Running] | None = None
        self._closed = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Begin: also what other processes left is sent from now on."""
        if self._plan.sends:
            self._behind()

    def send(
        self,
        session: Where,
        subject: str,
        body: Body,
        *,
        paramstyle: Paramstyle | None = None,
        **options: Unpack[Options],
    ) -> Written:
        """Write a message in the transaction of a session, connection or DB-API cursor; it is sent after its commit.

        A cursor tells nobody of its commit: say ``committed(written)`` after it, or the watchdog sends it when its
        grace is over. ``paramstyle`` is for cursors that do not come from their driver's module.
        """
        entry = parse_entry(subject, body, options, now_ms=self._plan.now_ms)
        return self._write(session, entry, paramstyle)

    def cancel(
        self, session: Where, *, subject: str, timer_key: str, paramstyle: Paramstyle | None = None
    ) -> Written:
        """Write in the transaction that what waits under a timer key is cancelled, after its commit: also what was
        written for it before, in this transaction or another one, and not sent yet. What is too far by then is not.
        Of a message that recurs nothing more comes.
        """
        return self._write(session, cancelling(subject, timer_key), paramstyle)

    def reschedule(
        self,
        session: Where,
        *,
        subject: str,
        timer_key: str,
        delay: Delay | None = None,
        at: datetime | None = None,
        paramstyle: Paramstyle | None = None,
    ) -> Written:
        """The same, that it is due at another time."""
        entry = rescheduling(subject, timer_key, delay, at, now_ms=self._plan.now_ms)
        return self._write(session, entry, paramstyle)

    def _write(self, session: Where, entry: Entry, paramstyle: Paramstyle | None) -> Written:
        self.start()
        if isinstance(session, sql.Connection):
            return self._scribe.write(session, entry)
        if isinstance(session, Session | scoped_session):
            return self._scribe.write(cast("Session", session).connection(), entry)
        return self._scribe.write_plain(session, self._plan.database.dialect, paramstyle, entry)

    def committed(self, *written: Written) -> None:
        """The transaction of these, written through a cursor, has committed."""
        self._committed(written)

    def statistics(self) -> dict[str, int]:
        """Of this process, as those of the outbox for asyncio."""
        running = self._running
        if running is None or running[0].pid != os.getpid():
            return {}
        return running[1].statistics()

    def close(self) -> None:
        """Send what was committed, for a while, and leave."""
        with self._lock.of_this_process():
            running, self._running, self._closed = self._running, None, True
        if running is None or running[0].pid != os.getpid():
            return
        background, behind = running
        try:
            background.run(behind.close())
        finally:
            background.stop()

    def _committed(self, written: Sequence[Written]) -> None:
        running = self._running
        if running is not None and running[0].pid == os.getpid():
            running[1].relay.committed(written)

    def _behind(self) -> None:
        running = self._running
        if running is not None and running[0].pid == os.getpid():
            return
        with self._lock.of_this_process():
            if self._closed:
                raise ClientClosed("the outbox is closed")
            if self._running is None or self._running[0].pid != os.getpid():
                background = Background()
                try:
                    behind = background.run(self._plan.open())
                except BaseException:
                    background.stop()
                    raise
                self._running = background, behind
