"""What was declared of a consumer group, as the broker needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tidemill_wire import limits
from tidemill_wire.declarations import ConsumerGroup
from tidemill_wire.filters import parse_filter
from tidemill_wire.group_specs import BACKOFF_SECONDS_DEFAULT, Delivery, GroupBounds, GroupDeadLetter

SHARED, ORDERED, BROADCAST, DEAD = "shared", "ordered", "broadcast", "dead"
IN_ORDER = (ORDERED, BROADCAST)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The defaults are those of the manifests."""

    lease_ms: int = limits.LEASE_MS_DEFAULT
    lease_ms_max: int = limits.LEASE_RENEWED_MS_DEFAULT
    """However often a lease is renewed, it is no longer than this; 0: any time."""
    attempts_max: int = Delivery().max_attempts
    retry_ms_min: int = Delivery().min_retry_seconds * 1000
    backoff_ms: tuple[int, ...] = tuple(1000 * seconds for seconds in BACKOFF_SECONDS_DEFAULT)
    dead_letters: bool = True
    dead_letter_seconds: int = GroupDeadLetter().retention_seconds
    consumption: str = SHARED
    """shared, ordered (one consumer at a time), or broadcast; dead: the twin of a group in its dead letters, which is
    given only what is redriven."""
    tags: tuple[str, ...] = ()
    all_tags: bool = False
    """Whether a message must have all of the tags, not any."""
    filter_declared: bool = False
    """The manifest names the filter, so pulls may not name another."""
    suspended: bool = False
    in_flight_max: int = limits.IN_FLIGHT_MAX
    consumers_max: int = GroupBounds().max_consumers

    def limit_ms(self, begun_ms: int) -> int:
        """Until when a lease that begins then may be renewed; 0: for ever. Who declares a longer lease, and no limit,
        has the whole lease.
        """
        return begun_ms + max(self.lease_ms, self.lease_ms_max) if self.lease_ms_max else 0

    def to_map(self) -> dict[str, Any]:
        """For a GROUP record and a checkpoint. ``asdict`` copies what cannot change, and takes ten times as long."""
        return {field: getattr(self, field) for field in self.__slots__}

    @classmethod
    def from_map(cls, values: Mapping[str, Any]) -> GroupSettings:
        """What an older version did not write has its default."""
        known = {field.name for field in fields(cls)}
        given = {name: value for name, value in values.items() if name in known}
        for name in ("backoff_ms", "tags"):
            if name in given:
                given[name] = tuple(given[name])
        return cls(**given)

    @classmethod
    def declared(cls, group: ConsumerGroup) -> GroupSettings:
        """What a manifest says."""
        wanted = parse_filter(group.tags, group.tag_match == "all")
        return cls(
            lease_ms=group.lease_ms,
            lease_ms_max=group.lease_ms_max,
            attempts_max=group.attempts_max,
            retry_ms_min=group.retry_ms_min,
            backoff_ms=group.backoff_ms,
            dead_letters=group.dead_letters_kept,
            dead_letter_seconds=group.dead_letter_retention_seconds,
            consumption=group.consumption,
            tags=wanted.tags,
            all_tags=wanted.every,
            filter_declared=bool(wanted),
            suspended=group.suspended,
            in_flight_max=group.max_in_flight,
            consumers_max=group.max_consumers,
        )
