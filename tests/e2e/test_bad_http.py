"""Whatever comes to the HTTP port: one shape of answer, counted, nothing in the log, nobody else notices."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Iterator

import pytest

from e2e.peers import Neighbour, exchange
from e2e.queues import Queue
from tidemill_wire import limits

pytestmark = pytest.mark.e2e

HEAD = b"Host: x\r\nConnection: close\r\n"
LARGE = 20_000_000

# What is sent, the status, and the code in the answer.
REQUESTS: dict[str, tuple[bytes, int, str]] = {
    "garbage": (os.urandom(50) + b"\r\n\r\n", 400, "http_error"),
    "a frame of the data port": (b"\0\0\0\0\1\0\0\0" + bytes(8), 400, "http_error"),
    "tls": (bytes.fromhex("16030100c8010000c40303") + bytes(200), 400, "http_error"),
    "a huge header": (b"GET / HTTP/1.1\r\n" + HEAD + b"X: " + b"a" * 100_000, 400, "http_error"),
    "an endless header": (b"GET / HTTP/1.1\r\n" + HEAD + b"X: " + b"a" * LARGE, 400, "http_error"),
    "many headers": (b"GET / HTTP/1.1\r\n" + HEAD + b"A: b\r\n" * 200_000, 400, "http_error"),
    "a huge path": (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n", 400, "http_error"),
    "an unknown method": (b"BREW /healthz HTTP/1.1\r\n" + HEAD + b"\r\n", 400, "http_error"),
    "an unknown version": (b"GET / HTTP/9.9\r\n" + HEAD + b"\r\n", 400, "http_error"),
    "a zero in the path": (b"GET /v1/\0 HTTP/1.1\r\n" + HEAD + b"\r\n", 400, "http_error"),
    "a length below zero": (b"POST /v1/routes HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400, "http_error"),
    "two lengths": (
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "http_error",
    ),
    "a method that is not for this": (
        b"DELETE /v1/subjects HTTP/1.1\r\n" + HEAD + b"\r\n",
        405,
        "http_error",
    ),
    "a huge body": (
        b"POST /v1/subjects HTTP/1.1\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % LARGE + bytes(LARGE),
        405,
        "http_error",
    ),
    "an unknown path": (b"GET /admin HTTP/1.1\r\n" + HEAD + b"\r\n", 404, "not_found"),
    "up and out": (b"GET /../../../etc/passwd HTTP/1.1\r\n" + HEAD + b"\r\n", 404, "not_found"),
    "up and out in code": (
        b"GET /v1/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n" + HEAD + b"\r\n",
        404,
        "not_found",
    ),
    "two slashes": (b"GET //healthz HTTP/1.1\r\n" + HEAD + b"\r\n", 404, "not_found"),
    "a slash too many": (b"GET /healthz/ HTTP/1.1\r\n" + HEAD + b"\r\n", 404, "not_found"),
    "script in the path": (b"GET /<script>x HTTP/1.1\r\n" + HEAD + b"\r\n", 404, "not_found"),
}


@pytest.fixture(autouse=True)
def unharmed(shared_queue: Queue) -> Iterator[None]:
    """A user's work goes on before and after each attack, and nothing was logged."""
    asyncio.run(exchange(shared_queue.server, "before"))
    before = shared_queue.memory_bytes()
    yield
    asyncio.run(exchange(shared_queue.server, "after"))
    assert shared_queue.memory_bytes() - before < 32 * limits.MIB
    assert shared_queue.errors == ""


def asked(queue: Queue, data: bytes) -> tuple[int, bytes]:
    """Status and body of the answer to raw bytes. Who closes early may be still written to: that is no answer."""
    answer = b""
    with socket.create_connection((queue.host, queue.http_port), timeout=20) as peer:
        try:
            peer.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        try:
            while more := peer.recv(1 << 16):
                answer += more
        except ConnectionResetError:
            pass
    head, _, body = answer.partition(b"\r\n\r\n")
    assert body or not answer, answer
    return (int(head.split()[1]) if answer else 0), body


@pytest.mark.parametrize("name", REQUESTS)
def test_a_bad_request_is_answered_in_json_and_counted(shared_queue: Queue, name: str) -> None:
    data, status, code = REQUESTS[name]
    before = shared_queue.refused().get(code, 0)
    with Neighbour(shared_queue):
        answered, body = asked(shared_queue, data)
    if answered or len(data) < LARGE:
        assert answered == status
        error = json.loads(body)["error"]
        assert error["code"] == code
        assert error["detail"]
        assert error["advice"]
        assert len(body) < 4 * limits.DETAIL_CHARS_MAX
    assert shared_queue.refused()[code] == before + 1


def test_more_connections_than_allowed_are_closed(shared_queue: Queue) -> None:
    before = shared_queue.refused().get("too_many_connections", 0)
    over = 20
    peers = [
        socket.create_connection((shared_queue.host, shared_queue.http_port), timeout=20)
        for _ in range(limits.HTTP_CONNECTIONS_MAX + over)
    ]
    try:
        closed = [peer.recv(1) for peer in peers[-over:]]
        assert closed == [b""] * over
        peers[0].sendall(b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n")
        assert peers[0].recv(1000).startswith(b"HTTP/1.1 200")
    finally:
        for peer in peers:
            peer.close()
    assert shared_queue.refused()["too_many_connections"] >= before + over
