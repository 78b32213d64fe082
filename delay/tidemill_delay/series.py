"""What an hour knows of its messages that recur: by number, which occurrence comes after each.

Kept until the hour goes, so that whoever cancels one that has left finds the one that waits instead of it.
"""

from __future__ import annotations

from typing import NamedTuple


class Follower(NamedTuple):
    """The next occurrence: its hour, its number there, and when it was to be given out as it was placed."""

    hour: int
    number: int
    due_ms: int


OPEN = Follower(0, -1, 0)
"""None is placed."""
ENDED = Follower(0, -2, 0)
"""None shall be, or it is over already."""
