"""Every process tells what runs in it."""

from __future__ import annotations

import os

from tidemill_host.openapi import assemble
from tidemill_host.system import SYSTEM, system, system_paths


def test_what_is_told_is_what_the_page_describes() -> None:
    told = system()
    path = next(iter(system_paths()))
    page = assemble((system_paths(),), ({},), "1", "")
    schema = page["paths"][SYSTEM]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert path == SYSTEM
    assert set(told) == set(schema["required"])


def test_it_is_this_process() -> None:
    told = system()
    assert told["pid"] == os.getpid()
    assert 0 < told["files"]["open"] <= told["files"]["max"] or told["files"]["max"] == 0
    assert told["memory_bytes"] > 1 << 20
    assert told["began_ms"] <= told["clock_ms"]
    assert told["version"]
