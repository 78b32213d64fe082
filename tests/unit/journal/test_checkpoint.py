"""Checkpoints: whole or refused, and numbered by their names."""

from __future__ import annotations

import pytest

from tidemill_journal.checkpoint import checkpoint_file, checkpoint_number, unwrap, wrap
from tidemill_journal.errors import CorruptRecord


@pytest.mark.parametrize("payload", [b"", b"x", bytes(10_000)])
def test_payload_is_read_as_it_was_written(payload: bytes) -> None:
    assert unwrap(wrap(payload)) == payload


def test_checkpoint_that_is_cut_or_followed_by_more_is_refused() -> None:
    data = wrap(b"a state")
    for other in (*(data[:size] for size in range(len(data))), data + b"\0"):
        with pytest.raises(CorruptRecord):
            unwrap(other)


def test_checkpoint_with_any_bit_wrong_is_refused() -> None:
    """But for the four bytes that are kept for later."""
    data = wrap(b"a state")
    for bit in range(8 * len(data)):
        if 20 <= bit // 8 < 24:
            continue
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptRecord):
            unwrap(bytes(damaged))


def test_number_of_a_checkpoint_is_in_its_name() -> None:
    folder, _, name = checkpoint_file(17).rpartition("/")

    assert (folder, name) == ("checkpoint", "000000000017.ckpt")
    assert checkpoint_number(name) == 17


@pytest.mark.parametrize(
    "name", ["", "17.ckpt", "000000000017", "000000000017.ckpt.tmp", "00000000001x.ckpt"]
)
def test_other_files_are_no_checkpoints(name: str) -> None:
    assert checkpoint_number(name) is None
