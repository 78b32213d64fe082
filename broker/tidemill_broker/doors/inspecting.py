"""``tidemill inspect log``: reads logs as they lie, says what is in them, and what is wrong and where. Never writes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from tidemill_broker.actions import ActionKind
from tidemill_broker.scanning import BatchScanner, RecordScanner
from tidemill_journal.errors import CorruptRecord
from tidemill_journal.segments import base_of
from tidemill_wire.counted import counted
from tidemill_wire.errors import CorruptBatch

Row = dict[str, Any]


def inspect(path: str, output: str, write: Callable[[str], object]) -> int:
    """Look into a data folder or one segment; 0 when everything is good, 1 when not."""
    files = list(_segments(path))
    if not files:
        write(f"{path} holds no segment of a message or action log: name a data folder or a .log file\n")
        return 1
    good = True
    for kind, file in files:
        summary: Row = {"file": file, "log": kind, "entries": 0, "bytes": os.path.getsize(file), "good": True}
        for row in _rows(kind, file, summary):
            if output == "json":
                write(json.dumps(row) + "\n")
        good = good and bool(summary["good"])
        if output == "json":
            write(json.dumps(summary) + "\n")
        else:
            write(_text(summary))
    return 0 if good else 1


def _segments(path: str) -> Iterator[tuple[str, str]]:
    if os.path.isfile(path):
        if base_of(os.path.basename(path)) is not None:
            folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
            yield ("action" if folder == "action" else "message"), path
        return
    for kind in ("message", "action"):
        folder = os.path.join(path, kind)
        if os.path.isdir(folder):
            for name in sorted(os.listdir(folder)):
                if base_of(name) is not None:
                    yield kind, os.path.join(folder, name)


def _rows(kind: str, file: str, summary: Row) -> Iterator[Row]:
    base = base_of(os.path.basename(file))
    assert base is not None
    with open(file, "rb") as handle:

        def read(place: int, size: int) -> bytes:
            return os.pread(handle.fileno(), size, place)

        end = base + os.path.getsize(file)
        batches, records = BatchScanner(read, base, end, base), RecordScanner(read, base, end, base)
        try:
            for row in _batch_rows(batches) if kind == "message" else _record_rows(records):
                summary["entries"] += 1
                yield row
        except (CorruptBatch, CorruptRecord) as error:
            position = batches.position if kind == "message" else records.position
            summary.update(
                good=False, bad_position=position, place_in_file=position - base, problem=str(error)
            )


def _batch_rows(scanner: BatchScanner) -> Iterator[Row]:
    for header, name in scanner:
        yield {
            "position": header.position, "partition": name.decode("utf-8", "replace"), "length": header.length,
            "messages": header.messages, "first_sequence": header.first_sequence, "batch": header.batch_id.hex(),
            "stored_at_ms": header.stored_at_ms,
        }  # fmt: skip


def _record_rows(scanner: RecordScanner) -> Iterator[Row]:
    names = {kind.value: kind.name for kind in ActionKind}
    for record in scanner:
        yield {
            "position": record.position, "action": names.get(record.kind, str(record.kind)), "length": record.length,
            "at_ms": record.at_ms,
        }  # fmt: skip


def _text(summary: Row) -> str:
    nouns = ("batch", "batches") if summary["log"] == "message" else ("action", "actions")
    line = f"{summary['file']}: {counted(summary['entries'], *nouns)}, {counted(summary['bytes'], 'byte')}"
    if summary["good"]:
        return line + ", all good\n"
    where = f"position {summary['bad_position']} (byte {summary['place_in_file']} of the file)"
    return line + f"\n  BAD at {where}: {summary['problem']}\n"
