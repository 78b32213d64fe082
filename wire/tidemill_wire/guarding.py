"""What one connection may say: every command is judged before the machine hears it, each batch and no message.

    known     a command that is granted       goes on to the machine
    known     a command that is not           refused, and the connection goes on
    known     a SEND with some batches that are not    goes on, and those batches are marked
    known     another charter, which grants less of what it consumes, or knows it not any more    to be closed
    known     its token is over               to be closed
    known     a SEND, and a quota of who sends     goes on, and says who pays
    known     a PULL, and a quota of who consumes  goes on, and says how much that is
    known     one connection more than its quota has   refused, and told when to come again

Whose a message is that is named by its id, or a transaction that nobody has decided, knows the machine alone: it is
told how to ask what this one may, and asks when it has looked.

What somebody waits for comes later: so a connection that consumes what it may not any more is closed, for its PULL is
with the machine. One that only sends goes on, and the next batch is judged by what holds then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tidemill_wire.access import EVERYTHING, Access, Identity, Operation, Right
from tidemill_wire.adopting import Adopt
from tidemill_wire.batch import HEADER_BYTES, PREFIX, read_header
from tidemill_wire.burying import Bury
from tidemill_wire.commands import Command, Goodbye, Ping, Pull, SendBatches, Settle
from tidemill_wire.connection import Event, Received, Rejected
from tidemill_wire.errors import CorruptBatch, Refused, WireError
from tidemill_wire.fields import broadcast_group, living_subject, parse_again
from tidemill_wire.quotas import Meter
from tidemill_wire.steering import Seek, Suspend
from tidemill_wire.timing import Cancel, ListTimers, Reschedule, Show
from tidemill_wire.transacting import Check, Decide, Half
from tidemill_wire.yielding import Yield

Subjects: TypeAlias = Callable[[Decide], Collection[str]]
"""Those of the half messages that a transaction has at this service."""
Told: TypeAlias = Callable[[str, str, str], None]
"""Who, what, and what came of it: for the log of what people did."""
ADMINISTRATION = (Seek, Suspend, Bury)
USED_MAX = 10_000
NAME_LENGTH_AT = 53
NONE: Mapping[int, WireError] = {}
PASSED_ON = "passed on"
"""It is granted; what came of it the machine decides."""


def no_subjects(_asked: Decide) -> Collection[str]:
    """Of a service without transactions."""
    return ()


def nobody_told(_who: str, _what: str, _outcome: str) -> None:
    """Where nothing is noted."""


class Gate:
    """What all connections of one service share."""

    def __init__(self, access: Access, subjects: Subjects = no_subjects, told: Told = nobody_told) -> None:
        self.access = access
        self.subjects = subjects
        self.told = told

    def admit(self, token: str, names: Sequence[str], now_ms: int) -> Guard | None:
        """Somebody connects; nothing is asked of them where nothing is locked."""
        return Guard(self, token, names, now_ms) if self.access.locked else None


class Guard:
    """One connection."""

    def __init__(self, gate: Gate, token: str, names: Sequence[str], now_ms: int) -> None:
        self._gate = gate
        self._shown = token, tuple(names)
        self._version = gate.access.version
        self.identity = gate.access.identify(token, names, now_ms)
        self._consumed: dict[Right, None] = {}
        self._counted_as = self.identity.who
        gate.access.usage.came(self._counted_as)

    def judge(self, event: Event, now_ms: int) -> Event:
        """The same, or what it becomes."""
        if not isinstance(event, Received):
            return event
        try:
            identity = self._renewed(now_ms)
            if identity.all:
                return event
            payer = identity.payer
            if isinstance(event.command, SendBatches):
                refused = refused_batches(event.command.batches, identity)
                if not refused and payer is None:
                    return event
                return Received(event.correlation, replace(event.command, refused=refused, payer=payer))
            self._check(event.command, identity)
        except WireError as error:
            self._tell(event.command, error.kind.name)
            return Rejected(event.correlation, error)
        if isinstance(event.command, ADMINISTRATION):
            self._tell(event.command, PASSED_ON)
        command = self._passed_on(event.command, payer)
        return event if command is event.command else Received(event.correlation, command)

    def sends(self, subject: str) -> bool:
        """Whether it may, by what holds when that is asked."""
        return self.identity.may(Operation.SEND, subject)

    def browses(self, subject: str) -> bool:
        """The same of looking."""
        return self.identity.may(Operation.BROWSE, subject)

    def _passed_on(self, command: Command, payer: Meter | None) -> Command:
        """With who pays, what is bounded, and with what nobody knows before the machine has looked."""
        match command:
            case Pull() if self.identity.bound is not None:
                return replace(command, bound=self.identity.bound)
            case Half() if payer is not None:
                return replace(command, payer=payer)
            case Check():
                return replace(command, may=self.sends)
            case Cancel(target=target) | Reschedule(target=target) if target.id:
                return replace(command, may=self.sends)
            case Show(target=target) if target.id:
                return replace(command, may=self.browses)
            case _:
                return command

    def lost(self, now_ms: int) -> WireError | None:
        """Why the connection is to be closed, if it is."""
        try:
            identity = self._renewed(now_ms)
            identity.check(*self._consumed)
        except WireError as error:
            # What it waits for would come although nobody knows any more who it is.
            return None if error.kind.retryable and not self._consumed else error
        return None

    def left(self) -> None:
        """The connection has ended."""
        self._gate.access.usage.went(self._counted_as)

    def _renewed(self, now_ms: int) -> Identity:
        """Who it is by what holds now."""
        expires_ms = self.identity.expires_ms
        if self._version != self._gate.access.version or (expires_ms and now_ms >= expires_ms):
            self.identity = self._gate.access.identify(*self._shown, now_ms)
            self._version = self._gate.access.version
        return self.identity

    def _check(self, command: Command, identity: Identity) -> None:
        rights = rights_of(command, self._gate.subjects)
        if rights is None:
            raise Refused(
                "forbidden", f"{command.kind.name} is what the cluster's services say to each other"
            )
        if isinstance(command, Decide):
            identity.check_found(*rights)
            return
        identity.check(*rights)
        if isinstance(command, Pull):
            if len(self._consumed) > USED_MAX:
                self._consumed.clear()
            self._consumed.update(dict.fromkeys(rights))

    def _tell(self, command: Command, outcome: str) -> None:
        what = [command.kind.name, *(str(getattr(command, name, "")) for name in ("subject", "group"))]
        self._gate.told(self.identity.who, " ".join(filter(None, what)), outcome)


def refused_batches(batches: bytearray, identity: Identity) -> Mapping[int, WireError]:
    """Which batches of a SEND are not granted, by their place, and why. It reads as whoever stores them reads: where
    one has no end, neither finds another one.
    """
    view, size = memoryview(batches), len(batches)
    sends = identity.sends
    # Most frames are one batch, for what was sent to before: that costs a microsecond.
    if size > HEADER_BYTES and PREFIX.unpack_from(batches)[1] == size:
        name_bytes = batches[HEADER_BYTES : HEADER_BYTES + batches[NAME_LENGTH_AT]]
        if bytes(name_bytes) in sends:
            return NONE
    if identity.may(Operation.SEND, EVERYTHING):
        return NONE
    refused: dict[int, WireError] = {}
    at, place = 0, 0
    while at < size:
        try:
            header = read_header(view, at)
        except CorruptBatch:
            break
        raw_name = bytes(view[at + HEADER_BYTES : at + HEADER_BYTES + header.name_length])
        right = None if raw_name in sends else right_to_send(raw_name.decode("ascii", "replace"))
        if right is not None and identity.may(*right):
            if len(sends) >= USED_MAX:
                sends.clear()
            sends.add(raw_name)
        elif right is not None:
            refused[place] = Refused("forbidden", f"{identity.who} was not granted {right}")
        at += header.length
        place += 1
    return refused


def right_to_send(name: str) -> Right | None:
    """What a batch for a partition needs; nothing when it is for none that anybody may send to."""
    if name[:1] != "%":
        return Right(Operation.SEND, living_subject(name))
    again = parse_again(name)
    return None if again is None else Right(Operation.CONSUME, *again)


def rights_of(command: Command, subjects: Subjects = no_subjects) -> Sequence[Right] | None:
    """What a command needs; ``None``: to be one of the cluster's services."""
    match command:
        case Ping() | Goodbye():
            return ()
        case Pull():
            return _rights_to_pull(command)
        case Settle(group=group, subject=subject) | Adopt(group=group, subject=subject):
            return (Right(Operation.CONSUME, living_subject(subject), group),)
        case Yield(group=group, subjects=several):
            return [Right(Operation.CONSUME, living_subject(subject), group) for subject in several]
        case Seek(subject=subject) | Suspend(subject=subject) | Bury(subject=subject):
            return (Right(Operation.ADMIN, living_subject(subject)),)
        case Half(batch=batch):
            return _rights_to_keep(batch)
        case Decide():
            return [Right(Operation.SEND, subject) for subject in subjects(command)]
        case Check():
            return ()  # it is asked about what it may send
        case Cancel(target=target) | Reschedule(target=target):
            return () if target.id else (Right(Operation.SEND, target.subject),)
        case Show(target=target):
            return () if target.id else (Right(Operation.BROWSE, target.subject),)
        case ListTimers(subject=subject):
            return (Right(Operation.BROWSE, subject or EVERYTHING),)
        case _:
            return None


def _rights_to_pull(pull: Pull) -> Sequence[Right]:
    group = pull.group
    if pull.base and group == broadcast_group(pull.base, pull.consumer):
        group = pull.base
    return [Right(Operation.CONSUME, living_subject(name), group) for name in pull.subjects]


def _rights_to_keep(batch: memoryview) -> Sequence[Right]:
    try:
        header = read_header(batch, 0)
    except CorruptBatch as error:
        raise Refused("corrupt_batch", str(error)) from None
    name = bytes(batch[HEADER_BYTES : HEADER_BYTES + header.name_length]).decode("ascii", "replace")
    right = right_to_send(name)
    return () if right is None else (right,)
