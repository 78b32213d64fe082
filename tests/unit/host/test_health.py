"""What a supervisor is told of a process while it begins, and of one that serves."""

from __future__ import annotations

import json
import socket

import pytest

from tidemill_host.health import beginning, ready_when
from tidemill_host.refusals import HttpRefused


def ask(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        peer.sendall(request)
        found = b""
        while data := peer.recv(4096):
            found += data
        return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_a_process_that_begins_is_alive_and_not_ready_and_answers_nothing_else() -> None:
    port = free_port()
    with beginning("127.0.0.1", port):
        alive = ask(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert alive.startswith(b"HTTP/1.1 200 OK\r\n")
        assert json.loads(alive.partition(b"\r\n\r\n")[2]) == {"status": "ok"}
        ready = ask(port, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert ready.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert json.loads(ready.partition(b"\r\n\r\n")[2])["error"]["code"] == "not_ready"
        assert ask(port, b"HEAD /readyz HTTP/1.1\r\nHost: x\r\n\r\n").endswith(b"Connection: close\r\n\r\n")
        assert ask(port, b"GET /v1/routes HTTP/1.1\r\nHost: x\r\n\r\n") == b""
    socket.create_server(("127.0.0.1", port)).close()


def test_a_port_that_is_taken_or_not_known_yet_is_left_to_the_service() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        with beginning("127.0.0.1", other.getsockname()[1]), beginning("127.0.0.1", 0):
            pass
        with socket.create_connection(other.getsockname(), timeout=10):
            other.accept()[0].close()


def test_who_is_not_ready_says_why() -> None:
    assert ready_when(lambda: "")() == {"status": "ready"}
    with pytest.raises(HttpRefused, match="it has no connection") as refused:
        ready_when(lambda: "it has no connection")()
    assert (refused.value.status, refused.value.code, refused.value.retryable) == (503, "not_ready", True)
