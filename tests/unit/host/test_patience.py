"""The patience of the data port, with a clock that is told: half frames, silence, peers that do not read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from tidemill_host.server import FRAMES_A_READ, Server, ServerConnection
from tidemill_wire import limits
from tidemill_wire.batch import Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Failed, Hello, Kind, Ping, SendBatches, encode_command
from tidemill_wire.connection import Connection, Received, Rejected, Role
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.frame import FRAME_HEADER

HELLO = encode_command(Hello(1, 1, "patient"), 0)
HALF = FRAME_HEADER.pack(1000, Kind.SEND, 0, 1) + bytes(10)
SLOW_SECONDS = limits.SLOW_FRAME_MS / 1000
HELLO_SECONDS = limits.HELLO_MS / 1000


class FakeTransport:
    """Keeps what was written, and whether it is read from."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closing = self.aborted = False
        self.reading = True

    def get_extra_info(self, _name: str) -> None:
        """It has no certificate."""

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.aborted = self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


class Scene:
    """A server without a machine, and one connection to it."""

    def __init__(self) -> None:
        self.posted: list[object] = []
        self.turn = SimpleNamespace(
            deliver=None, drop=None, eased=None, backlog_bytes=0,
            connected=lambda peer: None, collected=lambda size: None,
            now_ms=lambda: 0, disconnected=lambda peer, silent_ms: None, unsent=None,
            post=lambda peer, event: self.posted.append(event),
        )  # fmt: skip
        self.server = Server(cast("Any", self.turn), cast("Any", None), cast("Any", None), "broker")
        self.transport = FakeTransport()
        self.connection = ServerConnection(self.server)
        self.connection.connection_made(cast("Any", self.transport))
        self.now = asyncio.get_running_loop().time()

    def say(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            with self.connection.get_buffer(-1) as room:
                count = min(len(room), len(rest))
                room[:count] = rest[:count]
            rest = rest[count:]
            self.connection.buffer_updated(count)

    def check(self, seconds: float) -> None:
        """So much later."""
        self.connection.check(self.now + seconds)
        self.server.outlet.check(self.now + seconds)

    def refusals(self) -> list[int]:
        """Numbers of the errors that were said."""
        numbers: list[int] = []
        for event in Connection(Role.CLIENT).feed(bytes(self.transport.written)):
            if isinstance(event, Rejected):
                numbers.append(event.error.kind.number)
            elif isinstance(event, Received) and isinstance(event.command, Failed):
                numbers.append(event.command.number)
        return numbers


def on_the_scene(play: Callable[[Scene], None]) -> None:
    async def main() -> None:
        play(Scene())

    asyncio.run(main())


TOO_SLOW = [KIND_BY_NAME["too_slow"].number]


def test_half_a_frame_is_waited_for_and_then_refused() -> None:
    def play(scene: Scene) -> None:
        scene.say(HELLO + HALF)
        scene.check(SLOW_SECONDS - 1)
        assert not scene.transport.closing
        scene.check(SLOW_SECONDS + 1)
        assert scene.refusals() == TOO_SLOW
        assert scene.transport.closing
        assert scene.server.statistics.refused == {"too_slow": 1}

    on_the_scene(play)


def test_a_frame_that_drips_is_as_slow_as_one_that_stops() -> None:
    def play(scene: Scene) -> None:
        scene.say(HELLO + HALF)
        scene.check(SLOW_SECONDS / 2)
        scene.say(bytes(10))
        scene.check(SLOW_SECONDS + 1)
        assert scene.refusals() == TOO_SLOW

    on_the_scene(play)


def test_who_is_silent_between_frames_is_left_alone() -> None:
    def play(scene: Scene) -> None:
        scene.say(HELLO + encode_command(Ping(), 1))
        scene.check(1e6)
        assert not scene.transport.closing

    on_the_scene(play)


def test_who_never_greets_is_refused() -> None:
    def play(scene: Scene) -> None:
        scene.check(HELLO_SECONDS - 1)
        assert not scene.transport.closing
        scene.check(HELLO_SECONDS + 1)
        assert scene.refusals() == TOO_SLOW

    on_the_scene(play)


def test_who_does_not_even_read_the_refusal_is_cut_off_and_counted_once() -> None:
    """``close`` waits until all is written: a peer that reads nothing would be kept for ever."""

    def play(scene: Scene) -> None:
        scene.check(HELLO_SECONDS + 1)
        assert not scene.transport.aborted
        scene.check(HELLO_SECONDS + 2)
        assert scene.transport.aborted
        assert scene.server.statistics.refused == {"too_slow": 1}

    on_the_scene(play)


def test_who_does_not_read_is_not_read_from_and_then_cut_off() -> None:
    def play(scene: Scene) -> None:
        scene.say(HELLO)
        scene.connection.pause_writing()
        assert not scene.transport.reading
        scene.check(SLOW_SECONDS - 1)
        assert not scene.transport.aborted
        scene.check(SLOW_SECONDS + 1)
        assert scene.transport.aborted

    on_the_scene(play)


def test_who_reads_again_is_read_from_again() -> None:
    def play(scene: Scene) -> None:
        scene.say(HELLO)
        scene.connection.pause_writing()
        scene.connection.resume_writing()
        assert scene.transport.reading
        scene.check(SLOW_SECONDS + 1)
        assert not scene.transport.closing

    on_the_scene(play)


def test_a_read_of_many_frames_gives_the_others_a_turn() -> None:
    async def main() -> None:
        scene = Scene()
        scene.say(HELLO + encode_command(Ping(), 1) * (FRAMES_A_READ + 1))
        assert not scene.transport.reading
        await asyncio.sleep(0)
        assert scene.transport.reading

    asyncio.run(main())


def test_who_sends_while_the_disk_is_behind_is_held_until_it_has_caught_up() -> None:
    batch = build_batch(Origin(b"x", 1, 1, bytes(16), 0), Content([b"x"]))

    def play(scene: Scene) -> None:
        scene.say(HELLO)
        scene.turn.backlog_bytes = limits.BACKLOG_BYTES_MAX + 1
        scene.say(encode_command(Ping(), 1))
        assert scene.transport.reading  # consumers and pings go on
        scene.say(encode_command(SendBatches(batch), 2) + HALF)
        assert not scene.transport.reading
        scene.check(SLOW_SECONDS + 1)
        assert not scene.transport.closing  # it was not slow, it was not listened to
        scene.turn.eased()
        assert not scene.transport.reading
        scene.turn.backlog_bytes = 0
        scene.turn.eased()
        assert scene.transport.reading

    on_the_scene(play)
