"""The three standard streams as a command needs them, whatever it was started with."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper


def opened_streams() -> None:
    """What is closed leads nowhere, so that no file that is opened takes its place; what cannot show a character of a
    message does not keep the rest of it back.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))
    out = sys.stdout
    if not isinstance(out, TextIOWrapper) or out.encoding.lower().replace("-", "") == "utf8":
        return
    if out.isatty():
        out.reconfigure(errors="backslashreplace")
    else:
        out.reconfigure(encoding="utf-8")  # as messages are written that are not touched


def leave_output() -> None:
    """What is left unwritten fails no more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
