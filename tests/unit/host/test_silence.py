"""Peers that are gone without a word: a cable that was pulled, a machine without power."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator

import pytest

from samples.brokers import SUBJECT, batch_of
from samples.stage import HELLO, PORT, Guest, Stage
from tidemill_host.server import CHECK_SECONDS
from tidemill_host.silence import ASKED_AFTER_S, INFO, probe, silent_ms
from tidemill_wire import limits
from tidemill_wire.commands import Done, Ping, Pull, Pulled, SendBatches

GONE_SECONDS = limits.CONSUMER_GONE_MS / 1000
BOTH_WAYS = (("a", "b"), ("b", "a"))


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    assert made.loop.errors == []
    made.loop.dissolve()


def elsewhere(stage: Stage) -> Guest:
    """A guest on the broker's own machine, which no cable can part from it."""
    _, guest = stage.run("a", stage.loop.create_connection(Guest, "a", PORT))
    guest.transport.write(HELLO)
    stage.pass_time(0.1)
    return guest


def pulled(guest: Guest) -> list[Pulled]:
    return [one for one in guest.heard if isinstance(one, Pulled) and one.grants]


@pytest.mark.parametrize(
    "cut",
    [BOTH_WAYS, BOTH_WAYS[1:]],
    ids=["nothing passes", "it hears the broker, and is not heard"],
)
def test_consumer_whose_machine_vanished_loses_its_leases_ten_seconds_after_it_was_heard_of(
    stage: Stage, cut: tuple[tuple[str, str], ...]
) -> None:
    """Its lease is sixty seconds, and its connection never ends by itself."""
    lost, other = stage.guest(), elsewhere(stage)
    other.say(SendBatches(batch_of(b"tide")))
    lost.say(Pull("g", "lost", [SUBJECT], 1, 1 << 20, 0))
    stage.pass_time(1)
    assert len(pulled(lost)) == 1
    lost.say(Pull("g", "lost", [SUBJECT], 1, 1 << 20, 60_000))
    other.say(Pull("g", "other", [SUBJECT], 1, 1 << 20, 60_000))
    stage.pass_time(1)
    stage.network.block(cut)
    stage.pass_time(GONE_SECONDS - 1)
    assert pulled(other) == []

    stage.pass_time(1 + 2 * CHECK_SECONDS)

    assert len(pulled(other)) == 1
    assert stage.refused == {"too_slow": 1}
    assert len(stage.service.server.connections) == 1


def test_machine_without_power_keeps_no_place(stage: Stage) -> None:
    guests = [stage.guest() for _ in range(3)]
    stage.network.power_lost("b")
    stage.pass_time(GONE_SECONDS + 2 * CHECK_SECONDS)

    assert len(guests) == 3
    assert stage.service.server.connections == {}


def test_who_is_there_and_says_nothing_stays(stage: Stage) -> None:
    guest = stage.guest()
    stage.pass_time(10 * GONE_SECONDS)
    guest.say(Ping())
    stage.pass_time(1)

    assert guest.heard[-1] == Done([])


def test_cable_that_is_back_in_time_was_never_gone(stage: Stage) -> None:
    guest = stage.guest()
    for _ in range(3):
        stage.network.block(BOTH_WAYS)
        stage.pass_time(GONE_SECONDS - 2)
        stage.network.unblock(BOTH_WAYS)
        stage.pass_time(GONE_SECONDS)
    guest.say(Ping())
    stage.pass_time(1)

    assert guest.heard[-1] == Done([])


def test_a_listening_socket_hands_its_questions_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        probe(listening)
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as taken:
            asked = taken.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            after = taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
    assert (asked, after) == (1, ASKED_AFTER_S)


class Kernel:
    """What a kernel says of a connection."""

    def __init__(self, on_their_way: int, data_came: int, acknowledged: int, never_left: int) -> None:
        self._said = INFO.pack(on_their_way, 0, data_came, acknowledged, never_left)

    def get_extra_info(self, _name: str) -> Kernel:
        return self

    def getsockopt(self, *_: int) -> bytes:
        return self._said


@pytest.mark.parametrize(
    "kernel, silence",
    [
        (Kernel(0, 9000, 4000, 0), 4000),
        (Kernel(3, 12_000, 11_000, 0), 11_000),
        (Kernel(3, 12_000, 11_000, 5), 11_000),
        (Kernel(0, 60_000, 20_000, 5), 0),
    ],
    ids=["it answers what it is asked", "it takes nothing", "and there is more", "its window is shut"],
)
def test_silence_is_of_a_kernel_and_not_of_who_does_not_read(kernel: Kernel, silence: int) -> None:
    assert silent_ms(kernel) == silence  # type: ignore[arg-type]


def test_this_kernel_says_how_long_a_peer_was_silent() -> None:
    """The places in its answer are those of Linux: what was just heard is not long ago."""

    async def main() -> int | None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        transport, _ = await loop.create_connection(asyncio.Protocol, host, port)
        silence = silent_ms(transport)
        raw = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        assert struct.unpack_from("<2I", raw, 52) == INFO.unpack(raw.ljust(INFO.size, b"\0"))[2:4]
        transport.close()
        server.close()
        return silence

    silence = asyncio.run(main())
    assert silence is not None
    assert silence < 30_000
