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
    REDRIVE = 26
    PURGE = 27


class Start(IntEnum):
    """Where a group that is new to a subject begins. A positive number beyond these is a time in ms."""

    EARLIEST = -1
    LATEST = -2
