"""The types of frames, and where a group may begin: numbers of the protocol that no command is needed for."""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """The type of a frame."""

    HELLO = 1
    WELCOME = 2
    ERROR = 3
    DONE = 4
    PING = 5
    GOODBYE = 6
    SEND = 16
    SENT = 17
    PULL = 18
    PULLED = 19
    ACK = 20
    NACK = 21
    EXTEND = 22
    RELEASE = 23
    SEEK = 24
    SOUGHT = 25
    REDRIVE = 26
    PURGE = 27
    SUSPEND = 29
    FOLLOW = 32
    FOLLOWED = 33
    CHUNK = 34
    REACHED = 35
    APPOINT = 36
    STAND = 37
    STOOD = 38
    BEGIN = 39
    HANDOVER = 40
    FENCE = 41
    FENCED = 42
    YIELD = 48
    ADOPT = 49
    HALF = 56
    DECIDE = 57
    CHECK = 58
    CHECKS = 59
    CANCEL = 64
    RESCHEDULE = 65
    CHANGED = 66
    SHOW = 67
    LIST = 68
    WAITING = 69


class Start(IntEnum):
    """Where a group that is new to a subject begins. A positive number beyond these is a time in ms."""

    EARLIEST = -1
    LATEST = -2


class Place(IntEnum):
    """Where a group goes on after a SEEK."""

    EARLIEST = 1
    LATEST = 2
    SEQUENCE = 3
    TIME = 4


class Mode(IntEnum):
    """How the consumers of a group share its messages, as a PULL asks for it."""

    AS_DECLARED = 0
    EXCLUSIVE = 1
    BROADCAST = 2
    KEYED = 3
    """Exclusive, by a consumer that handles order keys side by side and keeps each in order itself."""
