"""What meta knows of archives and replays, as their jobs told it: parsed, and as a status says it.

Numbers are texts in a status, as everywhere there. What a row does not say is left as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill_operator.marks import part, rows, timestamp

ERROR_CHARS_MAX = 1_000
COUNTS = ("read", "filtered", "sent", "failed", "duplicate")


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """How far an archive is."""

    watermarks: tuple[Mapping[str, Any], ...] = ()
    """As a status has them, sorted."""
    messages: int | None = None
    size_bytes: int | None = None
    last_error: str = ""

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
    position: str = ""

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.counts:
            found["counts"] = {name: str(count) for name, count in self.counts.items()}
        found |= {"checkpoint": {"position": self.position}} if self.position else {}
        return found | ({"lastError": self.last_error} if self.last_error else {})


def archive_report(row: Mapping[str, Any] | None) -> ArchiveReport:
    """Of a row of meta's; None: it has none yet."""
    if row is None:
        return ArchiveReport()
    marks = sorted((_watermark(one) for one in rows(row, "watermarks")), key=_order)
    counts = part(row, "counts")
    return ArchiveReport(
        tuple(marks), _count(counts.get("messages")), _count(counts.get("bytes")), _error(row)
    )


def replay_report(row: Mapping[str, Any] | None) -> ReplayReport:
    if row is None:
        return ReplayReport({})
    said = part(row, "counts")
    counts = {name: count for name in COUNTS if (count := _count(said.get(name))) is not None}
    return ReplayReport(counts, _error(row), str(row.get("position") or "")[:253])


def _order(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(row["subject"]), str(row["brokerGroup"]), str(row.get("partition", ""))


def _watermark(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"subject": str(row["subject"]), "brokerGroup": str(row["broker_group"])}
    found |= {"partition": str(row["partition"])} if row.get("partition") else {}
    found |= {"sequence": str(row["sequence"])} if row.get("sequence") is not None else {}
    at_ms = _count(row.get("time_ms"))
    return found | ({"time": timestamp(at_ms)} if at_ms is not None else {})


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _error(row: Mapping[str, Any]) -> str:
    return str(row.get("last_error") or "")[:ERROR_CHARS_MAX]
