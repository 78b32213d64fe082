"""A terminal without a person: what programs show there is read as bytes."""

from __future__ import annotations

import os
import select
from typing import Self


class Terminal:
    """A pair of ends; ``theirs`` is given to a process."""

    def __init__(self) -> None:
        self.ours, self.theirs = os.openpty()
        self._left = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
        os.close(self.ours)

    def leave(self) -> None:
        """The process has it: without that this side would never hear of its end."""
        if not self._left:
            self._left = True
            os.close(self.theirs)

    def read(self, seconds: float) -> bytes:
        """What came, as soon as something has; nothing when whoever wrote has gone."""
        readable, _, _ = select.select([self.ours], [], [], seconds)
        assert readable, f"nothing was shown for {seconds} s"
        try:
            return os.read(self.ours, 65_536)
        except OSError:
            return b""  # as Linux says that the other end is closed

    def read_all(self, seconds: float) -> str:
        """Until the process has ended."""
        shown = b""
        while piece := self.read(seconds):
            shown += piece
        return shown.decode()
