"""Sockets as a process sees those of the simulated network."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

from tidemill_host.silence import INFO


class FakeSocket:
    """What ``get_extra_info("socket")`` gives: names, options, and for how long the peer's kernel has been silent; no
    descriptor.
    """

    family, type, proto = socket.AF_INET, socket.SOCK_STREAM, 6

    def __init__(self, own: tuple[str, int], peer: tuple[str, int] | None) -> None:
        self._own = own
        self._peer = peer
        self.silence_s: Callable[[], float] = float

    def getsockname(self) -> tuple[str, int]:
        return self._own

    def getpeername(self) -> tuple[str, int]:
        if self._peer is None:
            raise OSError(errno.ENOTCONN, "not connected")
        return self._peer

    def setsockopt(self, *_: object) -> None: ...

    def getsockopt(self, _level: int, name: int, *_: object) -> int | bytes:
        if name != socket.TCP_INFO:
            return 0
        silence_ms = int(self.silence_s() * 1000)
        return INFO.pack(0, 0, silence_ms, silence_ms, 0)

    def fileno(self) -> int:
        return -1
