"""The tables of the documents say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from samples.commands import COMMANDS, HEARD
from tidemill_wire import batch, columns, limits
from tidemill_wire.batch import Flags
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Column
from tidemill_wire.commands import Kind, SendBatches
from tidemill_wire.connection import Role
from tidemill_wire.errors import ERROR_KINDS, KIND_BY_NAME

ROOT = Path(__file__).parents[3]
FORMAT = (ROOT / "docs/format.md").read_text()
PROTOCOL = (ROOT / "docs/protocol.md").read_text()


def table(text: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head."""
    below = re.split(rf"^#+ {re.escape(heading)}$", text, flags=re.MULTILINE)[1]
    rows = re.search(r"(?:^\|.*\n)+", below, flags=re.MULTILINE)
    assert rows is not None, heading
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[0].splitlines()[2:]]


def numbered(text: str, heading: str) -> dict[str, int]:
    return {name: int(number) for number, name, *_ in table(text, heading)}


def test_columns_are_those_of_the_code() -> None:
    assert numbered(FORMAT, "The columns") == {kind.name: kind.value for kind in Column}


def test_codecs_and_flags_are_those_of_the_code() -> None:
    assert numbered(FORMAT, "Codecs") == {codec.name: codec.value for codec in Codec}
    assert numbered(FORMAT, "Flags") == {flag.name: flag.value for flag in Flags}


def test_frames_are_those_of_the_code() -> None:
    assert numbered(FORMAT, "The commands") == {kind.name: kind.value for kind in Kind}


def test_who_says_what_is_as_in_the_code() -> None:
    says = {name: who for _, name, who, _ in table(FORMAT, "The commands")}
    to_client = {kind.name for kind in HEARD[Role.CLIENT]} | {Kind.WELCOME.name}
    to_server = {kind.name for kind in HEARD[Role.SERVER]} | {Kind.HELLO.name}

    assert {name for name, who in says.items() if who in {"client", "both"}} == to_server
    assert {name for name, who in says.items() if who in {"broker", "both"}} == to_client


@pytest.mark.parametrize("kind", Kind)
def test_fields_of_commands_are_those_of_the_code(kind: Kind) -> None:
    """Fields that may be absent are in one of the samples."""
    documented = {field for name, field, *_ in table(FORMAT, "Fields") if name == kind.name}
    said = {
        field
        for command in COMMANDS.values()
        if command.kind is kind and not isinstance(command, SendBatches)
        for field in command.fields()
    }

    assert said == documented


def test_header_has_the_layout_of_the_code() -> None:
    rows = [(int(place), int(size)) for place, size, *_ in table(FORMAT, "The header")]
    layout = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i64": 8, "bytes": 16}

    assert [place for place, _ in rows] == [
        sum(size for _, size in rows[:index]) for index in range(len(rows))
    ]
    assert sum(size for _, size in rows) == batch.HEADER_BYTES
    assert [size for _, size in rows] == [layout[row[2]] for row in table(FORMAT, "The header")]
    assert len(rows) == len(batch.Header._fields)
    assert sum(int(row[1]) for row in table(FORMAT, "The directory")) == columns.ENTRY.size


def test_errors_are_those_of_the_code() -> None:
    rows = [
        [str(kind.number), kind.name, "yes" if kind.retryable else "no", kind.advice] for kind in ERROR_KINDS
    ]

    assert table(PROTOCOL, "Errors") == rows


def test_reasons_to_close_are_errors() -> None:
    reasons = table(PROTOCOL, "What refuses a request, and what closes a connection")

    assert {reason for reason, _ in reasons} <= set(KIND_BY_NAME)


def test_limits_are_those_of_the_code() -> None:
    for name, value, _ in table(PROTOCOL, "Limits"):
        assert int(value) == getattr(limits, name), name


@pytest.mark.parametrize(
    "name", ["BATCH_BYTES_MAX", "BATCH_MESSAGES_MAX", "FRAME_BYTES_MAX", "REQUEST_BYTES_MAX"]
)
def test_limits_in_the_prose_are_those_of_the_code(name: str) -> None:
    assert f"{getattr(limits, name):,}" in FORMAT


def test_vectors_that_are_named_exist() -> None:
    for name in re.findall(r"`((?:batch|frame)-[a-z]+)`", FORMAT):
        assert (ROOT / f"tests/golden/wire/{name}.hex").exists()
