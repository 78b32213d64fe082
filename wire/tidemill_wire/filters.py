"""Which messages a consumer wants: by their tags, and by what their subjects begin with.

A tag filter belongs to a group, not to a consumer: what it passes over is passed over for all of them. It is kept in
one form only, tags sorted and each once, so two filters are equal when they want the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill_wire import limits
from tidemill_wire.errors import Refused
from tidemill_wire.fields import NAME, Fields, malformed, parse_stored, parse_subject

WILDCARD = "*"
RESERVED = "%"


@dataclass(frozen=True, slots=True)
class TagFilter:
    """Any of the tags, or all of them. Without tags every message is wanted."""

    tags: tuple[str, ...] = ()
    every: bool = False

    def __bool__(self) -> bool:
        return bool(self.tags)

    def wants(self, tags: Collection[str]) -> bool:
        """Whether a message with these tags is wanted."""
        if not self.tags:
            return True
        found = (tag in tags for tag in self.tags)
        return all(found) if self.every else any(found)

    def fields(self) -> dict[str, Any]:
        """As a PULL and a PULLED say it; nothing when every message is wanted."""
        return {"tags": list(self.tags), "all": self.every} if self.tags else {}

    def __str__(self) -> str:
        if not self.tags:
            return "every message"
        return f"{'all' if self.every else 'any'} of the tags {', '.join(self.tags)}"


EVERYTHING = TagFilter()


def parse_filter(tags: Iterable[str], every: bool) -> TagFilter:
    """The filter with these tags, or ``Refused``."""
    found = tuple(sorted(set(tags)))
    if len(found) > limits.TAGS_MAX:
        raise Refused("limit_exceeded", f"a filter with {len(found)} tags, {limits.TAGS_MAX} are allowed")
    for tag in found:
        if not 0 < len(tag.encode(errors="replace")) <= limits.TAG_BYTES_MAX:
            raise Refused("limit_exceeded", f"tag {tag[:40]!r} is not 1 to {limits.TAG_BYTES_MAX} bytes long")
    return TagFilter(found, every and len(found) > 1)


def read_filter(f: Fields) -> TagFilter:
    """The filter that a PULL or a PULLED names."""
    if not f.has("tags"):
        return EVERYTHING
    tags = f.items("tags", limits.TAGS_MAX)
    if any(type(tag) is not str for tag in tags):
        raise malformed("field 'tags' holds something else than texts")
    return parse_filter(tags, f.flag("all"))


def is_pattern(name: str) -> bool:
    """Whether a name stands for all subjects that begin with what is before its ``*``."""
    return name.endswith(WILDCARD)


def parse_subscribed(name: str) -> str:
    """A subject, or a pattern: the beginning of a subject's name and ``*``."""
    if name[-1:] != WILDCARD:
        return parse_subject(name)
    prefix = name[:-1]
    if prefix and not NAME.fullmatch(prefix):
        raise Refused("invalid_subject", f"{name[:100]!r} is no pattern of subject names")
    return name


def parse_pulled_from(name: str) -> str:
    """What a PULL may name: what users may, and further partitions of subjects."""
    return parse_subscribed(name) if name[-1:] == WILDCARD else parse_stored(name)


def matches_pattern(pattern: str, subject: str) -> bool:
    """Whether a subject is among those a pattern stands for. Reserved ones, which begin with ``%``, never are."""
    return subject.startswith(pattern[:-1]) and not subject.startswith(RESERVED)


def split_patterns(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Subjects and patterns among what a pull names."""
    patterns = [name for name in names if name[-1] == WILDCARD]
    return ([name for name in names if name[-1] != WILDCARD] if patterns else list(names)), patterns
