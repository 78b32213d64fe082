"""What jobs tell meta of thousands of partitions goes in pieces that meta takes."""

from __future__ import annotations

import json

from tidemill_meta.doors.api import BODY_BYTES_MAX
from tidemill_spark.marks import PIECE_BYTES, _with, in_pieces, watermarks_of
from tidemill_wire.limits import KIB

SUBJECTS = 10_000
SAID = {
    "state": "Succeeded",
    "error": "e" * 1_000,
    "subjects": ["order.*"] * 100,
    "counts": {"messages": 1 << 50},
}


def test_ten_thousand_subjects_are_told_in_pieces_that_meta_takes() -> None:
    """With names as long as they may be, two broker groups, and all else that a run says."""
    names = [f"{number:05d}.".ljust(100, "s") for number in range(SUBJECTS)]
    marks = watermarks_of({(group, name): 1 << 53 for group in ("g0", "g1") for name in names})
    made = dict.fromkeys(names, 1 << 53)

    pieces = in_pieces(marks)

    sizes = [len(json.dumps({**SAID, **_with(piece, made)})) for piece in pieces]
    assert max(sizes) <= BODY_BYTES_MAX
    assert min(sizes[:-1]) > PIECE_BYTES // 2, "and no more of them than are needed"
    there = [(group, name) for piece in pieces for group, of in piece.items() for name in of]
    assert len(there) == len(set(there)) == 2 * SUBJECTS
    assert all(
        set(_with(piece, made)["made"]) == {name for of in piece.values() for name in of} for piece in pieces
    )


def test_names_in_other_letters_are_counted_as_they_are_written() -> None:
    piece = in_pieces({"g": {f"%dead%s%{'ü' * 90}{number}": number for number in range(2_000)}})[0]

    assert len(json.dumps(piece)) < PIECE_BYTES + KIB


def test_nothing_is_one_piece_without_anything() -> None:
    assert in_pieces({}) == [{}]
    assert _with({}, {"s": 1}) == {}
    assert _with({"g": {"s": 3}}, None) == {"watermarks": {"g": {"s": 3}}}
