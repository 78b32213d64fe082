"""The end of a consumer's turn at a group in order: it gives up the locks of partitions, and the next one begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemill_wire import limits
from tidemill_wire.fields import Fields, malformed, parse_consumer, parse_group, parse_stored
from tidemill_wire.kinds import Kind


@dataclass(frozen=True, slots=True)
class Yield:
    """I pull no more from these partitions, and handle nothing more of them. Answered with DONE when that is written;
    its ``count`` is how many messages the consumer holds there still, which others wait for until their leases end.
    """

    kind: ClassVar = Kind.YIELD
    group: str
    consumer: str
    subjects: Sequence[str]

    def fields(self) -> dict[str, Any]:
        return {"group": self.group, "consumer": self.consumer, "subjects": list(self.subjects)}


def _parse_yield(f: Fields, _body: bytearray) -> Yield:
    subjects = f.items("subjects", limits.PULL_SUBJECTS_MAX)
    if not subjects or any(type(name) is not str for name in subjects):
        raise malformed("field 'subjects' is not a list of names")
    group, consumer = parse_group(f.text("group")), parse_consumer(f.text("consumer"))
    return Yield(group, consumer, [parse_stored(name) for name in subjects])


PARSERS: dict[int, Callable[[Fields, bytearray], Yield]] = {Kind.YIELD: _parse_yield}
