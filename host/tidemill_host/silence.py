"""Peers that are gone without a word: a cable was pulled, a machine lost its power.

Nothing comes from them any more, not even the end of their connections; and who only waits for a peer sends nothing
that could fail. So the kernel asks: a peer that said nothing for ``ASKED_AFTER_S`` is sent a probe every second, which
its kernel answers, however busy or stopped the program there is. How long the peer's kernel has been silent, this
kernel knows.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Protocol

from tidemill_wire import limits

ASKED_AFTER_S = limits.PEER_SILENT_MS // 2000
ASKED_EVERY_S = 1
UNTAKEN_MS = limits.SLOW_FRAME_MS
"""The kernel itself ends a connection that did not take for so long what was sent, or that answers no probe."""

INFO = struct.Struct("<24xI16xI4xII84xI")
"""Of ``struct tcp_info``: segments on their way, milliseconds since something was sent, since data came, since an
acknowledgement came; bytes that never left, as the peer's window is shut. Linux adds to its end only.
"""


class Options(Protocol):
    """As much of a socket as this needs: an event loop's own ones are not quite sockets."""

    def setsockopt(self, level: int, name: int, value: int, /) -> object: ...


def probe(sock: Options) -> None:
    """Let the kernel ask its peer. Of a socket that listens, all connections inherit it. Where a kernel has none of
    these options, it asks as seldom as it likes.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", ASKED_AFTER_S),
        ("TCP_KEEPINTVL", ASKED_EVERY_S),
        ("TCP_KEEPCNT", limits.PEER_SILENT_MS // 1000 - ASKED_AFTER_S),
        ("TCP_USER_TIMEOUT", UNTAKEN_MS),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def silent_ms(transport: asyncio.BaseTransport) -> int | None:
    """For how long the peer's kernel was not heard of; ``None`` where this kernel does not say."""
    sock = transport.get_extra_info("socket")
    if sock is None or not hasattr(socket, "TCP_INFO"):
        return None
    said = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO.size)
    if not isinstance(said, bytes) or len(said) < INFO.size:
        return None
    on_their_way, _sent, data_came, acknowledged, never_left = INFO.unpack(said)
    if never_left and not on_their_way:
        return (
            0  # it does not read, and is asked less and less often whether it does: that is another patience
        )
    return min(int(data_came), int(acknowledged))
