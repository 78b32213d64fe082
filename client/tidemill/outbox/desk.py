"""What a person asks of an outbox: how it is, and what becomes of rows that were set aside."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sql

from tidemill.outbox.row import State
from tidemill.outbox.schema import LEADER, Tables, check, now_of

SHOWN_MAX = 100
COUNTED_MAX = 100_000


def status(connection: sql.Connection, found: Tables) -> dict[str, Any]:
    """Numbers of rows by state, the age of the oldest and its trouble, who leads; the first that were set aside.

    Rows are counted up to ``COUNTED_MAX`` a state, so that asking stays quick when it matters most.
    """
    check(connection, found)
    messages, now = found.messages, now_of(connection.dialect.name)
    answer: dict[str, Any] = {"table": found.name, "trouble": ""}
    oldest: list[int] = []
    for name, state in (("waiting", State.WAITING), ("ordered", State.ORDERED), ("aside", State.ASIDE)):
        some = sql.select(messages.c.id).where(messages.c.state == state).limit(COUNTED_MAX).subquery()
        answer[name] = connection.execute(sql.select(sql.func.count()).select_from(some)).scalar_one()
    for state in (State.WAITING, State.ORDERED):
        asked = sql.select(now - messages.c.created_ms, messages.c.reason).where(messages.c.state == state)
        row = connection.execute(asked.order_by(messages.c.due_ms, messages.c.id).limit(1)).first()
        if row is not None:
            oldest.append(int(row[0]))
            answer["trouble"] = answer["trouble"] or row[1]
    answer["oldest_seconds"] = max(oldest, default=0) / 1000
    lease = found.lease
    seat = connection.execute(
        sql.select(lease.c.owner, lease.c.until_ms - now).where(lease.c.name == LEADER)
    ).one()
    answer["leader"] = seat[0] if seat[0] and seat[1] > 0 else None
    answer["set_aside"] = set_aside(connection, found)
    return answer


def set_aside(connection: sql.Connection, found: Tables, shown: int = SHOWN_MAX) -> list[dict[str, Any]]:
    """The oldest of them, with their reasons."""
    messages, now = found.messages, now_of(connection.dialect.name)
    asked = (
        sql.select(
            messages.c.id,
            messages.c.identity,
            messages.c.subject,
            (now - messages.c.created_ms).label("age_ms"),
            messages.c.attempts,
            messages.c.reason,
        )
        .where(messages.c.state == State.ASIDE)
        .order_by(messages.c.due_ms, messages.c.id)
        .limit(shown)
    )
    return [dict(row) for row in connection.execute(asked).mappings()]


def retry(connection: sql.Connection, found: Tables, ids: Collection[int] | None = None) -> int:
    """Let rows that were set aside wait again, those with an order key in its order; how many."""
    check(connection, found)
    messages = found.messages
    ordered = messages.c.order_hash.is_not(None)
    state = sql.case((ordered, int(State.ORDERED)), else_=int(State.WAITING))
    values = {"state": state, "due_ms": 0, "attempts": 0, "reason": ""}
    return connection.execute(messages.update().where(_chosen(found, ids)).values(**values)).rowcount


def purge(connection: sql.Connection, found: Tables, ids: Collection[int] | None = None) -> int:
    """Delete rows that were set aside; how many. What waits is deleted by nobody but who has sent it."""
    check(connection, found)
    return connection.execute(found.messages.delete().where(_chosen(found, ids))).rowcount


def _chosen(found: Tables, ids: Collection[int] | None) -> sql.ColumnElement[bool]:
    aside = found.messages.c.state == State.ASIDE
    return aside if ids is None else aside & found.messages.c.id.in_(ids)
