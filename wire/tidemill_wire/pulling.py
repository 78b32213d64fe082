"""The beginning of a consumer's work: it asks for messages, and says what it has and what it may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemill_wire import limits
from tidemill_wire.fields import Fields, malformed, packed, parse_consumer, parse_group
from tidemill_wire.filters import EVERYTHING, TagFilter, parse_pulled_from, read_filter
from tidemill_wire.kinds import Kind, Mode, Start
from tidemill_wire.quotas import Bound

_I63 = 0x7FFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Pull:
    """Give me messages: answered when there is one, or when ``wait_ms`` is over."""

    kind: ClassVar = Kind.PULL
    group: str
    consumer: str
    subjects: Sequence[str]
    messages_max: int
    bytes_max: int
    wait_ms: int
    start: int = Start.EARLIEST
    held: Sequence[int] | None = None
    """With the first pull of a connection: ranges of pull sequences that the consumer still has, of all subjects."""
    fresh: bool = False
    """The consumer has heard nothing yet: what it does not hold, an earlier process of its name may have begun."""
    once: bool = False
    """At most once: what is given counts as handled at once."""
    mode: Mode = Mode.AS_DECLARED
    base: str = ""
    """Of a broadcast: the group that was declared. ``group`` is then the consumer's own."""
    filter: TagFilter = EVERYTHING
    allocation: int = 0
    """Of a group in order: the version of meta's allocation that gives these partitions to the consumer."""
    allocations: Sequence[int] = ()
    """The same of each of ``subjects``, where they differ: every subject has an allocation of its own."""
    bound: Bound | None = None
    """How much who asks may have in flight, where that has a quota; nothing that crosses a wire."""

    def versions(self) -> dict[str, int]:
        """What was named for single subjects; ``allocation`` holds for all others."""
        return dict(zip(self.subjects, self.allocations, strict=True)) if self.allocations else {}

    def fields(self) -> dict[str, Any]:
        said: dict[str, Any] = {
            "group": self.group, "consumer": self.consumer, "subjects": list(self.subjects),
            "messages": self.messages_max, "bytes": self.bytes_max, "wait": self.wait_ms, "start": self.start,
        }  # fmt: skip
        if self.held is not None:
            said |= {"held": packed(self.held), "fresh": self.fresh}
        asked = {
            "once": self.once, "mode": int(self.mode), "base": self.base, "allocation": self.allocation,
            "allocations": packed(self.allocations),
        }  # fmt: skip
        return said | {name: value for name, value in asked.items() if value} | self.filter.fields()


def _parse_pull(f: Fields, _body: bytearray) -> Pull:
    subjects = f.items("subjects", limits.PULL_SUBJECTS_MAX)
    if not subjects or any(type(name) is not str for name in subjects):
        raise malformed("field 'subjects' is not a list of names")
    allocations = f.longs("allocations", len(subjects))
    if allocations and (len(allocations) != len(subjects) or min(allocations) < 0):
        raise malformed("field 'allocations' does not hold a version for each of the subjects")
    return Pull(
        parse_group(f.text("group")),
        parse_consumer(f.text("consumer")),
        [parse_pulled_from(name) for name in subjects],
        f.number("messages", 1, limits.PULL_MESSAGES_MAX),
        f.number("bytes", 1, limits.PULL_BYTES_MAX),
        f.number("wait", 0, limits.PULL_WAIT_MS_MAX),
        f.number("start", Start.LATEST, _I63),
        f.ranges("held", limits.HELD_RANGES_MAX) if f.has("held") else None,
        f.flag("fresh"),
        f.flag("once"),
        Mode(f.number("mode", 0, max(Mode))) if f.has("mode") else Mode.AS_DECLARED,
        parse_group(f.text("base")) if f.has("base") else "",
        read_filter(f),
        f.number("allocation", 0, _I63, 0),
        tuple(allocations),
    )


PARSERS: dict[int, Callable[[Fields, bytearray], Pull]] = {Kind.PULL: _parse_pull}
