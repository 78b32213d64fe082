"""What a service must be to have slaves: what master and follower ask of the machine inside them.

The machine inside is the one that runs alone. A master tells it of what is committed as the host tells a lone one of
what is written; a follower lets it decide nothing, and hands what arrives to an ``Applier``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidemill_host.machine import Buffer, Durability, Machine, Read, Slice, Unread
from tidemill_ledger.logs import Logs
from tidemill_ledger.receiving import Whole
from tidemill_wire.connection import Event
from tidemill_wire.replication import Ends, EpochStart


class Keeping(Protocol):
    """Its housekeeping."""

    sync_now: bool
    level: bool
    """Both logs are as they were at one moment; a slave's may not be, and are then nothing to begin with again."""

    @property
    def checkpoint_number(self) -> int:
        """Of the newest."""
        ...

    def pack(self, message_position: int, action_position: int, now_ms: int) -> bytes:
        """The state as it is now, up to these positions, for whoever begins with it."""
        ...

    def note(self, events: int, now_ms: int) -> None:
        """So many batches or actions were written."""
        ...

    def persisted(self, now_ms: int) -> None:
        """The disk has come further."""
        ...

    def wants_sync(self) -> bool:
        """Whether the next ``Ready`` asks for a sync that no answer waits for; asked once."""
        ...

    def check(self) -> None:
        """Invariants."""
        ...


class Replicated(Machine[Event], Protocol):
    """The machine inside."""

    folds_messages: bool
    """Its actions speak of messages, and what those were is in its state: so messages are sent before the actions, and
    with a copy of the state only those that come. Else actions come first, and all messages that there are.
    """

    @property
    def logs(self) -> Logs: ...

    @property
    def keeping(self) -> Keeping: ...

    @property
    def epochs(self) -> Sequence[EpochStart]:
        """Those that its log has begun."""
        ...

    def hide(self) -> None:
        """Show nothing before the first mark: nobody knows yet who else has what a master begins with."""
        ...

    def reveal(self, level: Durability, reached: int, now_ms: int) -> None:
        """Show what asks for no more than that level, as far as it has come."""
        ...

    def files(self) -> Sequence[Slice]:
        """What a copy of the state as it is now needs besides; it grows, and is not changed."""
        ...

    def hold(self, *, on: bool) -> None:
        """A slave is being sent such files, and what follows on them: nothing of it is removed."""
        ...

    def check(self) -> None:
        """Invariants."""
        ...


class Applier(Protocol):
    """What a slave makes of what arrives: into the logs it goes as it is, and into the state as its master had it."""

    def messages(self, whole: Whole, *, apply: bool) -> int:
        """Batches, into the log, and into the state unless a snapshot will have them; how many."""
        ...

    def actions(self, whole: Whole, *, apply: bool) -> int:
        """Records, in the same way."""
        ...

    def show(self, committed: Ends) -> None:
        """What may be looked at."""
        ...

    def ticked(self, now_ms: int, *, keep: bool) -> int:
        """What there is to do from time to time, with the housekeeping unless a copy is under way; when again."""
        ...

    def loaded(self, token: int, data: Buffer | Unread) -> None:
        """What one of the reads brought."""
        ...

    def files(self, snapshot: bytes) -> Sequence[tuple[str, int]]:
        """Which files come with a snapshot, and how large they are; or ``CorruptRecord``."""
        ...

    def take_reads(self) -> list[Read]:
        """What is to be read."""
        ...

    def check(self) -> None:
        """Invariants."""
        ...
