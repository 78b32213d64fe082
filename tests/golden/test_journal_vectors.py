"""Logs of yesterday are still read, and the same values still give the same bytes.

The vectors lie in ``journal/``: a record of each kind of action, a run file, an index, a checkpoint, as ``.hex`` of
bytes, with what they say in a ``.json``. ``REWRITE=1 pytest tests/golden`` writes them anew, on purpose only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any

import msgpack
import numpy as np
import pytest

from samples.actions import ACTIONS, BOOT, DETAIL, PULL, SETTINGS
from tidemill_broker.action_kinds import ActionKind
from tidemill_broker.action_records import decode_action, encode_action
from tidemill_broker.actions import (
    Action,
    ConsumerForgotten,
    ConsumerNamed,
    Exhumed,
    FailedDeliveries,
    GroupNamed,
    GroupPaused,
    Pulled,
    PullRun,
    Purged,
    Reason,
    Started,
    SubjectNamed,
)
from tidemill_broker.snapshots import pack_state, unpack_state
from tidemill_broker.state import State
from tidemill_journal.checkpoint import unwrap, wrap
from tidemill_journal.entries import (
    Rows,
    decode_directory,
    directory_size,
    encode_run,
    pack_size,
    read_windows,
)
from tidemill_journal.index import decode_head, encode_index
from tidemill_journal.records import decode_record, encode_record
from tidemill_wire.batch import Flags, Origin, read_header, stamp
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.deduplication import NO_KEY, digest_of

FOLDER = Path(__file__).parent / "journal"
REWRITE = os.environ.get("REWRITE") == "1"
WITHOUT_LIMITS = "checkpoint-without-limits"
POSITION, AT_MS, EPOCH = 4096, 1_780_000_000_000, 1


def text_of(data: bytes) -> str:
    """Sixteen bytes a line, so that a difference can be found by eye."""
    return "".join(f"{data[at : at + 16].hex(' ')}\n" for at in range(0, len(data), 16))


def record_of(action: Action) -> bytes:
    kind, body = encode_action(action)
    return encode_record(kind, body, POSITION, AT_MS, EPOCH)


def record_meaning(data: bytes) -> Any:
    record = decode_record(data, 0, POSITION)
    action = decode_action(record)
    said = {field.name: plain(getattr(action, field.name)) for field in fields(action)}
    if action == Started(BOOT):
        del said["back_ms"]  # shorter records do not say it
    if action == ConsumerForgotten(5):
        del said["group"], said["name"]
    if isinstance(action, Pulled) and not action.limit_ms:
        del said["limit_ms"]
    if isinstance(action, Exhumed) and action.detail is None:
        del said["detail"]
    header = {"length": record.length, "position": record.position, "at": record.at_ms, "epoch": record.epoch}
    return {"record": header, "kind": ActionKind(record.kind).name, "fields": said}


def plain(value: Any) -> Any:
    return value if isinstance(value, (int, str, dict, NoneType)) else [plain(item) for item in value]


def run_bytes() -> bytes:
    first, second = Rows(), Rows()
    first.append(5, 0, pack_size(168, 5, 1), AT_MS, 0x8000_0000_0000_0401)
    first.append(10, 336, pack_size(176, 1), AT_MS + 2)
    for index in range(1025):
        second.append(3 * index, 512 + 168 * index, pack_size(168, 3), AT_MS + index)
    return encode_run([(1, first), (7, second)])


def run_meaning(data: bytes) -> Any:
    runs = decode_directory(data[: directory_size(data[:16])], data[-8:], len(data), 0)
    said: dict[str, Any] = {}
    for identity, run in runs.items():
        rows = [
            row for window in range(len(run.sparse)) for row in window_rows(data, run.window_place(window))
        ]
        said[str(identity)] = {
            "rows": run.rows, "first": run.first_sequence, "end": run.end_sequence, "bytes": run.size,
            "stored": run.last_stored_at_ms, "windows": list(run.sparse), "ends": [rows[0], rows[-1]],
        }  # fmt: skip
    return said


def window_rows(data: bytes, place: tuple[int, int]) -> list[list[int]]:
    rows = read_windows(data[place[0] : place[0] + place[1]])
    return [
        list(row)
        for row in zip(rows.firsts, rows.positions, rows.sizes, rows.stamps, rows.blooms, strict=True)
    ]


def index_bytes() -> bytes:
    """Three ids, and keys on two pages, two hundred places of one hash among them."""
    ids = np.array([9, 3, 3], np.uint64), np.array([0, 512, 1024], np.uint64)
    hashes = [7 * number + 1 for number in range(200)] + [500] * 200
    places = [8 * number for number in range(400)]
    keys = np.array(hashes, np.uint64), np.array(places, np.uint64)
    return bytes(encode_index(4096, 8192, ids, keys))


def index_meaning(data: bytes) -> Any:
    read = reader_of(data)
    index = decode_head(read, len(data), 4096, 8192)
    ids = {str(value): list(index.ids.upward(read, value)) for value in (3, 9)}
    ends = {str(value): list(index.keys.upward(read, value)) for value in (1, 1394)}
    row = list(index.keys.downward(read, 500))
    return {
        "pages": [index.ids.pages, index.keys.pages],
        "ids": ids,
        "keys": ends,
        "row": [row[0], row[-1], len(row)],
    }


def reader_of(data: bytes) -> Callable[[int, int], bytes]:
    return lambda position, size: data[position : position + size]


def state() -> State:
    made = State()
    for action in (
        Started(BOOT),
        SubjectNamed(1, "order.created", SETTINGS),
        GroupNamed(1, 1, "billing", 0, 0, {"lease": 60_000}),
        ConsumerNamed(1, 1, "pod-7"),
        Pulled(1, AT_MS + 60_000, [PullRun(PULL, 0, 10, 0)]),
        FailedDeliveries(1, AT_MS + 1000, Reason.NACK, [PULL + 2, PULL + 4], AT_MS, 1, DETAIL),
        GroupPaused(1, AT_MS, DETAIL.fingerprint),
        SubjectNamed(2, "%dead%order.created%billing", SETTINGS),
        GroupNamed(2, 2, "billing", 0, 0, {"consumption": "dead"}),
        Purged(2, [0, 1]),
    ):
        made.apply(action)
    made.partitions[1].next_sequence = 12
    made.partitions[1].remember(77, 4, 8)
    made.partitions[1].remember(77, 5, 10)
    return made


def state_with_keys() -> State:
    """Two dedup keys are known, one of them of a batch that was stored in part."""
    made = state()
    content = Content([b"a", b"b"], dedup_keys=[digest_of("o-1"), NO_KEY])
    part = Content([b"c"], dedup_keys=[digest_of("o-2")], sources=[3])
    for number, said in enumerate((content, part), 6):
        origin = Origin(b"order.created", 77, number, bytes([number]) * 16, AT_MS, flags=Flags.DEDUPLICATED)
        batch = build_batch(origin, said)
        stamp(batch, 0, len(batch), 2 * number, 0, AT_MS + number, 1)
        made.deduplication.note_in(made.partitions[1], read_header(batch), bytes(batch), 0)
    return made


def checkpoint_bytes() -> bytes:
    return wrap(pack_state(state(), 1024, POSITION))


def checkpoint_meaning(data: bytes) -> Any:
    said = msgpack.unpackb(unwrap(data), strict_map_key=False)
    for row in said.get("dedup", ()):
        row[1] = [one.hex() for one in row[1]]
        row[2] = [[producer, number, stored.hex()] for producer, number, stored in row[2]]
    return said


VECTORS = {
    **{f"record-{name}": (record_of(action), record_meaning) for name, action in ACTIONS.items()},
    "run": (run_bytes(), run_meaning),
    "index": (index_bytes(), index_meaning),
    "checkpoint": (checkpoint_bytes(), checkpoint_meaning),
    "checkpoint-dedup": (wrap(pack_state(state_with_keys(), 1024, POSITION)), checkpoint_meaning),
}


@pytest.fixture(scope="module", autouse=True)
def rewritten() -> None:
    """All vectors, before the first test reads one."""
    if REWRITE:
        for name, (data, meaning) in VECTORS.items():
            (FOLDER / f"{name}.hex").write_text(text_of(data))
            (FOLDER / f"{name}.json").write_text(
                json.dumps(meaning(data), indent=1, ensure_ascii=False) + "\n"
            )


@pytest.mark.parametrize("name", VECTORS)
def test_vector_is_the_same_bytes_and_says_the_same(name: str) -> None:
    today, meaning = VECTORS[name]
    data = bytes.fromhex((FOLDER / f"{name}.hex").read_text())

    assert meaning(data) == json.loads((FOLDER / f"{name}.json").read_text())
    assert text_of(today) == text_of(data)


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint-dedup"])
def test_checkpoint_of_yesterday_makes_the_same_state(name: str) -> None:
    data = bytes.fromhex((FOLDER / f"{name}.hex").read_text())
    restored, message_position, action_position = unpack_state(unwrap(data))

    assert wrap(pack_state(restored, message_position, action_position)) == data


def test_checkpoint_of_before_leases_had_limits_makes_the_state_without_any() -> None:
    data = bytes.fromhex((FOLDER / f"{WITHOUT_LIMITS}.hex").read_text())
    said = json.loads((FOLDER / f"{WITHOUT_LIMITS}.json").read_text())
    restored, message_position, action_position = unpack_state(unwrap(data))

    assert checkpoint_meaning(data) == said
    assert wrap(pack_state(restored, message_position, action_position)) == checkpoint_bytes()


def test_every_journal_vector_is_read_by_a_test() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(VECTORS) | {WITHOUT_LIMITS}
    assert not REWRITE, "the vectors were written anew: look at the difference, then run without REWRITE"
