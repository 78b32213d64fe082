"""Where a lake lies: a folder of this machine, HDFS, S3. Objects with names, and one that is created if it is absent.

Of a store a lake needs this and no more: an object is there as a whole or not at all; what was written is read, and
listed, from then on; and of several who create one name, one does. No rename, no lock, no append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from tidemill_spark.errors import WrongRequest


class Entry(NamedTuple):
    """An object in a listing."""

    name: str
    size: int
    modified_ms: int


class Store(Protocol):
    """See the module. Names are relative to the lake's URI, with slashes; ``StoreFailed`` is what any of it may raise,
    ``FileNotFoundError`` what reading may.
    """

    uri: str

    def create(self, name: str, data: bytes) -> bool:
        """The object is there, with this data, unless one of that name was: ``False``. Who lost the answer of a
        store may find its own object there.
        """
        ...

    def write(self, name: str, data: Any) -> None:
        """The object is there, with these bytes, whatever was there before."""
        ...

    def make(self, name: str, fill: Callable[[Any], None]) -> int:
        """The same with what ``fill`` writes into a sink of Arrow's; and how many bytes these were."""
        ...

    def read(self, name: str) -> bytes:
        """All of an object."""
        ...

    def fetch(self, name: str, start: int, size: int) -> bytes:
        """So many bytes of an object from there on, none of them behind its end."""
        ...

    def open(self, name: str, size: int) -> Any:
        """An object of that size as a file of Arrow's, for reading at any place."""
        ...

    def list(self, folder: str) -> Iterator[Entry]:
        """What lies below a folder, in any order; nothing when it is not there."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """They are gone; those that were not there, too."""
        ...


def open_store(uri: str) -> Store:
    """The store of a URI: a path, ``file:``, ``hdfs:``, ``s3a:`` or ``s3:``."""
    parts = urlsplit(uri)
    match parts.scheme:
        case "" | "file":
            from tidemill_spark.stores.local import LocalStore

            return LocalStore(parts.path)
        case "hdfs":
            from tidemill_spark.stores.hdfs import HdfsStore

            return HdfsStore(uri)
        case "s3" | "s3a":
            from tidemill_spark.stores.s3 import S3Store

            return S3Store(uri)
        case scheme:
            raise WrongRequest(
                f"{uri[:100]!r}: there is no archive in {scheme!r}: name a path, or hdfs://, s3a:// with one"
            )
