"""What a client may be told. Made once, passed down, never changed."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tidemill.ack_file import AckFile, LockedFile
from tidemill.routes import OpenPort, Web
from tidemill.security import Security
from tidemill.spool_file import Folder, Shelf
from tidemill_wire.codec import Codec, CodecMissing, compress
from tidemill_wire.limits import BATCH_BYTES_MAX, MIB, PULL_BYTES_MAX, PULL_WAIT_MS_DEFAULT, PULL_WAIT_MS_MAX

LINGER_MS_MAX = 5

ProtocolFactory: TypeAlias = Callable[[], asyncio.BaseProtocol]
Connect: TypeAlias = Callable[[ProtocolFactory, str, int], Awaitable[Any]]


def wall_clock_ms() -> int:
    """The time of day. The one place of the async client that asks for it."""
    return time.time_ns() // 1_000_000


async def connect_tcp(factory: ProtocolFactory, host: str, port: int) -> object:
    """A TCP connection of the running loop."""
    return await asyncio.get_running_loop().create_connection(factory, host, port)


POD_VARIABLE = "TIDEMILL_POD"


@dataclass(frozen=True)
class ClientSettings:
    """Everything about a client but its server."""

    name: str = "python"
    """How the client calls itself at the broker: shown to people, means nothing."""

    pod: str = field(default_factory=lambda: os.environ.get(POD_VARIABLE, ""))
    """The uid of the pod that the client runs in, which is in the random names of its consumers."""

    linger_ms: float = 0.0
    """How long a message may wait for company, at most 5. 0: until the next turn of the event loop."""

    batch_bytes: int = MIB
    """A batch, and a frame, is closed when it has so many bytes."""

    compression: Codec | str = Codec.NONE
    """``none``, ``lz4`` or ``zstd``; the latter two need their package here and where it is consumed:
    ``pip install 'tidemill[compression]'``. One that is missing is ``CodecMissing`` at once.
    """

    memory_bytes_max: int = 64 * MIB
    """Bytes of messages sent and not answered; beyond it ``send`` waits."""

    send_timeout_s: float = 30.0
    """How long a send is tried. Then it fails, with what is known about it."""

    connect_timeout_s: float = 5.0
    """How long a connection may take to come to be, greeting included."""

    dead_peer_s: float = 9.0
    """A broker that said nothing for so long, pings notwithstanding, is gone."""

    backoff_base_s: float = 0.05
    """The first wait after a failure is random, up to this; it doubles."""

    backoff_max_s: float = 2.0
    """No wait is longer than this."""

    close_timeout_s: float = 5.0
    """How long leaving a ``consume`` block waits for its last answers, and leaving a client by a cancellation, or by
    Ctrl-C, for what was sent.
    """

    spool_path: str | Path | None = None
    """A file for what is sent while no broker can be reached. ``None``: such sends wait, and fail at their deadline.
    Beside it, with ``.acks`` added to its name, one for acks that cannot be told.
    """

    spool_after_s: float = 1.0
    """How long no broker was reached before the spool is used."""

    spool_bytes_max: int = 1024 * MIB
    """How large the spool file may become; beyond it sends wait, and fail at their deadline. That of acks has the same
    bound, and 64 MiB.
    """

    state_dir: str | Path | None = None
    """Where consumers remember their random names. ``None``: a new name for each consumer."""

    prefetch_messages: int = 1 << 17
    """Messages pulled ahead of the handler at most. A slow handler gets far fewer: what it handles in a second."""

    prefetch_bytes: int = 16 * MIB
    """Bytes pulled ahead of the handler."""

    pull_bytes: int = 4 * MIB
    """Bytes asked for by one pull."""

    pull_wait_ms: int = PULL_WAIT_MS_DEFAULT
    """How long a pull waits at the broker for a message."""

    ack_linger_ms: float = 1.0
    """How long an ack of an advancing loop may wait for company. An awaited ``ack()`` never waits."""

    routes_poll_s: float = 30.0
    """How often routes are asked for while no watch stream tells them, give or take a quarter."""

    routes_cache: str | Path | bool = True
    """A file for the last good routes: a client that begins while nobody says who serves goes by them. ``True``: one
    for each server in ``$XDG_CACHE_HOME/tidemill``, or ``~/.cache/tidemill``, where such a folder can be written to.
    ``False``: none, and such a client waits.
    """

    random: random.Random = field(default_factory=random.SystemRandom)
    """All chance: names, ids, jitter. The system's, because a copied state would give two processes one identity."""

    now_ms: Callable[[], int] = wall_clock_ms
    """The time of day, for ``created_at`` and ids."""

    stay_awake: bool = True
    """Whether to wait awake, for a fraction of a millisecond, for answers to sends that come that fast."""

    seconds: Callable[[], float] = time.monotonic
    """A clock fine enough for that: an event loop's own may count in milliseconds."""

    security: Security | None = None
    """Certificates and tokens. ``None``: as the environment says."""

    connect: Connect = connect_tcp
    """How a connection comes to be. Tests have others."""

    open_port: OpenPort = Web
    """How the HTTP port of a server is asked. Tests have others."""

    open_ack_file: Callable[[Path], AckFile] = LockedFile
    """The file of the spool of acks. Tests have others."""

    shelf: Shelf = field(default_factory=Folder)
    """Where the files of the spool are. Tests have others."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "compression", _usable(parse_codec(self.compression)))
        checks: tuple[tuple[bool, str], ...] = (
            (0 <= self.linger_ms <= LINGER_MS_MAX, f"linger_ms is within 0 and {LINGER_MS_MAX}"),
            (
                0 < self.batch_bytes <= BATCH_BYTES_MAX // 2,
                f"batch_bytes is within 1 and {BATCH_BYTES_MAX // 2}",
            ),
            (0 < self.pull_bytes <= PULL_BYTES_MAX, f"pull_bytes is within 1 and {PULL_BYTES_MAX}"),
            (0 <= self.pull_wait_ms <= PULL_WAIT_MS_MAX, f"pull_wait_ms is within 0 and {PULL_WAIT_MS_MAX}"),
            (
                self.prefetch_messages > 0 and self.prefetch_bytes > 0,
                "prefetch is at least one message and byte",
            ),
            (
                self.send_timeout_s > 0 and self.connect_timeout_s > 0 and self.dead_peer_s > 0,
                "timeouts are positive",
            ),
        )
        checks += (
            (self.memory_bytes_max > 0, "memory_bytes_max is at least one byte"),
            (self.spool_bytes_max > 0, "spool_bytes_max is at least one byte"),
            (self.spool_after_s >= 0, "spool_after_s is not negative"),
            (self.backoff_base_s > 0 and self.backoff_max_s > 0, "backoffs are positive"),
            (self.close_timeout_s >= 0, "close_timeout_s is not negative"),
            (self.routes_poll_s > 0, "routes_poll_s is positive"),
        )
        for holds, sentence in checks:
            if not holds:
                raise ValueError(f"a setting is out of its range: {sentence}")

    @property
    def token(self) -> str:
        """Who the client is, as it is now."""
        return "" if self.security is None else self.security.current_token()

    @property
    def codec(self) -> Codec:
        """``compression``, parsed."""
        return parse_codec(self.compression)


def _usable(codec: Codec) -> Codec:
    """The same. Without its package the first batch would find out, and whoever sends has gone on by then."""
    try:
        compress(codec, b"")
    except CodecMissing as error:
        name = codec.name.lower()
        raise CodecMissing(
            f"compression {name!r} needs a package that is not installed: run `pip install 'tidemill[compression]'`"
        ) from error
    return codec


def parse_codec(text: Codec | str) -> Codec:
    """A codec by its name."""
    if isinstance(text, Codec):
        return text
    try:
        return Codec[text.upper()]
    except KeyError:
        raise ValueError(f"compression {text!r} is none of none, lz4 and zstd") from None
