"""Priority lanes: a subject's messages of one priority, as they are named and numbered.

Messages without a priority, which is 0, are in the subject itself. Those of another priority are in a partition of
their own beside it: ``%lane%5%order.created``. Nobody sends to that name: a batch names its subject and says its
priority, and the broker finds the lane.

A sequence says which lane it is of by its highest bits, so it names one message of a subject, as ever:

    63   51 50      48 47                 0
    +------+----------+-------------------+
    | 0    | priority | number in the lane|      53 bits: JSON and JavaScript keep it whole
    +------+----------+-------------------+
"""

from __future__ import annotations

from tidemill_wire.errors import Refused
from tidemill_wire.limits import PRIORITY_MAX

LANE_PREFIX = "%lane%"
NUMBER_BITS = 48
SEQUENCES_END = (PRIORITY_MAX + 1) << NUMBER_BITS
"""No message has this sequence, or one behind it."""

assert SEQUENCES_END <= 1 << 53


def lane_name(subject: str, priority: int) -> str:
    """The partition of a subject's messages of a priority."""
    return f"{LANE_PREFIX}{priority}%{subject}" if priority else subject


def split_lane(name: str) -> tuple[str, int]:
    """Subject and priority of a partition; what is no lane has none."""
    if not name.startswith(LANE_PREFIX):
        return name, 0
    priority, _, subject = name[len(LANE_PREFIX) :].partition("%")
    return subject, int(priority)


def first_of_lane(priority: int) -> int:
    """The first sequence of a lane."""
    return priority << NUMBER_BITS


def priority_of(sequence: int) -> int:
    """The priority of the message that has a sequence."""
    return sequence >> NUMBER_BITS


def parse_priority(priority: int) -> int:
    """A priority that a message may have."""
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        raise Refused("invalid_priority", f"{str(priority)[:40]!r} is no priority")
    return priority
