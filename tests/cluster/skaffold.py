"""Skaffold of Go's proxy, as a program in the cache: built in a copy of its module, which has replace directives."""

from __future__ import annotations

from pathlib import Path

from cluster.cache import Show
from cluster.modules import Module

SKAFFOLD = Module(
    "github.com/GoogleContainerTools/skaffold/v2",
    "v2.16.1",
    "h1:eMrp2qpn/5j2c1P/JqLo+mxcpEIdtokb/tCY2W/05ic=",
)


def skaffold(show: Show = print) -> Path:
    """The program."""
    return SKAFFOLD.program("./cmd/skaffold", "skaffold", "four", show)
