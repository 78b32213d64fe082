"""Flags of batches: those that ask for what no broker does are refused, not stored as if they said nothing."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from samples.brokers import SUBJECT, Rig, batch_of, files_of, read_file
from tidemill_broker.settings import BrokerSettings
from tidemill_broker.singles import RUN_LEAST
from tidemill_wire.batch import CHECKED_FROM, STAMP_BYTES, Flags, read_header
from tidemill_wire.columns import split_batches
from tidemill_wire.commands import SendBatches, Sent
from tidemill_wire.errors import KIND_BY_NAME

REFUSED = KIND_BY_NAME["unsupported_flag"]


def flagged(flags: int, sequence: int = 1, subject: str = SUBJECT) -> bytearray:
    batch = batch_of(b"x", sequence=sequence, subject=subject)
    struct.pack_into("<H", batch, CHECKED_FROM + 2, flags)
    assert read_header(batch).flags == flags
    struct.pack_into("<I", batch, STAMP_BYTES, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return batch


@pytest.mark.parametrize(
    "flags, said",
    [
        (Flags.TRANSACTIONAL, "TRANSACTIONAL"),
        (Flags.DELAYED, "DELAYED"),
        (Flags.ORDERED | Flags.DELAYED | Flags.TRANSACTIONAL, "TRANSACTIONAL and DELAYED"),
        (128, "0x80"),
        (0x8000, "0x8000"),
    ],
)
@pytest.mark.parametrize("count", [1, 2 * RUN_LEAST])
def test_batch_that_asks_for_what_no_broker_does_is_refused_and_not_shown(
    flags: int, said: str, count: int
) -> None:
    """Alone, and in a frame that is read as a run: stored, it would be given out at once."""
    rig = Rig(BrokerSettings(durability="low"))
    subjects = [f"order.{number}" for number in range(count)]
    for subject in subjects:
        rig.send(b"before", subject=subject)
    frame = bytearray()
    for number, subject in enumerate(subjects):
        frame += flagged(flags if number == count // 2 else 0, 10 + number, subject)
    answer = rig.ask(SendBatches(frame))
    assert isinstance(answer, Sent)

    assert [(index, number) for index, number, _ in answer.refused] == [(count // 2, REFUSED.number)]
    assert f"a batch with the flag {said}," in answer.refused[0][2]
    assert not REFUSED.retryable
    assert [first >= 0 for first in answer.first_sequences] == [
        number != count // 2 for number in range(count)
    ]
    assert rig.broker.state.by_name[subjects[count // 2].encode()].next_sequence == 1
    assert rig.broker.counters.refused[REFUSED.name] == 1


@pytest.mark.parametrize("flags", [0, Flags.ORDERED, Flags.REDELIVERED | Flags.REPLAYED])
def test_flags_that_say_where_a_batch_comes_from_are_kept(flags: int) -> None:
    rig = Rig()
    answer = rig.ask(SendBatches(flagged(flags)))
    assert isinstance(answer, Sent)
    assert answer.refused == []
    [log] = files_of(rig.disk, "message")
    assert [batch.flags for batch in split_batches(read_file(rig.disk, log))] == [flags]
