"""A lake in HDFS, over WebHDFS, which every NameNode and DataNode speaks: no JVM and no native library is needed.

``hdfs://NAMENODE:8020/folder`` is the URI, as Spark knows it. The NameNode's HTTP address is ``TIDEMILL_WEBHDFS``
(HOST:PORT), by default port 9870 of the same host; ``HADOOP_USER_NAME`` says who asks. Kerberos is not spoken.

What is written gets another name first. HDFS renames at one moment, and not onto what is there: that creates a name.
"""

from __future__ import annotations

import getpass
import http.client
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from tidemill_spark.errors import StoreFailed, WrongRequest
from tidemill_spark.stores import Entry
from tidemill_spark.stores.ranged import arrow_file, filled

HTTP_PORT = 9870
TIMEOUT_S = 60.0
PARTS = "_tidemill/parts"
"""Where what is being written lies."""


class HdfsStore:
    """See the module."""

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        if not parts.hostname:
            raise WrongRequest(f"{uri[:100]!r} names no NameNode: write hdfs://NAMENODE:8020/FOLDER")
        self.uri = uri.rstrip("/")
        self._folder = parts.path.rstrip("/")
        self._address = os.environ.get("TIDEMILL_WEBHDFS") or f"{parts.hostname}:{HTTP_PORT}"
        self._user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()

    def create(self, name: str, data: bytes) -> bool:
        part = self._put(data)
        if self._renamed(part, name):
            return True
        self.delete([part])
        return False

    def write(self, name: str, data: Any) -> None:
        part = self._put(data)
        for _ in range(2):
            if self._renamed(part, name):
                return
            self.delete([name])
        raise StoreFailed(f"{self.uri}/{name} cannot be written: somebody else writes it, too")

    def make(self, name: str, fill: Callable[[Any], None]) -> int:
        data = filled(fill)
        self.write(name, data)
        return int(data.size)

    def read(self, name: str) -> bytes:
        return self._asked("GET", name, "OPEN")

    def fetch(self, name: str, start: int, size: int) -> bytes:
        return self._asked("GET", name, "OPEN", offset=str(start), length=str(size))

    def open(self, name: str, size: int) -> Any:
        return arrow_file(size, partial(self.fetch, name))

    def list(self, folder: str) -> Iterator[Entry]:
        waiting = [folder]
        while waiting:
            here = waiting.pop()
            try:
                said = json.loads(self._asked("GET", here, "LISTSTATUS"))
            except FileNotFoundError:
                continue
            for one in said["FileStatuses"]["FileStatus"]:
                name = f"{here}/{one['pathSuffix']}".lstrip("/")
                if one["type"] == "DIRECTORY":
                    waiting.append(name)
                else:
                    yield Entry(name, int(one["length"]), int(one["modificationTime"]))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                self._asked("DELETE", name, "DELETE")

    def _put(self, data: Any) -> str:
        part = f"{PARTS}/{secrets.token_hex(8)}"
        self._asked("PUT", part, "CREATE", data, overwrite="false")
        return part

    def _renamed(self, part: str, name: str) -> bool:
        self._asked("PUT", name.rpartition("/")[0], "MKDIRS")
        said = json.loads(self._asked("PUT", part, "RENAME", destination=self._path(name)))
        return bool(said["boolean"])

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}".rstrip("/") or "/"

    def _asked(self, method: str, name: str, operation: str, data: Any = None, **more: str) -> bytes:
        """What the NameNode, or the DataNode to which it sends us, answers."""
        said = urlencode({"op": operation, "user.name": self._user, **more})
        where = self._address, f"/webhdfs/v1{quote(self._path(name))}?{said}"
        try:
            status, location, body = _request(where, method, None)
            if status == http.client.TEMPORARY_REDIRECT:
                parts = urlsplit(location)
                status, _, body = _request((parts.netloc, f"{parts.path}?{parts.query}"), method, data)
        except (OSError, http.client.HTTPException) as error:
            raise StoreFailed(f"HDFS does not answer at {where[0]}: {error}") from error
        if status == http.client.NOT_FOUND:
            raise FileNotFoundError(f"{self.uri}/{name}")
        if status >= http.client.BAD_REQUEST:
            raise StoreFailed(f"{self.uri}/{name}: HDFS says {status}: {_said(body)}")
        return body


def _request(where: tuple[str, str], method: str, data: Any) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection(where[0], timeout=TIMEOUT_S)
    try:
        headers = {"Content-Type": "application/octet-stream"} if data is not None else {}
        connection.request(method, where[1], None if data is None else memoryview(data), headers)
        response = connection.getresponse()
        return response.status, response.headers.get("Location", ""), response.read()
    finally:
        connection.close()


def _said(body: bytes) -> str:
    try:
        return str(json.loads(body)["RemoteException"]["message"]).partition("\n")[0]
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")
