"""The consumer groups of a cluster: what each broker says of its part, put together.

A group is one to people, on however many brokers and in however many partitions its subject lies. Its numbers are sums.
Consumers are not: one that pulls from two brokers is known to both, so the larger number is the better guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemill.errors import BrokerUnreachable
from tidemill.looking import Holder, Looker, gathered
from tidemill.routes import rows_of
from tidemill_wire.fields import living_subject

SUMS = ("lag", "in_flight", "failed", "dead", "acked")
Row = dict[str, Any]


async def list_groups(looker: Looker) -> list[Row]:
    """All groups; each says in ``away`` which broker groups could not be asked: theirs is not counted."""
    holders = await looker.everybody()
    answers = await gathered(map(_rows_at, holders.there))
    away = [*holders.away, *(name for name, rows in answers if rows is None)]
    rows = merged([(name, rows) for name, rows in answers if rows is not None], await looker.declared(), away)
    if away and not rows:
        raise BrokerUnreachable(
            f"{', '.join(away)} cannot be asked for groups now: look with `tidemill status`, and try again"
        )
    return rows


async def _rows_at(holder: Holder) -> tuple[str, list[Row] | None]:
    """What one broker says; ``None`` when it says nothing."""
    try:
        return holder.address.group, rows_of("groups", await holder.look("/v1/groups", {}))
    except BrokerUnreachable:
        return holder.address.group, None


def merged(
    answers: Sequence[tuple[str, Sequence[Row]]], declared: Iterable[Mapping[str, Any]], away: Sequence[str]
) -> list[Row]:
    """A row for each subject and group. Of one that only meta has heard of, nobody knows numbers."""
    found: dict[tuple[str, str], Row] = {}
    for broker, rows in answers:
        for row in rows:
            subject = living_subject(str(row["subject"]))
            other = found.get((subject, row["group"]))
            if other is None:
                found[subject, row["group"]] = {
                    **row,
                    "subject": subject,
                    "brokers": [broker],
                    "away": list(away),
                }
            else:
                _add(other, row, broker)
    for known in declared:
        names = (living_subject(str(known["subject"])), str(known["group"]))
        if names not in found:
            found[names] = {
                "group": names[1], "subject": names[0], **dict.fromkeys(SUMS), "paused": None,
                "consumption": known.get("consumption"), "suspended": False, "over_quota": None, "consumers": 0,
                "brokers": [], "away": list(away),
            }  # fmt: skip
    return [found[names] for names in sorted(found)]


def _add(known: Row, row: Row, broker: str) -> None:
    for name in SUMS:
        known[name] += row[name]
    known["consumers"] = max(known["consumers"], row["consumers"])
    known["paused"] = known["paused"] or row["paused"]
    known["suspended"] = known["suspended"] or row["suspended"]
    known["over_quota"] = known.get("over_quota") or row.get("over_quota")
    if broker not in known["brokers"]:
        known["brokers"].append(broker)
