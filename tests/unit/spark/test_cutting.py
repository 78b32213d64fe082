"""Ranges are cut along what brokers tell, and never made of what nobody told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tidemill_spark import ranges
from tidemill_spark.ranges import NobodyAnswers, Standing, ranges_of

BACKLOG = Standing("s", "g0", "s", 0, 400, 4_000, None)
TARGET_BYTES = 1_000


class Answering(ThreadingHTTPServer):
    """A lone broker, whose answers for pieces are given to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pieces: list[tuple[int, dict[str, Any]]] = []
        self.asked: list[str] = []

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """See ``Answering``."""

    server: Answering

    def do_GET(self) -> None:
        if self.path == "/v1/brokers":
            status, value = 404, dict[str, Any]()
        elif self.path == f"{ranges.PATH}?subject=-":
            status, value = 200, {"group": "g0"}
        else:
            self.server.asked.append(self.path)
            status, value = (
                self.server.pieces.pop(0) if len(self.server.pieces) > 1 else self.server.pieces[0]
            )
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_said: object) -> None:
        """Nobody reads it."""


@pytest.fixture(name="broker")
def _broker() -> Iterator[Answering]:
    with Answering() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def cut(broker: Answering) -> list[tuple[int, int, int]]:
    found = ranges_of(broker.place, [BACKLOG], {BACKLOG.key: (0, 400)}, target_bytes=TARGET_BYTES)
    return [(one.first_sequence, one.next_sequence, one.bytes) for one in found]


def test_a_backlog_whose_pieces_nobody_tells_is_not_one_range(
    broker: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "PATIENCE_S", 0.0)
    monkeypatch.setattr(ranges, "PAUSE_S", 0.001)
    broker.pieces = [(429, {})]
    with pytest.raises(NobodyAnswers, match="no broker of g0 tells the pieces of s"):
        cut(broker)


def test_a_broker_that_is_busy_is_asked_again(broker: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "PAUSE_S", 0.001)
    broker.pieces = [(429, {}), (429, {}), (200, {"pieces": [[0, 200, 1_000, 0], [200, 400, 1_000, 0]]})]

    assert cut(broker) == [(0, 200, 1_000), (200, 400, 1_000)]


def test_what_expires_meanwhile_is_left_to_who_reads_it(broker: Answering) -> None:
    broker.pieces = [(410, {"first": 300}), (200, {"pieces": [[300, 400, 1_000, 0]]})]

    assert cut(broker) == [(0, 400, 1_000)]
    assert ["from=300" in path for path in broker.asked] == [False, True]
    broker.pieces = [(410, {"first": 500})]
    assert cut(broker) == [(0, 400, 0)]
