"""Old bytes are still read, and the same values still give the same bytes.

The vectors lie in ``wire/``: a ``.hex`` of bytes and a ``.json`` of what they say. ``REWRITE=1 pytest tests/golden``
writes them anew, on purpose only: a difference in git is a change of the format. Compressed batches are only read, for
compressors may find better ways; ``docs/format.md`` refers to the vectors by name.
"""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from samples.batches import BATCHES, PACKED, values
from samples.commands import COMMANDS, comparable
from tidemill_wire.batch import check_stamp
from tidemill_wire.columns import Batch
from tidemill_wire.commands import encode_command, parse_command
from tidemill_wire.frame import FrameDecoder

FOLDER = Path(__file__).parent / "wire"
REWRITE = os.environ.get("REWRITE") == "1"
CORRELATION = 0x0102030405060708


def text_of(data: bytes) -> str:
    """Sixteen bytes a line, so that a difference can be found by eye."""
    return "".join(f"{data[at : at + 16].hex(' ')}\n" for at in range(0, len(data), 16))


def plain(value: Any) -> Any:
    """A field of a command as JSON has it."""
    match value:
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case list() | tuple():
            return [plain(item) for item in value]
        case int() | str() | None:
            return value
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case _:
            return said(value)


def said(value: Any) -> dict[str, Any]:
    """What a command says; a field that it does not mention is none of it, for older frames have fewer."""
    found = {field.name: getattr(value, field.name) for field in fields(value)}
    return {name: plain(value) for name, value in found.items() if value is not None and value is not False}


def meaning(data: bytes) -> dict[str, Any]:
    """What a frame says."""
    [frame] = FrameDecoder().feed(data)
    command = parse_command(frame)
    header = {
        "type": frame.type,
        "flags": frame.flags,
        "correlation": frame.correlation,
        "size": len(frame.body),
    }
    return {"frame": header, "command": type(command).__name__, "fields": said(comparable(command))}


@pytest.fixture(scope="module", autouse=True)
def rewritten() -> None:
    """All vectors, before the first test reads one."""
    if not REWRITE:
        return
    for name, batch in (BATCHES | PACKED).items():
        rewrite(f"batch-{name}", bytes(batch), values(Batch(batch)))
    for name, command in COMMANDS.items():
        data = encode_command(command, CORRELATION)
        rewrite(f"frame-{name}", data, meaning(data))


def rewrite(name: str, data: bytes, value: dict[str, Any]) -> None:
    (FOLDER / f"{name}.hex").write_text(text_of(data))
    (FOLDER / f"{name}.json").write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def stored(name: str) -> tuple[bytes, Any]:
    return bytes.fromhex((FOLDER / f"{name}.hex").read_text()), json.loads(
        (FOLDER / f"{name}.json").read_text()
    )


@pytest.mark.parametrize("name", [*BATCHES, *PACKED])
def test_batch_says_what_it_said(name: str) -> None:
    data, expected = stored(f"batch-{name}")

    assert values(Batch(data)) == expected
    if name == "stamped":
        check_stamp(data, 0, Batch(data).header)


@pytest.mark.parametrize("name", BATCHES)
def test_batch_is_built_of_the_same_bytes(name: str) -> None:
    assert text_of(bytes(BATCHES[name])) == text_of(stored(f"batch-{name}")[0])


@pytest.mark.parametrize("name", PACKED)
def test_batch_that_is_compressed_today_says_the_same(name: str) -> None:
    changing = {"crc", "length"}
    today, expected = values(Batch(PACKED[name])), stored(f"batch-{name}")[1]

    for value in (today, expected):
        value["header"] = {key: part for key, part in value["header"].items() if key not in changing}
    assert today == expected


@pytest.mark.parametrize("name", COMMANDS)
def test_frame_is_the_same_bytes_and_says_the_same(name: str) -> None:
    data, expected = stored(f"frame-{name}")

    assert meaning(data) == expected
    assert text_of(encode_command(COMMANDS[name], CORRELATION)) == text_of(data)


def test_every_vector_is_read_by_a_test() -> None:
    names = {f"batch-{name}" for name in (*BATCHES, *PACKED)} | {f"frame-{name}" for name in COMMANDS}

    assert {path.stem for path in FOLDER.iterdir()} == names
    assert not REWRITE, "the vectors were written anew: look at the difference, then run without REWRITE"
