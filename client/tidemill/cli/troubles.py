"""What is wrong with consumer groups, in words: those that are paused, and those whose dead letters grow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias
from urllib.parse import quote

from tidemill.cli.asking import PortRefused, Unanswered, ask
from tidemill_wire.counted import counted
from tidemill_wire.fields import living_subject

LOOK_SECONDS = 3.0
GREW_SECONDS = 3600.0
"""Dead letters of today are news, and those of last week are somebody's work list."""
NAMED_MAX = 20
"""Groups that are named; a cluster where more are in trouble has one trouble."""

Look: TypeAlias = Callable[[str], Awaitable[Any]]
Row = dict[str, Any]


async def troubles(brokers: Sequence[tuple[str, str]]) -> list[str]:
    """Of brokers by name and HTTP port; one that does not answer is somebody else's to tell."""
    from tidemill.looking import gathered

    return worded([row for rows in await gathered(_troubled(*one) for one in brokers) for row in rows])


async def _troubled(broker: str, address: str) -> list[Row]:
    """Groups in trouble at one broker, and what they fail of."""

    async def look(path: str) -> Any:
        return await ask(address, "GET", path, timeout_s=LOOK_SECONDS)

    try:
        rows: list[Row] = await look("/v1/groups")
        found = [row for row in rows if row["paused"] or row["dead"]][: 10 * NAMED_MAX]
        return [{**row, "broker": broker, **await _known(look, row)} for row in found]
    except (Unanswered, PortRefused):
        return []


async def _known(look: Look, row: Row) -> Row:
    """When its newest dead letter came, and the words of what it is paused for."""
    path = f"/v1/subjects/{quote(row['subject'], safe='')}/groups/{quote(row['group'], safe='')}/dead"
    said = await look(path)
    reason = next((one["reason"] for one in said["errors"] if one["fingerprint"] == row["paused"]), "")
    newest = None
    if row["dead"]:
        page = await look(f"/v1/subjects/{quote(said['subject'], safe='')}/messages?order=newest&limit=1")
        newest = page["messages"][0]["stored_at"] if page["messages"] else None
    return {"reason": reason, "newest": newest}


def worded(rows: Sequence[Row], now: datetime | None = None) -> list[str]:
    """A sentence a group and trouble, with what to do."""
    now = now or datetime.now(UTC)
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((living_subject(row["subject"]), row["group"]), []).append(row)
    found = [
        sentence
        for (subject, group), some in sorted(groups.items())
        for sentence in (*_paused(subject, group, some), *_grew(subject, group, some, now))
    ]
    more = len(found) - NAMED_MAX
    return (
        found if more <= 0 else [*found[:NAMED_MAX], f"… and {more} more: `tidemill groups` lists all groups"]
    )


def _paused(subject: str, group: str, rows: Sequence[Row]) -> list[str]:
    paused = [row for row in rows if row["paused"]]
    if not paused:
        return []
    first = paused[0]
    where = ", ".join(dict.fromkeys(row["broker"] for row in paused))
    what = f"{first['reason']} ({first['paused']})" if first["reason"] else first["paused"]
    sentence = (
        f"group {group} of {subject} is paused at {where}, its deliveries fail alike: {what}; mend its handlers, or "
        "what they need: it is probed, and goes on by itself"
    )
    return [sentence]


def _grew(subject: str, group: str, rows: Sequence[Row], now: datetime) -> list[str]:
    times = [datetime.fromisoformat(row["newest"]) for row in rows if row["newest"]]
    if not times or (now - max(times)).total_seconds() > GREW_SECONDS:
        return []
    count = sum(row["dead"] for row in rows)
    newest = max(times).isoformat(timespec="seconds").replace("+00:00", "Z")
    sentence = (
        f"group {group} of {subject} has {counted(count, 'dead letter')}, the newest of {newest}: look at them with "
        f"`tidemill dead list {subject} -g {group}`"
    )
    return [sentence]
