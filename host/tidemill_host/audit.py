"""The log of what people did, and of what was refused: a line of JSON each, who, what, when and with which outcome.

Nothing that anybody said in a body, a query or a head is in it, and so no secret. Whoever knocks without end does not
fill it: of refusals so many a second are noted, the others are counted in the next line. The file is bounded: when it
is full it is put aside as ``FILE.1``, and what was ``FILE.1`` before as ``FILE.2``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tidemill_host.clock import timestamp
from tidemill_host.log import warning
from tidemill_host.settings import LockSettings

REFUSALS_A_SECOND = 50
CHARS_MAX = 300


class Audit:
    """One service's. ``now_ms`` is the time of day."""

    def __init__(self, settings: LockSettings, service: str, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._service = service
        self._now_ms = now_ms
        self._second = self._refusals = self._silent = 0

    def note(self, who: str, what: str, outcome: str, **more: str | int) -> None:
        """Somebody did something, or tried to."""
        if not (self._settings.locked or self._settings.audit_file):
            return
        event: dict[str, Any] = {
            "event": "audit", "at": timestamp(self._now_ms()), "service": self._service, "who": who[:CHARS_MAX],
            "what": what[:CHARS_MAX], "outcome": outcome, **more,
        }  # fmt: skip
        if self._silent:
            event["unnoted_before"], self._silent = self._silent, 0
        self._write(json.dumps(event, ensure_ascii=True) + "\n")

    def refused(self, who: str, what: str, outcome: str, **more: str | int) -> None:
        """The same of what was refused, of which there may be any number."""
        second = self._now_ms() // 1000
        if second != self._second:
            self._second, self._refusals = second, 0
        self._refusals += 1
        if self._refusals > REFUSALS_A_SECOND:
            self._silent += 1
        else:
            self.note(who, what, outcome, **more)

    def _write(self, line: str) -> None:
        place = self._settings.audit_file
        if not place:
            sys.stderr.write(line)
            sys.stderr.flush()
            return
        try:
            self._make_room(place, len(line))
            descriptor = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            # What is done goes on: a full disk must not keep a person from what would free it.
            warning("audit_unwritten", f"{place} cannot be written ({error.strerror or error}): {line}")

    def _make_room(self, place: str, size: int) -> None:
        try:
            full = os.stat(place).st_size + size > self._settings.audit_bytes
        except FileNotFoundError:
            return
        if not full:
            return
        for number in range(self._settings.audit_files - 1, 0, -1):
            former = place if number == 1 else f"{place}.{number - 1}"
            with suppress(FileNotFoundError):
                os.replace(former, f"{place}.{number}")
        if self._settings.audit_files == 1:
            os.truncate(place, 0)
