"""What `tidemill inspect log` shows of logs as they lie, and what it says of those that are damaged."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from samples.brokers import batch_of
from tidemill_broker.action_kinds import ActionKind
from tidemill_broker.doors.inspecting import Wanted, inspect
from tidemill_journal.records import encode_record
from tidemill_wire.batch import stamp

AT_MS = 1_700_000_000_123


@dataclass
class Seen:
    """What was written where, and the exit code."""

    code: int = -1
    lines: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def look(path: Path, output: str = "text", *, verify: bool = False) -> Seen:
    seen = Seen()
    seen.code = inspect(Wanted(str(path), output, verify), seen.lines.append, seen.errors.append)
    assert all(line.count("\n") == 1 and line.endswith("\n") for line in seen.lines)
    assert all("\n" not in sentence for sentence in seen.errors)
    return seen


def fill(data: Path, *bases: int) -> list[Path]:
    """A data folder: two batches in each message segment, one record in the action log."""
    files = [data / "message" / f"{base:020}.log" for base in bases]
    for folder in ("message", "action", "checkpoint"):
        (data / folder).mkdir(parents=True)
    for file, base in zip(files, bases, strict=True):
        content = bytearray()
        for index in range(2):
            batch = batch_of(b"x" * 100, sequence=index)
            stamp(batch, 0, len(batch), 10 + index, base + len(content), AT_MS, 1)
            content += batch
        file.write_bytes(content)
    record = encode_record(ActionKind.SYNCED.value, bytes(16), 0, AT_MS, 1)
    (data / "action" / f"{0:020}.log").write_bytes(record)
    return files


def damage(file: Path) -> int:
    """The second batch gets another byte; where it begins."""
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    return len(content) // 2


def test_entries_are_listed_one_a_line_with_place_time_and_what(tmp_path: Path) -> None:
    [file] = fill(tmp_path, 0)

    seen = look(tmp_path)

    first, second, summary, action, last = seen.lines
    size = file.stat().st_size // 2
    assert first.split()[:3] == ["0", str(size), "2023-11-14T22:13:20.123Z"]
    assert second.split()[0] == str(size)
    assert " 11..11 batch " in second
    assert summary == f"{file}: 2 batches, {2 * size:,} bytes, all good\n"
    assert action.split()[2:] == ["2023-11-14T22:13:20.123Z", "SYNCED"]
    assert last.endswith("1 action, " + last.split(", ")[1] + ", all good\n")
    assert (seen.code, seen.errors) == (0, [])


def test_only_files_are_listed_when_they_are_to_be_verified(tmp_path: Path) -> None:
    fill(tmp_path, 0)

    assert len(look(tmp_path, verify=True).lines) == 2
    rows = [json.loads(line) for line in look(tmp_path, "json", verify=True).lines]
    assert [(row["log"], row["entries"]) for row in rows] == [("message", 2), ("action", 1)]


def test_a_bad_entry_is_said_with_its_place_and_the_next_file_is_looked_at(tmp_path: Path) -> None:
    one, other = fill(tmp_path, 0, 4096)
    place = damage(one)

    seen = look(tmp_path)

    assert seen.code == 1
    [sentence] = seen.errors
    assert sentence.startswith(f"{one} is bad at position {place} (byte {place} of the file), ")
    assert "restore the file" in sentence
    assert [line.split(": ")[1] for line in seen.lines if ": " in line] == [
        f"1 batch, {2 * place:,} bytes, BAD\n",
        f"2 batches, {2 * place:,} bytes, all good\n",
        f"1 action, {(tmp_path / 'action' / f'{0:020}.log').stat().st_size} bytes, all good\n",
    ]
    assert str(other) in "".join(seen.lines)


def test_a_file_that_cannot_be_read_is_said_and_the_next_one_is_looked_at(tmp_path: Path) -> None:
    """A folder with the name of a segment stands for whatever cannot be read: it is so for root, too."""
    fill(tmp_path, 4096)
    (tmp_path / "message" / f"{0:020}.log").mkdir()

    seen = look(tmp_path, verify=True)

    assert seen.code == 1
    [sentence] = seen.errors
    assert "Is a directory" in sentence
    assert [line.endswith("all good\n") for line in seen.lines] == [False, True, True]


def test_the_folder_of_a_cluster_is_that_of_all_its_brokers(tmp_path: Path) -> None:
    for name in ("g0-0", "g1-0"):
        fill(tmp_path / name, 0)
    (tmp_path / "meta-0").mkdir()

    seen = look(tmp_path, verify=True)

    assert seen.code == 0
    assert [Path(line.partition(":")[0]).parts[-3:-1] for line in seen.lines] == [
        ("g0-0", "message"), ("g0-0", "action"), ("g1-0", "message"), ("g1-0", "action"),
    ]  # fmt: skip


def test_what_holds_no_log_is_said_to_hold_none(tmp_path: Path) -> None:
    fill(tmp_path / "data", 0)
    shutil.rmtree(tmp_path / "data" / "message")
    (tmp_path / "data" / "action" / f"{0:020}.log").unlink()

    for path in (tmp_path, tmp_path / "data", tmp_path / "data" / "checkpoint"):
        seen = look(path)
        assert (seen.code, seen.lines, len(seen.errors)) == (1, [], 1)
        assert "holds no segment" in seen.errors[0]
