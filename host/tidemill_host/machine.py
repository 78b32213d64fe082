"""The contract between a machine, which decides, and the host, which does.

A machine is a plain object: values and ``now_ms`` in, a ``Ready`` out. It owns no socket, file, clock or thread.
The host owns all of them and knows nothing of messages. One turn of the host is

    collect (commands that arrived) -> decide (``received`` for each, then ``ready``) -> persist -> reply

The host's duties, which every line of a machine relies on:

1. Writes of one ``Ready`` happen in their order, and those of ``Ready`` n before those of n + 1.
2. A ``Send`` that asks for ``WRITTEN`` leaves after the writes of its own and of all earlier ``Ready``s are in the
   page cache; one that asks for ``SYNCED`` leaves after they are on the disk. One fsync serves all that wait.
3. ``persisted`` is called, in order, with how far both levels have come; a machine shows nothing before that.
4. A write that fails is never answered: the host stops the process, and recovery decides what was kept.
5. ``ready`` is called until it is empty, so a machine may answer a ``persisted`` with more sends.
6. Bytes that the disk refuses twice are answered as ``Unread``: what that means is the machine's to judge. When it
   refuses many places, it is the disk that fails, and the service ends as by duty 4. A ``Send`` of which it refuses a
   slice does not leave: its ``unread`` is told so in a turn, as ``loaded`` is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, NewType, Protocol, TypeAlias, TypeVar

Buffer: TypeAlias = bytes | bytearray | memoryview

Peer = NewType("Peer", int)
"""A connection, numbered by the host from 1. 0 is the host itself (disk space, settings)."""

HOST = Peer(0)


class Durability(IntEnum):
    """How far the writes before a send must have come."""

    HERE = 0
    """For the host as ``WRITTEN``; for a machine with replicas: whatever they have."""
    WRITTEN = 1
    SYNCED = 2


class Append(NamedTuple):
    """Bytes for the end of a file; the file and its folder are made when missing."""

    file: str
    buffers: Sequence[Buffer]
    size: int
    apart: bool = False
    """No sync of the machine's is of these bytes: whoever needs them on the disk sees to that by a ``Read``."""


@dataclass(frozen=True, slots=True)
class Replace:
    """A whole file, atomically: temporary file, fsync, rename, fsync of the folder.

    ``content`` may be a function: it is then called off the loop, so sorting an index stalls nobody.
    It must touch only what it was given.
    """

    file: str
    content: Buffer | Callable[[], Buffer]


@dataclass(frozen=True, slots=True)
class Remove:
    """A file that nothing refers to any more. Missing is fine: a crash may have come in between."""

    file: str


Write: TypeAlias = Append | Replace | Remove


class Slice(NamedTuple):
    """Bytes of a file that travel without becoming Python objects of the machine."""

    file: str
    position: int
    size: int


class Unread(NamedTuple):
    """Instead of bytes: the disk has them and does not give them."""

    slice: Slice
    problem: str

    def __str__(self) -> str:
        file, position, size = self.slice
        return f"{size} bytes at position {position} of {file} cannot be read ({self.problem})"


class Send(NamedTuple):
    """One frame for a peer: ``head`` and ``slices`` are put on the wire back to back."""

    peer: Peer
    head: bytes
    slices: Sequence[Slice] = ()
    after: Durability = Durability.WRITTEN
    unread: Callable[[Unread, int], None] | None = None
    """Told, with the time, that the frame did not leave; who is told may answer otherwise. When nobody is to be told,
    the peer's connection ends: it cannot tell a short answer from a good one.
    """


class Read(NamedTuple):
    """Bytes the machine needs before it can decide. The answer comes as ``loaded(token, data)``.

    A function instead of a slice is called off the loop, and the answer is what it returns: sorting an index neither
    stalls the loop nor the writes. It must touch only what it was given.
    """

    token: int
    slice: Slice | Callable[[], Buffer]


@dataclass(slots=True)
class Ready:
    """What the host must do now. Built by the machine, owned by the host once returned."""

    writes: list[Write] = field(default_factory=list[Write])
    sends: list[Send] = field(default_factory=list[Send])
    reads: list[Read] = field(default_factory=list[Read])
    drops: list[Peer] = field(default_factory=list[Peer])
    sync: bool = False
    """Ask for an fsync of what has been written so far, though no send waits for it."""
    wake_at_ms: int | None = None
    """``ticked`` no later than this. The next ``Ready`` replaces it."""

    def __bool__(self) -> bool:
        return bool(self.writes or self.sends or self.reads or self.drops or self.sync)


class Mark(NamedTuple):
    """How far the host has come, counted in ``Ready``s that had writes: the first one is number 1."""

    written: int
    synced: int


Command = TypeVar("Command", contravariant=True)


class Machine(Protocol[Command]):
    """What the host runs."""

    def connected(self, peer: Peer, now_ms: int) -> None: ...

    def disconnected(self, peer: Peer, now_ms: int, silent_ms: int = 0) -> None:
        """It is gone; when nobody said so, it has not been heard of for ``silent_ms``."""
        ...

    def received(self, peer: Peer, command: Command, now_ms: int) -> None: ...

    def ticked(self, now_ms: int) -> None: ...

    def persisted(self, mark: Mark, now_ms: int) -> None: ...

    def loaded(self, token: int, data: Buffer | Unread, now_ms: int) -> None: ...

    def ready(self) -> Ready: ...
