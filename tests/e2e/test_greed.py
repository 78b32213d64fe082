"""Peers that want too much: connections, memory, time, files. Everybody else goes on working."""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
from collections.abc import Callable, Iterator

import pytest

from e2e.conftest import MakeQueue
from e2e.peers import Neighbour, Numbers, RawPeer, exchange
from e2e.queues import Queue, wait_until
from tidemill.encode import renumbered
from tidemill_wire import limits
from tidemill_wire.commands import Ack, Kind, Pull, SendBatches, encode_command
from tidemill_wire.frame import FRAME_HEADER

pytestmark = pytest.mark.e2e

IDLE = 5_000
FEW_FILES = ("sh", "-c", 'ulimit -n 300; exec "$@"', "sh", sys.executable, "-m", "tidemill_broker")


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process may have so many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.fail(
            f"this machine allows {hard} open files, and {wanted} are needed: raise it, as by ulimit -Hn {wanted}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_thousands_of_idle_connections_disturb_nobody(queue: Queue, many_files: None) -> None:
    at_rest = queue.memory_bytes()
    peers: list[RawPeer] = []
    try:
        with Neighbour(queue) as neighbour:
            for _ in range(IDLE):
                peers.append(RawPeer(queue, greeted=len(peers) % 2 == 0))
        assert neighbour.rounds >= 10
        grown = queue.memory_bytes() - at_rest
        slowest = asyncio.run(exchange(queue.server, "while.idle", 20))
        print(
            f"\n{IDLE} idle connections: {grown / IDLE / 1024:.1f} KiB each, slowest round {slowest * 1e3:.0f} ms"
        )
        assert queue.metrics()["tidemill_connections"] >= IDLE / 2
        assert grown < IDLE * 32 * limits.KIB
        assert slowest < 2.0
    finally:
        for peer in peers:
            peer.socket.close()
    wait_until("all are forgotten", lambda: queue.metrics()["tidemill_connections"] < 5)
    assert queue.running


def test_half_frames_that_are_held_open_cost_what_was_sent(queue: Queue) -> None:
    """A length of 16 MiB that is announced a hundred times is not 1.6 GiB of memory."""
    at_rest = queue.memory_bytes()
    peers = [RawPeer(queue) for _ in range(100)]
    for peer in peers:
        peer.say(FRAME_HEADER.pack(limits.FRAME_BYTES_MAX, Kind.SEND, 0, 1) + bytes(100_000))
    with Neighbour(queue):
        asyncio.run(exchange(queue.server, "while.halved"))
    assert queue.memory_bytes() - at_rest < 100 * 2 * limits.MIB
    for peer in peers:
        peer.socket.close()
    assert queue.running


def test_unfinished_frames_of_all_together_are_bounded(queue: Queue) -> None:
    """Above the limit the largest one is told that it is too slow, and closed."""
    size = 16 * limits.MIB
    peers = [RawPeer(queue) for _ in range(limits.RECEIVE_BYTES_MAX // size + 4)]
    for peer in peers:
        peer.say(FRAME_HEADER.pack(limits.FRAME_BYTES_MAX, Kind.SEND, 0, 1) + bytes(size))
    with Neighbour(queue):
        wait_until("some are refused", lambda: queue.refused().get("too_slow", 0) >= 1)
    for peer in peers:
        peer.socket.close()
    asyncio.run(exchange(queue.server, "after"))


def wrong_acks(number: int) -> bytes:
    """Each is answered with a sentence, so that answers soon fill whatever there is room in."""
    ack = Ack("g" * 100, "c" * 100, "nowhere", [0, 1])
    return b"".join(encode_command(ack, correlation) for correlation in range(1000))


def torn_sends(number: int) -> bytes:
    torn = SendBatches(Numbers().batch("flood.torn")[:-8])
    return b"".join(encode_command(torn, correlation) for correlation in range(1000))


def large_pulls(number: int) -> bytes:
    pulls = [Pull(f"g{number}-{at}", "c", ["flood.large"], 1 << 20, 8 << 20, 0) for at in range(20)]
    return b"".join(map(encode_command, pulls, range(20)))


@pytest.mark.parametrize("make", [wrong_acks, torn_sends, large_pulls])
def test_who_asks_and_never_reads_the_answers_is_held(queue: Queue, make: Callable[[int], bytes]) -> None:
    with RawPeer(queue) as filler:
        assert filler.refused_batches(Numbers(5).batch("flood.large", [bytes(1 << 20)] * 10)) == []
    at_rest = queue.memory_bytes()
    with RawPeer(queue) as deaf, Neighbour(queue) as neighbour:
        deaf.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            for number in range(10_000):
                deaf.socket.sendall(make(number))
    print(f"\n{make.__name__}: slowest round of the neighbour {neighbour.slowest_seconds * 1e3:.0f} ms")
    assert neighbour.slowest_seconds < 3.0
    assert queue.memory_bytes() - at_rest < 128 * limits.MIB
    asyncio.run(exchange(queue.server, "after"))


def test_who_sends_faster_than_the_disk_is_held(queue: Queue) -> None:
    """600 MiB as fast as the socket takes them: memory stays near the bound of the backlog."""
    batch = Numbers(9).batch("flood.disk", [bytes(1 << 20)] * 15)
    with RawPeer(queue) as peer, Neighbour(queue):
        for number in range(40):
            numbered = renumbered(batch, 100 + number)
            peer.say(FRAME_HEADER.pack(len(numbered), Kind.SEND, 0, number) + numbered)
        for _ in range(40):
            assert peer.hear() is not None
    peak = queue.memory_bytes("VmHWM")
    print(f"\npeak memory {peak / limits.MIB:.0f} MiB")
    assert peak < 400 * limits.MIB
    assert queue.metrics()["tidemill_messages_in_total"] >= 40 * 15


def test_connections_leave_files_for_the_log(make_queue: MakeQueue) -> None:
    """With few files allowed, a crowd is refused before the broker cannot open its own logs any more."""
    queue = make_queue(command=FEW_FILES).start()
    peers = [socket.create_connection((queue.host, queue.port), timeout=20) for _ in range(400)]
    web = [socket.create_connection((queue.host, queue.http_port), timeout=20) for _ in range(100)]
    wait_until("the crowd was seen", lambda: crowd_seen(peers[-1]))
    for peer in peers[200:]:
        peer.close()
    for peer in web:
        peer.close()
    wait_until("there is room", lambda: asyncio.run(exchange(queue.server, "in.the.crowd")) > 0)
    assert queue.refused()["too_many_connections"] > 0
    assert queue.running
    for peer in peers:
        peer.close()


def crowd_seen(last: socket.socket) -> bool:
    return bool(last.recv(1 << 10))
