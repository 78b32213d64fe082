"""What a consumer is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill_wire import limits
from tidemill_wire.fields import Fields, malformed

_I63 = 0x7FFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Grant:
    """Messages that a consumer may handle now: ``count`` of them from ``first_sequence`` on, under a lease."""

    subject: str
    pull_sequence: int
    first_sequence: int
    count: int
    attempts: int
    batches: int
    """How many of the batches that follow hold them; messages of those batches outside the range are not granted."""

    def row(self) -> tuple[Any, ...]:
        return (
            self.subject, self.pull_sequence, self.first_sequence, self.count, self.attempts, self.batches
        )  # fmt: skip


def read_grants(f: Fields) -> list[Grant]:
    """The grants of a PULLED."""
    grants: list[Grant] = []
    for row in f.items("grants", limits.GRANTS_MAX):
        match row:
            case [str(subject), int(pull), int(first), int(count), int(attempts), int(batches)]:
                grants.append(Grant(subject, pull, first, count, attempts, batches))
            case _:
                raise malformed("field 'grants' holds something else than grants")
        if (
            min(pull, first, count, attempts, batches) < 0
            or max(pull, first, count, attempts, batches) > _I63
        ):
            raise malformed("a grant with a number below zero, or beyond 63 bits")
    return grants
