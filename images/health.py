"""What HEALTHCHECK runs: does the service answer that this container is for?

One image is many services, so it looks at what the first process was started with. A command that serves nothing, as
``tidemill send``, is as healthy as it can be. Only Python's own library: it must start fast, and every ten seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException

PORTS = {
    "tidemill_broker": ("--http-port", 7401),
    "tidemill_delay": ("--http-port", 7403),
    "tidemill_meta": ("--port", 7401),
    "tidemill_operator": ("--port", 8080),
    "tidemill_standalone": ("--http-port", 7401),
}
"""By module: the option that says where it listens, and the port without it."""
PATHS = {"tidemill_operator": "/livez"}
"""Where others than ``/healthz`` say how they are."""
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
PATIENCE_SECONDS = 4.0


def where(command: Sequence[str]) -> tuple[str, int, str] | None:
    """Host, port and path at which the service of this command says how it is; None: it is no service."""
    module = next((word for word in command if word in PORTS), None)
    if module is None:
        return None
    option, port = PORTS[module]
    host = said(command, "--host") or "127.0.0.1"
    return EVERYWHERE.get(host, host), int(said(command, option) or port), PATHS.get(module, "/healthz")


def said(command: Sequence[str], option: str) -> str | None:
    """The last value of an option, as ``--port 7401`` or ``--port=7401``."""
    value = None
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word == option:
            value = following
        elif word.startswith(f"{option}="):
            value = word.partition("=")[2]
    return value


def main() -> int:
    with open("/proc/1/cmdline", encoding="utf-8") as file:
        command = file.read().split("\0")
    place = where(command)
    if place is None:
        return 0
    host, port, path = place
    connection = HTTPConnection(host, port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        sys.stdout.write(f"nothing answers at {host}:{port}: {error}\n")
        return 1
    finally:
        connection.close()
    sys.stdout.write(f"{status} at {host}:{port}{path}\n")
    return 0 if status == 200 else 1


if __name__ == "__main__":
    sys.exit(main())
