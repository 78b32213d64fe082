"""What the column CRON of a batch says: how its one message recurs, and which of its occurrences this is.

    1795424400000 0000000000000000 once Europe/Berlin 0 9 * * mon-fri
    planned for   series           missed  zone        expression

The sender does not name the series: it is that of the first occurrence's id, which the service derives.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill_wire.cron import Cron, Offset, Zones, next_after, parse_cron

MISSED = ("once", "all", "none")
"""What becomes of occurrences whose time passed while nobody could place them: one of them comes, or each, or none."""
MISSED_MS = 60_000
"""What is late by more than that was missed: expressions know nothing shorter than a minute."""
ZONE_CHARS_MAX = 64


@dataclass(frozen=True, slots=True)
class Recurrence:
    """See the module."""

    planned_ms: int
    """The time that the expression says, which stays when the message is given another one."""
    missed: str
    zone: str
    expression: str
    series: int = 0

    @property
    def cron(self) -> Cron:
        """The expression, which was good when this was read."""
        return parse_cron(self.expression)

    def next_ms(self, base_ms: int, offset: Offset) -> int | None:
        """Its first time behind a moment."""
        found = next_after(self.cron, base_ms // 1000, offset)
        return None if found is None else 1000 * found

    def encode(self) -> bytes:
        """As the column has it."""
        return f"{self.planned_ms} {self.series:016x} {self.missed} {self.zone} {self.expression}".encode()


def parse_recurrence(data: bytes) -> Recurrence:
    """What ``encode`` gave, or ``ValueError`` with a sentence."""
    parts = data.decode("ascii", "replace").split(" ", 4)
    if len(parts) != 5 or not (parts[0].isascii() and parts[0].isdecimal() and len(parts[0]) <= 15):
        raise ValueError("a column CRON that does not say when, how and where")
    if len(parts[1]) != 16 or not set(parts[1]) <= set("0123456789abcdef"):
        raise ValueError("a column CRON whose series is no 16 hex digits")
    planned, series, missed, zone, expression = parts
    check_missed(missed)
    if len(zone) > ZONE_CHARS_MAX:
        raise ValueError(f"a time zone's name has {len(zone)} characters, {ZONE_CHARS_MAX} are the limit")
    parse_cron(expression)
    return Recurrence(int(planned), missed, zone, expression, int(series, 16))


def begin_series(rule: tuple[str, str | None, str | None], zones: Zones, now_ms: int) -> Recurrence:
    """The first occurrence after now of what a user wrote: expression, time zone and what becomes of missed ones;
    ``ValueError`` says what is wrong with it.
    """
    expression, zone = rule[0], "UTC" if rule[1] is None else rule[1]
    missed = check_missed(MISSED[0] if rule[2] is None else rule[2])
    said = Recurrence(0, missed, zone, " ".join(expression.split()))
    parse_cron(expression)
    first_ms = said.next_ms(now_ms, zones(zone))
    if first_ms is None:
        raise ValueError(f"{expression[:60]!r} is never: no year has such a day")
    return Recurrence(first_ms, said.missed, said.zone, said.expression)


def check_missed(missed: str) -> str:
    """One of the three words."""
    if missed not in MISSED:
        raise ValueError(f"missed is {missed[:60]!r}: write {', '.join(MISSED[:-1])} or {MISSED[-1]}")
    return missed


def only_utc(zone: str) -> Offset:
    """For whoever was given no other zones."""
    if zone != "UTC":
        raise ValueError(f"there is no time zone {zone[:60]!r}: write one such as Europe/Berlin, or UTC")
    return lambda _second: 0
