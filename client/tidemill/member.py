"""A consumer as meta is told of it, and what it hears of. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidemill.allotment import Allotment
from tidemill_wire.filters import is_pattern
from tidemill_wire.kinds import Mode


class Member(NamedTuple):
    """See the module."""

    subjects: tuple[str, ...]
    group: str
    consumer: str
    mode: Mode
    allotment: Allotment | None = None
    """Of a consumer by key: what meta allots to it."""


def allotted_groups(members: Iterable[Member]) -> list[dict[str, str]]:
    """The groups of which somebody is allotted partitions, as a watch stream names them."""
    named = {
        (name, one.group)
        for one in members
        if one.allotment is not None
        for name in one.subjects
        if not is_pattern(name)
    }
    return [{"subject": subject, "group": group} for subject, group in sorted(named)]
