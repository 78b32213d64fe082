"""What meta knows of archives and replays, as their jobs told it: parsed, and as a status says it.

Numbers are texts in a status, as everywhere there. What a row does not say is left as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill_operator.marks import part, rows, timestamp
from tidemill_wire.fields import living_subject

ERROR_CHARS_MAX = 1_000
COUNTS = ("read", "filtered", "sent", "failed", "duplicate")
ACTIVE, ENDED = "Active", "Ended"


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """How far an archive is."""

    known: bool = False
    ended: bool = False
    """Meta keeps nothing for it."""
    subjects: frozenset[str] = frozenset()
    """Those that meta knows it to be of."""
    watermarks: tuple[Mapping[str, Any], ...] = ()
    """As a status has them, sorted."""
    messages: int | None = None
    """Of the last run that went well."""
    size_bytes: int | None = None
    last_error: str = ""
    """Of the last run that ended, if it failed."""
    lost: str = ""
    """Of the last run, when nobody hears of its driver any more: which one, and since when, in a sentence."""
    lost_ms: int = 0
    """When it was last heard."""

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.watermarks:
            found["watermarks"] = [dict(one) for one in self.watermarks]
        archived = {"messages": self.messages, "bytes": self.size_bytes}
        told = {name: str(count) for name, count in archived.items() if count is not None}
        found |= {"archived": told} if told else {}
        return found | ({"lastError": self.last_error} if self.last_error else {})


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What became of the messages of a replay."""

    counts: Mapping[str, int]
    last_error: str = ""
    lost: str = ""
    """As of an archive."""

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.counts:
            found["counts"] = {name: str(count) for name, count in self.counts.items()}
        return found | ({"lastError": self.last_error} if self.last_error else {})


def archive_report(row: Mapping[str, Any] | None) -> ArchiveReport:
    """Of a row of meta's; None: it has none yet."""
    if row is None:
        return ArchiveReport()
    ended = [one for one in rows(row, "runs") if one.get("state") in {"Succeeded", "Failed"}]
    last: Mapping[str, Any] = ended[-1] if ended else {}
    good = [one for one in ended if one["state"] == "Succeeded"]
    well: Mapping[str, Any] = good[-1] if good else {}
    counts = part(well, "counts")
    return ArchiveReport(
        True,
        row.get("state") == ENDED,
        frozenset(str(one) for one in rows(row, "subjects")),
        tuple(_watermarks(part(row, "watermarks"), _count(well.get("through")))),
        _count(counts.get("messages")),
        _count(counts.get("written_bytes")),
        _error(last) if last.get("state") == "Failed" else "",
        *_lost(rows(row, "runs"), "run"),
    )


def replay_report(row: Mapping[str, Any] | None) -> ReplayReport:
    if row is None:
        return ReplayReport({})
    said = part(row, "counts")
    whole = {"read" if row.get("dry_run") else "sent": said.get("messages")}
    counts = {name: count for name in COUNTS if (count := _count({**whole, **said}.get(name))) is not None}
    return ReplayReport(counts, _error(row), _lost([row], "name")[0])


def _lost(runs: Sequence[Mapping[str, Any]], name: str) -> tuple[str, int]:
    """Of the last of them, if it is."""
    last: Mapping[str, Any] = runs[-1] if runs else {}
    heard_ms = _count(last.get("heard_at"))
    if last.get("state") != "Lost" or heard_ms is None:
        return "", 0
    return f"the driver of {last.get(name)} was last heard of at {timestamp(heard_ms)}", heard_ms


def _watermarks(groups: Mapping[str, Any], through_ms: int | None) -> list[dict[str, Any]]:
    time = {} if through_ms is None else {"time": timestamp(through_ms)}
    found = [
        {
            "subject": living_subject(name),
            "brokerGroup": group,
            **({} if name == living_subject(name) else {"partition": name}),
            "sequence": str(number),
            **time,
        }
        for group, partitions in groups.items()
        for name, number in partitions.items()
    ]
    return sorted(found, key=lambda one: (one["subject"], one["brokerGroup"], one.get("partition", "")))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _error(row: Mapping[str, Any]) -> str:
    return str(row.get("error") or "")[:ERROR_CHARS_MAX]
