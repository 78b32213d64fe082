"""A lake in a bucket of S3, or of what speaks like it.

Objects are whole or absent there by nature; ``If-None-Match: *`` creates one if it is absent. Who may do it, and where,
comes as AWS's programs have it: ``AWS_ACCESS_KEY_ID``, ``AWS_PROFILE``, a role …; ``AWS_ENDPOINT_URL_S3`` or
``AWS_ENDPOINT_URL`` names another server than AWS's, whose buckets are then parts of its paths.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from tidemill_spark.errors import StoreFailed, WrongRequest
from tidemill_spark.stores import Entry
from tidemill_spark.stores.ranged import arrow_file, filled

TAKEN = "PreconditionFailed"
UNDECIDED = "ConditionalRequestConflict"
"""Two created it at the same moment, and neither did: S3 wants it to be said again."""
ABSENT = frozenset({"NoSuchKey", "404"})
TRIES = 8
DELETED_AT_ONCE = 1000
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


class S3Store:
    """See the module."""

    def __init__(self, uri: str) -> None:
        parts = urlsplit(uri)
        if not parts.netloc:
            raise WrongRequest(f"{uri[:100]!r} names no bucket: write s3a://BUCKET/FOLDER")
        self.uri = uri.rstrip("/")
        self._bucket = parts.netloc
        self._prefix = parts.path.strip("/")
        self._client, self._failures = _connected()

    def create(self, name: str, data: bytes) -> bool:
        for _ in range(TRIES):
            try:
                self._client.put_object(Bucket=self._bucket, Key=self._key(name), Body=data, IfNoneMatch="*")
            except self._failures as error:
                code = _code(error)
                if code == TAKEN:
                    return False
                if code != UNDECIDED:
                    raise self._failed(name, error) from error
            else:
                return True
        raise StoreFailed(f"{self.uri}/{name} was being created by others {TRIES} times: run it again")

    def write(self, name: str, data: Any) -> None:
        try:
            self._client.put_object(Bucket=self._bucket, Key=self._key(name), Body=bytes(data))
        except self._failures as error:
            raise self._failed(name, error) from error

    def make(self, name: str, fill: Callable[[Any], None]) -> int:
        data = filled(fill)
        self.write(name, data)
        return int(data.size)

    def read(self, name: str) -> bytes:
        return self._got(name)

    def fetch(self, name: str, start: int, size: int) -> bytes:
        return self._got(name, Range=f"bytes={start}-{start + size - 1}")

    def open(self, name: str, size: int) -> Any:
        return arrow_file(size, partial(self.fetch, name))

    def list(self, folder: str) -> Iterator[Entry]:
        prefix = "/".join(part for part in (self._prefix, folder) if part)
        prefix = f"{prefix}/" if prefix else ""
        skipped = len(self._key("")) if self._prefix else 0
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
        try:
            for page in pages:
                for one in page.get("Contents", ()):
                    changed_ms = int(one["LastModified"].timestamp() * 1000)
                    yield Entry(one["Key"][skipped:], one["Size"], changed_ms)
        except self._failures as error:
            raise self._failed(folder, error) from error

    def delete(self, names: Iterable[str]) -> None:
        rest = iter(names)
        while some := list(islice(rest, DELETED_AT_ONCE)):
            wanted = {"Objects": [{"Key": self._key(name)} for name in some], "Quiet": True}
            try:
                said = self._client.delete_objects(Bucket=self._bucket, Delete=wanted)
            except self._failures as error:
                raise self._failed(some[0], error) from error
            for one in said.get("Errors", ()):
                raise StoreFailed(f"{one['Key']} cannot be deleted: {one['Message']}")

    def _got(self, name: str, **more: str) -> bytes:
        try:
            said = self._client.get_object(Bucket=self._bucket, Key=self._key(name), **more)
            data: bytes = said["Body"].read()  # which fails as requests do
        except self._failures as error:
            if _code(error) in ABSENT:
                raise FileNotFoundError(f"{self.uri}/{name}") from error
            raise self._failed(name, error) from error
        return data

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _failed(self, name: str, error: BaseException) -> StoreFailed:
        return StoreFailed(f"{self.uri}/{name}: {error}")


def _connected() -> tuple[Any, Any]:
    """A client of S3, and what it raises. Paths name buckets where an endpoint is named: it may have no domains."""
    boto3: Any = importlib.import_module("boto3")
    config: Any = importlib.import_module("botocore.config")
    exceptions: Any = importlib.import_module("botocore.exceptions")
    endpoint = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), None)
    style = {"addressing_style": "path" if endpoint else "auto"}
    chosen = config.Config(s3=style, retries={"mode": "standard", "total_max_attempts": 8})
    client = boto3.client("s3", endpoint_url=endpoint, config=chosen)
    return client, (exceptions.ClientError, exceptions.BotoCoreError)


def _code(error: BaseException) -> str:
    said: Any = getattr(error, "response", {})
    return str(said.get("Error", {}).get("Code", ""))
