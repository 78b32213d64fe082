"""Objects that lie elsewhere, as Arrow would have them: read piece by piece, and written as a whole."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from tidemill_spark.arrow import pa

AHEAD_BYTES = 1 << 20
"""Asked for at once, at least: a request costs more than what it brings."""


class RangedFile(io.RawIOBase):
    """``fetch(start, size)`` gives so many bytes from there on; never more than there are."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size = size
        self._fetch = fetch
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        size = min(len(buffer), max(0, self._size - self._at))
        if size == 0:
            return 0
        data = self._fetch(self._at, size)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def arrow_file(size: int, fetch: Callable[[int, int], bytes]) -> Any:
    """The same for Arrow."""
    return pa.PythonFile(io.BufferedReader(RangedFile(size, fetch), AHEAD_BYTES), mode="r")


def filled(fill: Callable[[Any], None]) -> Any:
    """What is written into a sink, as a buffer of Arrow's: for stores that take an object as a whole."""
    sink = pa.BufferOutputStream()
    fill(sink)
    return sink.getvalue()
