"""Handled once, in the transaction of the handler's own work.

    @worker.on("order.created", group="billing")
    @idempotent(sessions)
    async def charge(message, session):
        session.add(Invoice(...))

The first statement of the transaction writes down that the message is handled; the last is the commit. So the two are
there together, or neither is: a handler that raises, or whose process dies, leaves nothing, and its message comes
again.
Two that handle one message at the same time meet at that row: the second waits for the first, and skips.
A handler that commits by itself would be marked as done before it is, and one that rolls back would do the rest without
the mark: the one is refused before it happens, the other one fails.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol, TypeVar, overload

import sqlalchemy as sql
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from tidemill.outbox.row import Identified, identity
from tidemill.outbox.schema import claims
from tidemill.worker.idempotence import KEEP_SECONDS, claim_id
from tidemill.worker.stores import DONE

T = TypeVar("T")
M = TypeVar("M", bound=Identified)


class AsyncDecorator(Protocol):
    """For coroutine functions."""

    def __call__(
        self, handler: Callable[[M, AsyncSession], Awaitable[T]], /
    ) -> Callable[..., Awaitable[T | None]]: ...


class Decorator(Protocol):
    """For plain functions."""

    def __call__(self, handler: Callable[[M, Session], T], /) -> Callable[..., T | None]: ...


@overload
def idempotent(
    sessions: async_sessionmaker[AsyncSession],
    *,
    group: str | None = None,
    key: Callable[[Any], str] = identity,
    keep_seconds: float = KEEP_SECONDS,
) -> AsyncDecorator: ...
@overload
def idempotent(
    sessions: sessionmaker[Session],
    *,
    group: str | None = None,
    key: Callable[[Any], str] = identity,
    keep_seconds: float = KEEP_SECONDS,
) -> Decorator: ...
def idempotent(
    sessions: Any,
    *,
    group: str | None = None,
    key: Callable[[Any], str] = identity,
    keep_seconds: float = KEEP_SECONDS,
) -> Any:
    """Call the handler with the message and a session, unless the message was handled before; and commit.

    ``group`` is the consumer group, which a worker tells by itself. ``key`` names what must happen once: without one
    the message, also when its row of an outbox was sent twice.
    """
    if keep_seconds <= 0:
        raise ValueError("keep_seconds is positive")
    claim = _Claim(group, key, keep_seconds)

    def decorate(handler: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        is_async = inspect.iscoroutinefunction(handler)
        if isinstance(sessions, sessionmaker if is_async else async_sessionmaker):
            raise TypeError(
                "@idempotent takes an async_sessionmaker for an async handler, and a sessionmaker for a plain one"
            )
        if is_async:

            @wraps(handler)
            async def once(message: Any, context: Any = None) -> Any:
                async with sessions() as session:
                    if not await session.run_sync(claim.take, message, context):
                        return None
                    with _one_transaction(session.sync_session):
                        done = await handler(message, session)
                    await session.commit()
                    return done

            return once

        @wraps(handler)
        def once_plain(message: Any, context: Any = None) -> Any:
            with sessions() as session:
                if not claim.take(session, message, context):
                    return None
                with _one_transaction(session):
                    done = handler(message, session)
                session.commit()
                return done

        return once_plain

    return decorate


def forget(connection: sql.Connection, now: Callable[[], float] = time.time) -> int:
    """Delete what need not be remembered any more; how many rows that were."""
    table = claims(sql.MetaData())
    return connection.execute(table.delete().where(table.c.until <= now())).rowcount


@contextmanager
def _one_transaction(session: Session) -> Generator[None]:
    """What the handler does ends with its transaction, which only we end. Savepoints are its own."""
    begun = session.get_transaction()
    event.listen(session, "before_commit", _refuse_commit)
    try:
        yield
    finally:
        event.remove(session, "before_commit", _refuse_commit)
    if session.get_transaction() is not begun:
        raise RuntimeError(
            "a handler under @idempotent has ended its transaction, and with it the note that the message is handled: "
            "use session.begin_nested() for what may be rolled back, and raise to roll back all"
        )


def _refuse_commit(session: Session) -> None:
    """Here and not on the connection, which would be left within its transaction."""
    if not session.in_nested_transaction():
        raise RuntimeError(
            "a handler under @idempotent does not commit: all of it is committed when it returns, together with the "
            "note that the message is handled"
        )


class _Claim:
    """That a message is handled here, as the first statement of a transaction."""

    def __init__(self, group: str | None, key: Callable[[Any], str], keep_seconds: float) -> None:
        self._group = group
        self._key = key
        self._keep_seconds = keep_seconds
        self._table = claims(sql.MetaData())

    def take(self, session: Session, message: Any, context: Any) -> bool:
        """Whether it is ours to handle. Nothing else was done in the session before."""
        group = self._group or getattr(context, "group", None)
        if group is None:
            raise TypeError(
                "outside of a worker nobody tells the consumer group: say it, as in "
                'idempotent(sessions, group="billing")'
            )
        table, claimed, now = self._table, claim_id(group, self._key(message)), time.time()
        values = {"owner": DONE, "until": now + self._keep_seconds}
        try:
            session.execute(table.insert().values(id=claimed, **values))
        except IntegrityError:
            session.rollback()
        else:
            return True
        # The middleware's claim of the same message, or one that is over, is taken; what is done is not.
        free = (table.c.owner != DONE) | (table.c.until <= now)
        updated: Any = session.execute(table.update().where(table.c.id == claimed, free).values(**values))
        return bool(updated.rowcount)
