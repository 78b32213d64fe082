"""What recovery needs of a data folder. It runs before the loop, so it may block; the disk may be the simulated one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tidemill_host.machine import Write


class Storage(Protocol):
    """The data folder of a service during recovery."""

    def names(self, folder: str) -> list[str]:
        """The files in a folder, sorted."""
        ...

    def size(self, file: str) -> int | None:
        """A file's size, ``None`` when it is missing."""
        ...

    def reader(self, file: str) -> Callable[[int, int], bytes]:
        """Reads position and size of a file, fewer bytes only at its end."""
        ...

    def set_aside(self, file: str, position: int) -> None:
        """Move what a file holds from ``position`` on out of the way; at 0 the file is gone."""
        ...

    def shorten(self, file: str, size: int) -> None:
        """Cut a file; what it had beyond is nowhere any more, so it must be in another one."""
        ...

    def write_now(self, writes: Sequence[Write]) -> None:
        """Carry out writes and sync them."""
        ...

    def sync(self, file: str) -> None:
        """Make what lies in a file survive a power cut."""
        ...
