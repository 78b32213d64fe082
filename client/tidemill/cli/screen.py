"""What `tidemill top` shows, as lines that fit a terminal of any width. On paper: two pictures in, lines out.

A column has a rank. Where all do not fit, those of the highest rank number go first; the first column stays, and is
cut where even it is too wide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tidemill.cli.picture import Node, Pace, Picture, group_sums, pace_of

GAP = "  "
CUT = "…"
RATES = ("tidemill_messages_in_total", "tidemill_messages_out_total", "tidemill_messages_acked_total")


class Column(NamedTuple):
    """One column of a table."""

    head: str
    rank: int
    right: bool = True


BROKERS = (
    Column("BROKER", 0, right=False), Column("ROLE", 2, right=False), Column("IN/S", 1), Column("OUT/S", 1),
    Column("ACK/S", 3), Column("CPU", 4), Column("MEMORY", 5), Column("DISK FREE", 4), Column("CLIENTS", 6),
)  # fmt: skip
GROUPS = (
    Column("GROUP", 0, right=False), Column("SUBJECT", 1, right=False), Column("LAG", 0), Column("DRAINS IN", 2),
    Column("IN/S", 4), Column("DONE/S", 3), Column("FLYING", 5), Column("FAILED", 5), Column("DEAD", 4),
    Column("CONSUMERS", 6), Column("", 3, right=False),
)  # fmt: skip


def screen(now: Picture, before: Picture | None, width: int, height: int | None = None) -> list[str]:
    """The lines; as many groups as there is room for, those with the most to do first."""
    brokers = table(BROKERS, [_broker(node, before, now) for node in now.nodes], width)
    groups = [_group(row) for row in rows(now, before)["groups"]]
    lines = [_head(now, before, width), "", *brokers, ""]
    room = len(groups) if height is None else max(1, height - len(lines) - 2)
    shown = table(GROUPS, groups[:room], width)
    left = len(groups) - room
    return [*lines, *shown, *([cut(f"… and {left:,} more groups", width)] if left > 0 else [])]


def rows(now: Picture, before: Picture | None) -> dict[str, Any]:
    """The same for programs."""
    earlier = {} if before is None else group_sums(before)
    seconds = 0.0 if before is None else now.at_s - before.at_s
    groups: list[dict[str, Any]] = []
    for names, row in group_sums(now).items():
        was = earlier.get(names)
        pace = pace_of(was, row, seconds) if was is not None and seconds > 0 else None
        groups.append({**row, **paced(pace)})
    groups.sort(
        key=lambda row: (-row["lag"] - row["failed"] - row["in_flight"], row["group"], row["subject"])
    )
    rates = ("in_per_s", "out_per_s", "acked_per_s")
    return {
        "brokers": [
            {
                "name": node.name, "service": node.service, "role": node.role, "alive": node.alive,
                "in_sync": node.in_sync, "answers": node.system is not None,
                **dict(zip(rates, (_rate(node, number, before, now) for number in RATES), strict=True)),
            }
            for node in now.nodes
        ],
        "groups": groups,
    }  # fmt: skip


def table(columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int) -> list[str]:
    """Lines no longer than ``width``."""
    widths = [max(len(head.head), *(len(row[at]) for row in cells), 0) for at, head in enumerate(columns)]
    kept = list(range(len(columns)))
    while len(kept) > 1 and sum(widths[at] for at in kept) + len(GAP) * (len(kept) - 1) > width:
        worst = max(columns[at].rank for at in kept)
        if worst == 0:
            break
        kept.remove(next(at for at in reversed(kept) if columns[at].rank == worst))
    rest = sum(widths[at] + len(GAP) for at in kept[1:])
    widths[kept[0]] = min(widths[kept[0]], max(4, width - rest))
    return [cut(line, width) for line in _aligned(columns, cells, kept, widths)]


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + CUT


def _aligned(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], kept: Sequence[int], widths: Sequence[int]
) -> Iterator[str]:
    for row in ([column.head for column in columns], *cells):
        said = [
            cut(row[at], widths[at]).rjust(widths[at])
            if columns[at].right
            else cut(row[at], widths[at]).ljust(widths[at])
            for at in kept
        ]
        yield GAP.join(said).rstrip()


def _head(now: Picture, before: Picture | None, width: int) -> str:
    totals = [_rates(now, before, number) for number in RATES]
    said = " ".join(
        f"{word} {_number(total)}/s" for word, total in zip(("in", "out", "acked"), totals, strict=True)
    )
    lag = sum(row["lag"] for row in group_sums(now).values())
    away = sum(not node.alive or node.system is None for node in now.nodes)
    trouble = f", {away} away" if away else ""
    return cut(f"{said}, lag {lag:,}{trouble}, {now.server}", width)


def _rates(now: Picture, before: Picture | None, number: str) -> float | None:
    found = [_rate(node, number, before, now) for node in now.masters]
    known = [rate for rate in found if rate is not None]
    return sum(known) if known else None


def _rate(node: Node, number: str, before: Picture | None, now: Picture) -> float | None:
    """``None`` when nobody looked before, or it was another process then."""
    value = node.number(number)
    if before is None or value is None or now.at_s <= before.at_s:
        return None
    was = next((one for one in before.nodes if one.name == node.name), None)
    earlier = None if was is None else was.number(number)
    if earlier is None or was is None or was.system is None or node.system is None:
        return None
    if was.system.pid != node.system.pid or value < earlier:
        return None
    return (value - earlier) / (now.at_s - before.at_s)


def _broker(node: Node, before: Picture | None, now: Picture) -> list[str]:
    if not node.alive or node.system is None:
        return [node.name, "away" if not node.alive else "silent", *("-" for _ in BROKERS[2:])]
    rates = [_number(_rate(node, number, before, now)) for number in RATES]
    role = node.role if node.service != "meta" else "meta"
    free, clients = node.number("tidemill_disk_free_bytes"), node.number("tidemill_connections")
    return [
        node.name, role if node.in_sync else f"{role}, behind", *rates, _processor(node, before, now),
        _size(node.system.memory_bytes), "-" if free is None else _size(free), _number(clients),
    ]  # fmt: skip


def _processor(node: Node, before: Picture | None, now: Picture) -> str:
    """Of a core, in percent."""
    was = None if before is None else next((one for one in before.nodes if one.name == node.name), None)
    if before is None or was is None or was.system is None or node.system is None:
        return "-"
    if was.system.pid != node.system.pid or now.at_s <= before.at_s:
        return "-"
    used_ms = node.system.cpu_ms - was.system.cpu_ms
    return f"{used_ms / 10 / (now.at_s - before.at_s):.0f} %"


def _group(row: dict[str, Any]) -> list[str]:
    full = "over quota" if row["over_quota"] else ""
    state = "paused" if row["paused"] else "suspended" if row["suspended"] else full
    return [
        row["group"], row["subject"], f"{row['lag']:,}", drains(row), _number(row["arrives_per_s"]),
        _number(row["handled_per_s"]), f"{row['in_flight']:,}", f"{row['failed']:,}", f"{row['dead']:,}",
        f"{row['consumers']:,}", state,
    ]  # fmt: skip


def drains(row: dict[str, Any]) -> str:
    """How long a group needs to have done all, for a person."""
    if row["handled_per_s"] is None:
        return "-"
    seconds = row["drains_in_s"]
    if seconds is None:
        return "never"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


def paced(pace: Pace | None) -> dict[str, Any]:
    """What a pace says, under the names that programs read."""
    if pace is None:
        return {"arrives_per_s": None, "handled_per_s": None, "drains_in_s": None}
    return {
        "arrives_per_s": round(pace.arrives, 3), "handled_per_s": round(pace.handled, 3),
        "drains_in_s": None if pace.drains_in_s is None else round(pace.drains_in_s, 1),
    }  # fmt: skip


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _size(count: float) -> str:
    return f"{count / (1 << 30):,.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):,.0f} MiB"
