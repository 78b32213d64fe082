"""What a person is told to type next who has started a queue in a terminal."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence

from tidemill_wire.addresses import address_of

PORT_DEFAULT = 7401
ASKED_BY_DEFAULT = ("127.0.0.1", "0.0.0.0", "localhost", "")


def greeting(host: str, http_port: int, commands: Sequence[str], what: str) -> str:
    """Lines to print; the ``commands`` are those of tidemill, without its name."""
    usual = http_port == PORT_DEFAULT and host in ASKED_BY_DEFAULT
    server = "" if usual else f" --server {address_of(host, http_port)}"
    typed = "".join(f"  {command_name()} {command}{server}\n" for command in commands)
    return f"\nType next, in another terminal:\n{typed}\nCtrl-C stops the {what}."


def command_name() -> str:
    """How the command is called in another terminal: in an environment that is not on the path, by its place."""
    beside = os.path.join(os.path.dirname(sys.executable), "tidemill")
    found = shutil.which("tidemill")
    if found is not None and os.path.realpath(found) == os.path.realpath(beside):
        return "tidemill"
    if os.access(beside, os.X_OK):
        return shlex.quote(os.path.abspath(beside))
    return f"{shlex.quote(sys.executable)} -m tidemill.cli"
