"""``tidemill inspect log``: reads logs as they lie, says what is in them, and what is wrong and where. Never writes.

Entries and files go to standard output, one line each, as they are read; what is wrong goes to standard error. A
segment that is bad, or cannot be read, ends at that place, and the next one is looked at.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from tidemill_broker.action_kinds import ActionKind
from tidemill_journal.errors import CorruptRecord
from tidemill_journal.segments import base_of
from tidemill_ledger.scanning import BatchScanner, RecordScanner
from tidemill_wire.counted import counted
from tidemill_wire.errors import CorruptBatch

LOGS = ("message", "action")
NONE = "holds no segment of a message or action log: name a data folder, that of a cluster, or a .log file"
ADVICE = (
    "what is before it is good; look again when no queue runs here, and if it is still so, "
    "restore the file from a copy"
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row: TypeAlias = dict[str, Any]
Write: TypeAlias = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person wants to see. ``verify``: no line for an entry."""

    path: str
    output: str
    verify: bool = False


def run_inspect(wanted: Wanted) -> int:
    """As a command: the exit code. Whatever a person can cause is one sentence on standard error."""
    try:
        code = inspect(wanted, sys.stdout.write, _complain)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _complain("interrupted before it was done: run it again")
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left unwritten fails no more
        _complain(_of_output(error))
    else:
        return code
    return 1


def inspect(wanted: Wanted, write: Write, complain: Write) -> int:
    """Look into a data folder, that of a cluster, or one segment; 0 when everything is good, 1 when not."""
    good, found = True, False
    for kind, file in _segments(wanted.path, complain):
        found = True
        summary: Row = {"file": file, "log": kind, "entries": 0, "bytes": 0, "good": True}
        for row in _rows(kind, file, summary):
            if not wanted.verify:
                write(_written(row, wanted.output) or _line(row))
        good = good and bool(summary["good"])
        write(_written(summary, wanted.output) or _summary_line(summary))
        if not summary["good"]:
            complain(_sentence(summary))
    if not found:
        complain(f"{wanted.path} {NONE}")
    return 0 if good and found else 1


def _written(row: Row, output: str) -> str:
    """For programs; nothing when it is for a person."""
    if output == "yaml":
        import yaml

        return str(yaml.safe_dump(row, sort_keys=False, explicit_start=True))
    return json.dumps(row) + "\n" if output == "json" else ""


def _segments(path: str, complain: Write) -> Iterator[tuple[str, str]]:
    if not os.path.isdir(path):
        if base_of(os.path.basename(path)) is not None:
            folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
            yield ("action" if folder == "action" else "message"), path
        return
    names = _names(path, complain)
    if not any(kind in names for kind in LOGS):  # of several brokers, as `up --brokers 3` makes them
        for name in names:
            below = os.path.join(path, name)
            if any(os.path.isdir(os.path.join(below, kind)) for kind in LOGS):
                yield from _segments(below, complain)
        return
    for kind in LOGS:
        folder = os.path.join(path, kind)
        for name in _names(folder, complain) if os.path.isdir(folder) else ():
            if base_of(name) is not None:
                yield kind, os.path.join(folder, name)


def _names(folder: str, complain: Write) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        complain(f"{folder} cannot be read ({error.strerror}): let this user read it")
        return []


def _rows(kind: str, file: str, summary: Row) -> Iterator[Row]:
    base = base_of(os.path.basename(file))
    assert base is not None
    try:
        handle = open(file, "rb")  # noqa: SIM115 - an error of whoever takes the rows is not one of this file
    except OSError as error:
        summary.update(good=False, problem=f"it cannot be read ({error.strerror})")
        return
    with handle:

        def read(place: int, size: int) -> bytes:
            return os.pread(handle.fileno(), size, place)

        size = os.fstat(handle.fileno()).st_size
        batches, records = (
            BatchScanner(read, base, base + size, base),
            RecordScanner(read, base, base + size, base),
        )
        summary["bytes"] = size
        try:
            for row in _batch_rows(batches) if kind == "message" else _record_rows(records):
                summary["entries"] += 1
                yield row
        except (CorruptBatch, CorruptRecord, OSError) as error:
            position = batches.position if kind == "message" else records.position
            problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
            summary.update(good=False, bad_position=position, place_in_file=position - base, problem=problem)


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


def _line(row: Row) -> str:
    """An entry: where it is, how long, from when, and what."""
    if "action" in row:
        at_ms, what = row["at_ms"], row["action"]
    else:
        at_ms, first = row["stored_at_ms"], row["first_sequence"]
        what = f"{row['partition']} {first}..{first + row['messages'] - 1} batch {row['batch']}"
    return f"{row['position']:>14} {row['length']:>9} {_time(at_ms)} {what}\n"


def _time(at_ms: int) -> str:
    try:
        at = EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        return f"{at_ms} ms"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _summary_line(summary: Row) -> str:
    nouns = ("batch", "batches") if summary["log"] == "message" else ("action", "actions")
    line = f"{summary['file']}: {counted(summary['entries'], *nouns)}, {counted(summary['bytes'], 'byte')}"
    return f"{line}, {'all good' if summary['good'] else 'BAD'}\n"


def _sentence(summary: Row) -> str:
    """What is wrong with a file, and what to do."""
    if "bad_position" not in summary:
        return f"{summary['file']}: {summary['problem']}: let this user read it, or move it away when it is no log"
    where = f"position {summary['bad_position']} (byte {summary['place_in_file']} of the file)"
    return f"{summary['file']} is bad at {where}, {summary['problem']}: {ADVICE}"


def _of_output(error: OSError) -> str:
    if isinstance(error, BrokenPipeError):
        return "the reader of the output is gone: what it did not read was not looked at"
    if error.errno == errno.ENOSPC:
        return "the output cannot be written, its disk is full: free space and run it again"
    return f"the output cannot be written ({error.strerror}): look at where it goes"


def _complain(sentence: str) -> None:
    try:
        sys.stderr.write(f"tidemill: {' '.join(sentence.split())}\n")
    except OSError:
        return  # nobody reads it; the exit code has to do
