"""What a process says on standard error: one line an event, for people or for programs, from a level on.

One log a process, because it has one standard error. The form and the level come from TIDEMILL_LOG_FORMAT and
TIDEMILL_LOG_LEVEL; the level can be another one for a while, asked for at ``/v1/log-level``, and goes back by itself.

    text   ``tidemill: `` and a sentence, as a terminal wants it; of INFO nothing is said to a terminal
    json   an object with ``at``, ``level``, ``event``, ``text``, who says it, and the event's own fields
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from tidemill_host.clock import timestamp
from tidemill_wire.log_lines import Event, Form, Level, log_line, shows
from tidemill_wire.settings import SettingsError

FORMAT, LEVEL = "TIDEMILL_LOG_FORMAT", "TIDEMILL_LOG_LEVEL"


class Log:
    """See the module."""

    def __init__(self) -> None:
        self.form = Form.TEXT
        self.level = Level.INFO
        self._usual = Level.INFO
        self._who: dict[str, object] = {}
        self._back: asyncio.TimerHandle | None = None

    def begin(self, service: str, environment: Mapping[str, str]) -> None:
        """Be that service's. ``SettingsError`` says what cannot be."""
        self.form = Form(_one_of(FORMAT, environment.get(FORMAT, Form.TEXT), list(Form)))
        self._usual = self.level = Level(_one_of(LEVEL, environment.get(LEVEL, Level.INFO), list(Level)))
        self._who = {"service": service, "pid": os.getpid()}

    def name(self, name: str) -> None:
        """Which of its kind it is."""
        self._who["name"] = name

    def say(self, level: Level, event: str, text: str, **fields: object) -> None:
        if not shows(self.level, level):
            return
        if self.form is Form.TEXT and level is Level.INFO and _is_terminal():
            return
        told = Event(timestamp(time.time_ns() // 1_000_000), level, event, text, {**self._who, **fields})
        try:
            sys.stderr.write(log_line(self.form, told))
            sys.stderr.flush()
        except OSError:
            return  # nobody reads it

    def set_for(self, level: Level, seconds: float) -> None:
        """For a while; then as it was at the start."""
        if self._back is not None:
            self._back.cancel()
        self.level = level
        self._back = asyncio.get_running_loop().call_later(seconds, self._go_back)
        self.say(Level.WARNING, "log_level", f"the log's level is {level} for {seconds:g} s", seconds=seconds)

    def state(self) -> dict[str, Any]:
        """What ``/v1/log-level`` answers."""
        left = 0.0 if self._back is None else max(0.0, self._back.when() - asyncio.get_running_loop().time())
        return {"level": self.level.value, "usual": self._usual.value, "seconds": round(left)}

    def _go_back(self) -> None:
        self._back = None
        self.level = self._usual


LOG = Log()


def debug(event: str, text: str, **fields: object) -> None:
    LOG.say(Level.DEBUG, event, text, **fields)


def info(event: str, text: str, **fields: object) -> None:
    LOG.say(Level.INFO, event, text, **fields)


def warning(event: str, text: str, **fields: object) -> None:
    LOG.say(Level.WARNING, event, text, **fields)


def error(event: str, text: str, **fields: object) -> None:
    LOG.say(Level.ERROR, event, text, **fields)


def add_log_option(parser: argparse.ArgumentParser) -> None:
    """``--log-format``, which every service takes; ``begin_log`` obeys it."""
    parser.add_argument("--log-format", choices=[form.value for form in Form], default=None)


def begin_log(service: str, arguments: argparse.Namespace) -> None:
    """From here on; what the option says, children of the process hear, too."""
    if arguments.log_format is not None:
        os.environ[FORMAT] = arguments.log_format
    LOG.begin(service, os.environ)


def _one_of(name: str, written: str, known: list[Any]) -> str:
    if written.lower() in known:
        return written.lower()
    raise SettingsError(f"{name} is {written[:60]!r}: write {' or '.join(known)}")


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except ValueError:
        return False  # it is closed
