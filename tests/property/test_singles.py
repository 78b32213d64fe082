"""A run of plain singles that is read at once ends as it does one by one: same bytes, same answers, same state."""

from __future__ import annotations

import struct
from itertools import chain
from unittest.mock import patch

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from samples.brokers import TINY, Rig, batch_of, files_of, read_file
from tidemill_broker import intake
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.singles import RUN_LEAST, find_runs
from tidemill_broker.snapshots import pack_state
from tidemill_wire.batch import CHECKED_FROM, SINGLES_FROM, STAMP_BYTES
from tidemill_wire.commands import SendBatches, Sent

FLAGS_AT = CHECKED_FROM + 2
SUBJECTS = [f"order.{number}" for number in range(30)]

ODD = st.sampled_from(
    ["plain", "plain", "plain", "two", "sum", "own", "again", "once", "large", "unknown", "flag"]
)
BATCH = st.tuples(ODD, st.sampled_from(SUBJECTS), st.integers(0, 40), st.integers(0, 200))
CROWD = st.permutations(SUBJECTS).map(lambda names: [("plain", name, len(name), 65) for name in names[:20]])
FRAME = st.lists(CROWD | BATCH.map(lambda batch: [batch]), min_size=1, max_size=8).map(
    lambda parts: list(chain.from_iterable(parts))
)


def build(kind: str, subject: str, size: int, byte: int, number: int) -> bytearray:
    body = bytes([byte]) * size
    match kind:
        case "two":
            return batch_of(body, b"more", subject=subject, sequence=number)
        case "sum":
            batch = batch_of(body + b"x", subject=subject, sequence=number)
            batch[-8] ^= 1
            return batch
        case "own":
            return batch_of(body, subject="%dead%x%y", sequence=number)
        case "again":
            return batch_of(body, subject=subject, sequence=max(1, number - 3))
        case "once":
            return batch_of(body, subject=subject, sequence=number, producer=SINGLES_FROM + number % 2)
        case "large":
            return batch_of(b"l" * 3000, subject=subject, sequence=number)
        case "flag":
            flagged = batch_of(body, subject=subject, sequence=number)
            struct.pack_into("<H", flagged, FLAGS_AT, 1 << byte % 16)
            struct.pack_into("<I", flagged, STAMP_BYTES, crc32c(memoryview(flagged)[CHECKED_FROM:]))
            return flagged
        case "unknown":
            return batch_of(body, subject=f"new.{number}", sequence=number)
    return batch_of(body, subject=subject, sequence=number)


def state_after(settings: BrokerSettings, frames: list[bytearray]) -> tuple[object, ...]:
    rig = Rig(settings)
    for subject in SUBJECTS[:-1]:
        rig.ask(SendBatches(batch_of(b"first", subject=subject, sequence=1, producer=2)))
    answers = [rig.ask(SendBatches(bytearray(frame))) for frame in frames]
    assert all(isinstance(answer, Sent) for answer in answers)
    logs = rig.broker.logs
    return (
        answers,
        [(name, read_file(rig.disk, name)) for name in files_of(rig.disk, "message")],
        pack_state(rig.broker.state, logs.messages.end, logs.actions.end, 0),
        rig.broker.counters,
    )


@given(st.lists(FRAME, min_size=1, max_size=3), st.booleans())
def test_run_is_what_it_would_be_one_by_one(
    frames: list[list[tuple[str, str, int, int]]], tiny: bool
) -> None:
    settings = TINY if tiny else BrokerSettings(durability="low")
    number = 10
    built: list[bytearray] = []
    for frame in frames:
        data = bytearray()
        for kind, subject, size, byte in frame:
            number += 1
            data += build(kind, subject, size, byte, number)
        built.append(data)

    by_runs = state_after(settings, built)
    with patch.object(intake, "find_runs", lambda _view: {}):
        one_by_one = state_after(settings, built)
    assert by_runs == one_by_one


def test_a_frame_of_many_subjects_is_one_run() -> None:
    """What the comparison above rests on: that there is a run at all."""
    frame = bytearray()
    for number in range(2 * RUN_LEAST):
        frame += batch_of(b"body", subject=f"order.{number}", sequence=1)
    (run,) = find_runs(memoryview(frame)).values()
    assert (run.begin, run.size, len(run.names)) == (0, len(frame), 2 * RUN_LEAST)

    rig = Rig(BrokerSettings(durability="low"))
    with patch.object(
        intake.Intake, "_take_run", autospec=True, side_effect=intake.Intake._take_run
    ) as taken:
        rig.ask(SendBatches(bytearray(frame)))
        later = bytearray()
        for number in range(2 * RUN_LEAST):
            later += batch_of(b"body", subject=f"order.{number}", sequence=2)
        rig.ask(SendBatches(later))
    assert taken.call_count == 2
    assert rig.broker.counters.messages_in == 4 * RUN_LEAST
