"""Bodies of HTTP requests and answers: each bounded in size and patience, all of them together in bytes.

What announces too much is refused before it is read; what does not announce is read up to its bound. When all bodies
together hold too much, requests are told to come back: that is how HTTP feels back-pressure.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from tidemill_host.refusals import HttpRefused
from tidemill_wire import limits

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Bodies:
    """How much the bodies of all requests hold."""

    def __init__(self, held_max: int) -> None:
        self.held = 0
        self._held_max = held_max

    def room(self) -> Room:
        """For the bodies of one request, or ``HttpRefused`` when there is none."""
        self.check()
        return Room(self)

    def check(self) -> None:
        if self.held > self._held_max:
            raise HttpRefused(
                503, "overloaded", f"requests hold {self.held} bytes, {self._held_max} are allowed",
                "wait a second and try again",
            )  # fmt: skip


class Room:
    """What the bodies of one request hold, until the block is left."""

    __slots__ = ("_bodies", "_held")

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self._held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bodies.held -= self._held

    def add(self, size: int) -> None:
        """So many bytes more are held."""
        self._held += size
        self._bodies.held += size

    async def read(self, request: web.BaseRequest, size_max: int) -> bytes:
        """The whole body."""
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise HttpRefused(
                415, "unsupported_encoding", "the body has a Content-Encoding", "send it as it is"
            )
        if (request.content_length or 0) > size_max:
            raise too_large(size_max)
        content = request.content
        try:
            if content.is_eof():  # it came together with the head, as small ones do
                data = content.read_nowait()
                self.add(len(data))
                if len(data) > size_max:
                    raise too_large(size_max)
                return data
            if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
                request.transport.write(CONTINUE)
            return await self._read_slowly(request, size_max)
        except (web.RequestPayloadError, ClientPayloadError, HttpProcessingError) as error:
            detail = " ".join(str(error).split())[: limits.DETAIL_CHARS_MAX]
            raise HttpRefused(400, "http_error", f"the body broke off: {detail}", "send all of it") from None

    async def _read_slowly(self, request: web.BaseRequest, size_max: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(limits.SLOW_FRAME_MS / 1000):
                while part := await request.content.readany():
                    size += len(part)
                    if size > size_max:
                        raise too_large(size_max)
                    self.add(len(part))
                    self._bodies.check()
                    parts.append(part)
        except TimeoutError:
            raise HttpRefused(
                408, "too_slow", "the rest of the body did not come in time", "look at the network"
            ) from None
        return b"".join(parts)


def too_large(size_max: int) -> HttpRefused:
    return HttpRefused(
        413, "body_too_large", f"a body has more than {size_max} bytes, which are allowed here",
        "send fewer messages in one request, or a large one raw as application/octet-stream",
    )  # fmt: skip
