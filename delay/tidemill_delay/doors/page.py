"""The page that describes the HTTP port of a delay service: what every service has, and what this one is.

Messages for later, and questions about them, come by the data port; people and programs ask a broker.
"""

from __future__ import annotations

from functools import cache

from tidemill_host.openapi import Part, assemble, process_paths, reading, record, whole
from tidemill_host.system import system_paths
from tidemill_ledger.membership import Role

DESCRIPTION = (
    "What a delay service tells of itself. Timers are asked for and changed at any broker. Every error has one shape, "
    "says what to do, and whether to try again."
)


@cache
def page() -> Part:
    """The whole page."""
    process = record(
        {
            "name": {"type": "string"},
            "role": {"enum": [role.value for role in Role]},
            "epoch": whole(0),
            "pid": whole(1, description="its process id, on the machine that it runs on"),
        }
    )
    example = {"name": "delay-0", "role": "master", "epoch": 1, "pid": 4711}
    paths = (
        process_paths("Whether the delay service takes messages and gives them out"),
        system_paths(),
        {"/v1/process": reading("process", "What this delay service is", process, example)},
    )
    return assemble(paths, (), "1", DESCRIPTION)
