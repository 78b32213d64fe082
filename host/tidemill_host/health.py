"""Whether a process is alive, and whether it is ready: what a supervisor asks before it kills, or sends anybody there.

Alive is who answers. While a service reads its logs at a start, which may take minutes and keeps its loop busy, a
thread answers for it: alive, and not ready. Whatever else is asked then is not answered, as before the port was open.

    beginning   /healthz 200, /readyz 503   all else: the connection ends
    serving     /healthz 200, /readyz 200   or 503, with the reason
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

from tidemill_host.refusals import HttpRefused

NOT_READY = "not_ready"
ADVICE = "wait until it is; it is alive, and need not be started again"
BEGINS = "it reads what lies on its disk"
PATIENCE_SECONDS = 1.0
REQUEST_BYTES_MAX = 4096


def ready_when(why_not: Callable[[], str]) -> Callable[[], dict[str, str]]:
    """What ``/readyz`` answers of a service that says why it is not ready; empty: it is."""

    def answer() -> dict[str, str]:
        sentence = why_not()
        if sentence:
            raise HttpRefused(503, NOT_READY, sentence, ADVICE)
        return {"status": "ready"}

    return answer


@contextmanager
def beginning(host: str, port: int, tls: ssl.SSLContext | None = None) -> Generator[None]:
    """Answer at the HTTP port that a service is going to open; 0: nobody knows it yet."""
    listener = _listen(host, port) if port else None
    if listener is None:
        yield
        return
    thread = Thread(target=_serve, args=(listener, tls), name="beginning", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):  # it wakes who waits for the next one
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _listen(host: str, port: int) -> socket.socket | None:
    """``None``: the port cannot be had, which the service itself will find, and say."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError:
        return None


def _serve(listener: socket.socket, tls: ssl.SSLContext | None) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, suppress(OSError):
            connection.settimeout(PATIENCE_SECONDS)
            with connection if tls is None else tls.wrap_socket(connection, server_side=True) as spoken:
                if answer := _answer(spoken.recv(REQUEST_BYTES_MAX)):
                    spoken.sendall(answer)


def _answer(request: bytes) -> bytes:
    """To what began so; nothing to what is no look at its health."""
    body: dict[str, Any]
    if request.startswith((b"GET /healthz ", b"HEAD /healthz ")):
        status, body = "200 OK", {"status": "ok"}
    elif request.startswith((b"GET /readyz ", b"HEAD /readyz ")):
        error = {"code": NOT_READY, "detail": BEGINS, "advice": ADVICE, "retryable": True}
        status, body = "503 Service Unavailable", {"error": error}
    else:
        return b""
    data = json.dumps(body).encode() if request.startswith(b"GET") else b""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + data
