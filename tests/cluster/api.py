"""The API server asked directly, with the standard library: a kubectl for each question costs a tenth of a second."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ANSWER_SECONDS = 10.0
WATCH_SECONDS = 300


class Refused(AssertionError):
    """The API server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """With the certificates that a cluster's authority made for one client."""

    def __init__(self, server: str, keys: Path, name: str = "admin") -> None:
        self._where = urlsplit(server).netloc
        self._context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
        self._context.load_cert_chain(keys / f"{name}.crt", keys / f"{name}.key")

    def get(self, path: str) -> Any:
        return self.send("GET", path)

    def items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(path)["items"]
        return found

    def send(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
        connection, answer = self._ask(method, path, body, kind, ANSWER_SECONDS)
        try:
            text = answer.read()
        finally:
            connection.close()
        if answer.status >= 400:
            raise Refused(answer.status, text.decode(errors="replace")[:600])
        return json.loads(text) if text[:1] in {b"{", b"["} else text.decode()

    def merge(self, path: str, body: object) -> Any:
        """A merge patch."""
        return self.send("PATCH", path, body, "application/merge-patch+json")

    def is_ready(self) -> bool:
        try:
            return self.get("/readyz") == "ok"
        except (Refused, OSError, HTTPException):
            return False

    def watch(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """What there is, and what becomes of it, until the server ends the watch: kind of event, and object."""
        query = f"{path}?watch=true&timeoutSeconds={WATCH_SECONDS}"
        connection, answer = self._ask("GET", query, None, "", WATCH_SECONDS + ANSWER_SECONDS)
        try:
            if answer.status >= 400:
                raise Refused(answer.status, answer.read().decode(errors="replace")[:600])
            while line := answer.readline():
                event = json.loads(line)
                yield event["type"], event["object"]
        finally:
            connection.close()

    def _ask(
        self, method: str, path: str, body: object, kind: str, seconds: float
    ) -> tuple[HTTPSConnection, HTTPResponse]:
        connection = HTTPSConnection(self._where, timeout=seconds, context=self._context)
        headers = {"Content-Type": kind} if kind else {}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise
