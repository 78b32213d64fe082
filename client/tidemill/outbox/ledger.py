"""What is asked of the database: each function is one transaction, given a connection that has begun it.

Every statement reaches its rows by an index and touches as many as it was given, or asked for: a table that an outage
has made long costs no more than a short one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sql

from tidemill.outbox.delivering import Fates
from tidemill.outbox.pace import Pace
from tidemill.outbox.row import Entry, Row, State, Written
from tidemill.outbox.schema import LEADER, Tables, now_of

SKIPS_LOCKED = {"postgresql": (9, 5), "mysql": (8,), "mariadb": (10, 6)}
READ = ("id", "identity", "subject", "body", "options", "order_hash", "attempts")
WINDOW_BATCHES = 10
"""Among so many batches of ordered rows it is looked for those that may be sent."""

BLOCKED_ATTEMPTS = 3
"""What waits behind a row that fails is put off as if it had failed so often."""


class Ledger:
    """The statements for one outbox."""

    def __init__(self, found: Tables, pace: Pace, grace_s: float) -> None:
        self.tables = found
        self._messages = found.messages
        self._lease = found.lease
        self._pace = pace
        self.grace_ms = round(grace_s * 1000)

    # -- writing -----------------------------------------------------------------------------------------------

    def write(self, connection: sql.Connection, entry: Entry) -> int:
        """A row in the caller's transaction; its number."""
        now = now_of(connection.dialect.name)
        statement = self._messages.insert().values(
            identity=entry.identity,
            subject=entry.subject,
            body=entry.body,
            options=entry.options,
            order_hash=entry.order_hash,
            state=entry.state,
            due_ms=0 if entry.state is State.ORDERED else now + self.grace_ms,
            created_ms=now,
            attempts=0,
            reason="",
        )
        key = connection.execute(statement).inserted_primary_key
        assert key is not None
        return int(key[0])

    # -- reading -----------------------------------------------------------------------------------------------

    def committed(self, connection: sql.Connection, written: Sequence[Written]) -> list[Row]:
        """Those of them that are committed, and wait. Others see nothing of a transaction that is not."""
        messages = self._messages
        ids = [one.id for one in written]
        asked = self._sizes().where(messages.c.id.in_(ids), messages.c.state == State.WAITING)
        wanted = {one.identity for one in written}
        rows = self._read(connection, connection.execute(asked.order_by(messages.c.id)).all())
        return [row for row in rows if row.identity in wanted]

    def due(self, connection: sql.Connection) -> list[Row]:
        """Rows without an order key that were left. Those that another process is just deleting are passed over."""
        messages, now = self._messages, now_of(connection.dialect.name)
        asked = (
            self._sizes()
            .where(messages.c.state == State.WAITING, messages.c.due_ms <= now)
            .order_by(messages.c.due_ms, messages.c.id)
            .limit(self._pace.batch_rows)
        )
        if skips_locked(connection):
            asked = asked.with_for_update(skip_locked=True)
        return self._read(connection, connection.execute(asked).all())

    def in_order(self, connection: sql.Connection) -> list[Row]:
        """Rows with order keys that may be sent: not while an older one of their key waits for its time."""
        messages, window = self._messages, WINDOW_BATCHES * self._pace.batch_rows
        self._wake(connection, window)
        older = messages.alias("older")
        blocked = sql.exists().where(
            older.c.order_hash == messages.c.order_hash,
            older.c.id < messages.c.id,
            older.c.state == State.ORDERED,
            older.c.due_ms > 0,
        )
        asked = (
            self._sizes()
            .add_columns(blocked.label("blocked"))
            .where(messages.c.state == State.ORDERED, messages.c.due_ms == 0)
            .order_by(messages.c.id)
            .limit(window)
        )
        found = connection.execute(asked).all()
        free = [row for row in found if not row.blocked]
        if len(found) == window and len(free) < self._pace.batch_rows:
            # What waits behind a few keys fills the window: out of it, so that other keys are seen.
            self._put_off(connection, [row.id for row in found if row.blocked], BLOCKED_ATTEMPTS)
        return self._read(connection, free[: self._pace.batch_rows])

    def _wake(self, connection: sql.Connection, window: int) -> None:
        """The time of postponed rows has come. Not all at once: a row that still waits holds up those behind it."""
        messages, now = self._messages, now_of(connection.dialect.name)
        asked = (
            sql.select(messages.c.id)
            .where(messages.c.state == State.ORDERED, messages.c.due_ms > 0, messages.c.due_ms <= now)
            .order_by(messages.c.due_ms, messages.c.id)
            .limit(window)
        )
        if ids := connection.execute(asked).scalars().all():
            connection.execute(messages.update().where(messages.c.id.in_(ids)).values(due_ms=0))

    def _sizes(self) -> Any:
        return sql.select(self._messages.c.id, sql.func.length(self._messages.c.body).label("size"))

    def _read(self, connection: sql.Connection, sizes: Sequence[Any]) -> list[Row]:
        """So many of them as may be in memory at once, and one at least; in their order."""
        ids: list[int] = []
        room = self._pace.batch_bytes
        for row in sizes:
            room -= row.size
            if ids and room < 0:
                break
            ids.append(row.id)
        if not ids:
            return []
        messages = self._messages
        asked = sql.select(*(messages.c[name] for name in READ)).where(messages.c.id.in_(ids))
        rows = {
            one.id: Row(
                one.id,
                one.identity,
                one.subject,
                bytes(one.body),
                bytes(one.options),
                one.order_hash,
                one.attempts,
            )
            for one in connection.execute(asked)
        }
        return [rows[number] for number in ids if number in rows]

    # -- what became of them -----------------------------------------------------------------------------------

    def settle(self, connection: sql.Connection, fates: Fates) -> None:
        """Delete what was stored, set aside what was refused, postpone what is to be tried later."""
        messages = self._messages
        if fates.stored:
            connection.execute(messages.delete().where(messages.c.id.in_(fates.stored)))
        for number, reason in fates.refused.items():
            aside = {"state": int(State.ASIDE), "due_ms": 0, "reason": reason}
            connection.execute(
                messages.update()
                .where(messages.c.id == number)
                .values(attempts=messages.c.attempts + 1, **aside)
            )
        groups: dict[int, list[int]] = {}
        for row in fates.later:
            groups.setdefault(row.attempts, []).append(row.id)
        for attempts, ids in groups.items():
            self._put_off(connection, ids, attempts, fates.trouble)
        self._pace.reached("settling")

    def _put_off(
        self, connection: sql.Connection, ids: Sequence[int], attempts: int, reason: str | None = None
    ) -> None:
        """Rows that wait equally long, by one statement."""
        messages, now = self._messages, now_of(connection.dialect.name)
        values: dict[str, Any] = {"due_ms": now + self._pace.delay_ms(attempts)}
        if reason is not None:
            values |= {"attempts": attempts + 1, "reason": reason}
        chosen = messages.c.id.in_(ids) & (messages.c.state != State.ASIDE)
        connection.execute(messages.update().where(chosen).values(**values))

    # -- who leads ---------------------------------------------------------------------------------------------

    def lead(self, connection: sql.Connection, owner: str, lease_ms: int) -> bool:
        """Take the lease, or renew it: when it is ours, or over by the database's clock.

        The number grows with it, so that MySQL, which counts rows that changed, counts this one.
        """
        lease, now = self._lease, now_of(connection.dialect.name)
        free = (lease.c.owner == owner) | (lease.c.until_ms <= now)
        taken = connection.execute(
            lease.update()
            .where(lease.c.name == LEADER, free)
            .values(owner=owner, until_ms=now + lease_ms, number=lease.c.number + 1)
        )
        self._pace.reached("leasing")
        return taken.rowcount == 1

    def resign(self, connection: sql.Connection, owner: str) -> None:
        """Let the next one lead at once."""
        lease = self._lease
        ours = (lease.c.name == LEADER) & (lease.c.owner == owner)
        connection.execute(lease.update().where(ours).values(owner="", until_ms=0))


def skips_locked(connection: sql.Connection) -> bool:
    """Whether the database can pass over rows that others have locked."""
    dialect = connection.dialect
    name = "mariadb" if getattr(dialect, "is_mariadb", False) else dialect.name
    return name in SKIPS_LOCKED and (dialect.server_version_info or (0,)) >= SKIPS_LOCKED[name]
