"""Real replicas of meta: processes with a port, on a database of their own or on one that they share."""

from __future__ import annotations

import http.client
import json
import re
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from e2e.services import RealService
from tidemill.security import Security

READY = re.compile(rb"ready https?://([^:]+):(\d+)\n")


class Meta(RealService):
    """One replica; started, stopped, killed and started again on the same port."""

    keeps_errors = True

    def __init__(self, folder: Path, database: str = "", settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings)
        self.port = 0
        self.security = Security()
        self._where = ["--database", database] if database else ["--data", str(folder)]

    def start(self) -> Self:
        command = [sys.executable, "-m", "tidemill_meta", *self._where, "--port", str(self.port)]
        self.port = int(self.wait_ready(self.spawn(command), READY)[2])
        return self

    @property
    def server(self) -> str:
        return f"127.0.0.1:{self.port}"

    # -- asking -----------------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and JSON of an answer; 0 and the reason when there is none."""
        data = json.dumps(body).encode() if body is not None else None
        shown = self.security.headers()
        request = urllib.request.Request(self.security.url(self.server) + path, data, shown, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10, context=self.security.context()) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())
        except OSError as error:
            return 0, str(error)

    def post(self, path: str, body: object) -> Any:
        status, answer = self.ask("POST", path, body)
        assert status == 200, answer
        return answer

    def get(self, path: str) -> Any:
        status, answer = self.ask("GET", path)
        assert status == 200, answer
        return answer

    def register(self, group: str, name: str, boot: int = 1) -> Any:
        addresses = {"data": f"{name}:7400", "control": f"{name}:7401"}
        return self.post("/v1/brokers", {"group": group, "name": name, "addresses": addresses, "boot": boot})

    def beat(self, group: str, name: str, boot: int = 1, **said: Any) -> Any:
        return self.post("/v1/brokers/heartbeat", {"group": group, "name": name, "boot": boot, **said})


class Stream:
    """A watch stream, read by a thread: each line, with the moment at which it came."""

    def __init__(self, meta: Meta, **interest: Any) -> None:
        self.lines: list[tuple[float, dict[str, Any]]] = []
        self._came = threading.Condition()
        self._connection = http.client.HTTPConnection("127.0.0.1", meta.port, timeout=60)
        self._connection.request("POST", "/v1/watch", json.dumps(interest))
        assert self._connection.sock is not None
        self._socket = self._connection.sock
        self._answer = self._connection.getresponse()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for line in self._answer:
                with self._came:
                    self.lines.append((time.monotonic(), json.loads(line)))
                    self._came.notify_all()
        except (OSError, ValueError, http.client.HTTPException):
            return  # the replica ended, or the test closed it

    def wait_line(self, holds: Any, seconds: float = 30.0) -> float:
        """When the first line came of which this holds."""
        with self._came:
            assert self._came.wait_for(lambda: any(holds(line) for _, line in self.lines), seconds), (
                self.lines
            )
            return next(at for at, line in self.lines if holds(line))

    def close(self) -> None:
        with suppress(OSError):  # the replica may be gone
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._answer.close()
        self._connection.close()
