"""Lines of a file, or of a pipe as they come: what `tail -f` says now is not to wait for what it says tomorrow."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import IO, Any, cast

from tidemill.cli.failures import CommandFailed
from tidemill_wire.limits import MESSAGE_BYTES_MAX

CHUNK_LINES = 10_000  # lines handed out together
CHUNK_BYTES = 4 << 20
PIECE_BYTES = 64 << 10  # what a pipe holds


async def chunks_of_lines(source: IO[bytes]) -> AsyncIterator[list[bytes]]:
    """Lines without their ends. One over the largest message is refused before it fills the memory."""
    number, rest = 0, b""
    pieces = _arriving(source.fileno()) if _is_pipe(source) else _stored(source)
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for start in range(0, len(lines), CHUNK_LINES):
            yield _checked(lines[start : start + CHUNK_LINES], number)
            number += len(lines[start : start + CHUNK_LINES])
        _checked([rest], number)
    if rest:
        yield [rest]


def _checked(lines: list[bytes], before: int) -> list[bytes]:
    for number, line in enumerate(lines, before + 1):
        if len(line) > MESSAGE_BYTES_MAX:
            raise CommandFailed(
                f"line {number} is over {MESSAGE_BYTES_MAX} bytes: make it shorter, or send it in parts"
            )
    return lines


def _is_pipe(source: IO[bytes]) -> bool:
    try:
        return not stat.S_ISREG(os.fstat(source.fileno()).st_mode)
    except OSError:
        return False  # it is no file of the system


async def _stored(source: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := cast("Any", source).read1(CHUNK_BYTES):
        yield piece


async def _arriving(descriptor: int) -> AsyncIterator[bytes]:
    """What a pipe or terminal has, as soon as it has it, while the event loop goes on.

    A daemon thread, because nobody can interrupt a read; reading the descriptor itself, because a lock of a buffer
    held by such a thread is fatal when the process ends.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes | OSError] = asyncio.Queue()  # bounded by the pieces that have room
    room = threading.Semaphore(CHUNK_BYTES // PIECE_BYTES)

    def read() -> None:
        piece: bytes | OSError = b"?"
        with suppress(RuntimeError):  # the loop is closed, nobody listens any more
            while isinstance(piece, bytes) and piece:
                room.acquire()
                try:
                    piece = os.read(descriptor, PIECE_BYTES)
                except OSError as error:
                    piece = error
                loop.call_soon_threadsafe(arrived.put_nowait, piece)

    threading.Thread(target=read, name="tidemill lines", daemon=True).start()
    ended = False
    while not ended:
        pieces = [await arrived.get()]
        while not arrived.empty():
            pieces.append(arrived.get_nowait())
        room.release(len(pieces))
        whole = b"".join(piece for piece in pieces if isinstance(piece, bytes))
        if whole:
            yield whole
        last = pieces[-1]
        if isinstance(last, OSError):
            raise CommandFailed(f"the input cannot be read ({last.strerror}): look at where it comes from")
        ended = not last
