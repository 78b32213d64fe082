"""Why a port cannot be listened on, as one sentence for whoever chose it."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from tidemill_wire.addresses import address_of
from tidemill_wire.errors import TidemillError

TRIES, PAUSE_SECONDS = 50, 0.1
OWN = "name an address of this machine with --host, as 127.0.0.1, or 0.0.0.0 for all"


class CannotListen(TidemillError):
    """A host or port of the command line is none here."""


@contextmanager
def listening(host: str, port: int, option: str) -> Generator[None]:
    """Around the call that listens. ``option`` is by which another port is chosen."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise CannotListen(_sentence(error, host, port, option)) from error


class Listens(Protocol):
    """What has a port of ours."""

    async def listen(self, host: str, port: int) -> int: ...


async def listen_on(served: Listens, host: str, port: int, *, again: bool) -> int:
    """The port. ``again``: it was this process's before, and the kernel may not have given it back yet."""
    for _ in range(TRIES if again else 0):
        try:
            return await served.listen(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        await asyncio.sleep(PAUSE_SECONDS)
    with listening(host, port, "--port"):
        return await served.listen(host, port)


def _sentence(error: OSError | UnicodeError, host: str, port: int, option: str) -> str:
    shown = host if len(host) <= 100 else f"{host[:100]}..."
    if isinstance(error, UnicodeError):
        return f"--host {shown!r} is no name of a machine: {OWN}"
    if isinstance(error, socket.gaierror):
        said = (error.strerror or "it has no address").lower()
        return f"--host {shown!r} cannot be looked up ({said}): {OWN}"
    match error.errno:
        case errno.EADDRNOTAVAIL:
            return f"--host {shown} is no address of this machine: {OWN}"
        case errno.EADDRINUSE:
            return f"somebody listens at {address_of(shown, port)} already: stop that, or choose another {option}"
        case errno.EACCES:
            return f"this user may not listen at {address_of(shown, port)}: choose a {option} of 1024 or more"
        case _:
            said = error.strerror or str(error)
            return (
                f"nothing can listen at {address_of(shown, port)} ({said}): choose another --host or {option}"
            )
