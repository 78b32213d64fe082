"""The numbers of the action log's words."""

from __future__ import annotations

from enum import IntEnum


class ActionKind(IntEnum):
    """The kinds; numbers are the format's."""

    START = 1
    SUBJECT = 2
    GROUP = 3
    CONSUMER = 4
    SYNCED = 5
    PULL = 16
    ACK = 17
    FAIL = 18
    EXTEND = 19
    RELEASE = 20
    FOREVER_OFFLINE = 21
    SEEK = 22
    LOCK = 23
    UNLOCK = 24
    COMMIT = 25
    ROLLBACK = 26
    PARK = 27
    VOID = 28
    DEAD = 29
    PAUSE = 30
    RESUME = 31
    REDRIVE = 32
    PURGE = 33
    SKIP = 34
    FORGET = 35
    EPOCH = 40
    EXHUME = 41
    ALLOCATE = 50
    REMOVE = 51
    FENCE = 52
    HALF = 56
    CHECK = 57
    REOPEN = 58
