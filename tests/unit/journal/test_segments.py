"""Segments: positions run on without a gap, a record never spans two files, and a folder says what a manifest would."""

from __future__ import annotations

import pytest

from tidemill_journal.errors import CorruptLog
from tidemill_journal.segments import Place, Segments, base_of, from_listing


def name(base: int) -> str:
    return f"{base:020}.log"


def three() -> Segments:
    """[0, 60), [60, 120), [120, 150)."""
    segments = Segments("message", 64)
    for _ in range(5):
        segments.append(30)
    return segments


def test_first_record_opens_the_first_segment() -> None:
    segments = Segments("message", 100)

    assert (segments.start, segments.open_base, segments.end) == (0, 0, 0)
    assert segments.append(40) == Place(f"message/{name(0)}", 0, opened=True)
    assert segments.append(40) == Place(f"message/{name(0)}", 40, opened=False)


def test_record_that_does_not_fit_opens_the_next_segment_where_the_last_one_ends() -> None:
    segments = Segments("action", 100)
    segments.append(40)
    segments.append(40)

    assert segments.append(21) == Place(f"action/{name(80)}", 80, opened=True)
    assert segments.append(79) == Place(f"action/{name(80)}", 101, opened=False)
    assert segments.sealed() == [0]


def test_segment_ends_where_the_next_one_begins_and_the_last_one_with_the_log() -> None:
    segments = three()

    assert [segments.end_of(base) for base in segments.bases] == [60, 120, 150]
    for absent in (30, 150):
        with pytest.raises(ValueError, match="no segment begins"):
            segments.end_of(absent)


def test_record_larger_than_a_segment_has_one_for_itself() -> None:
    segments = Segments("message", 100)
    places = [segments.append(size) for size in (500, 10, 500, 10)]

    assert [place.position for place in places] == [0, 500, 510, 1010]
    assert [place.opened for place in places] == [True] * 4


def test_segment_is_full_by_its_number_of_records_too() -> None:
    segments = Segments("message", 1000)

    assert [segments.append(8, records_max=2).opened for _ in range(5)] == [True, False, True, False, True]
    assert segments.records == 1


def test_every_position_is_located_in_its_file() -> None:
    segments = three()

    assert segments.locate(0) == (f"message/{name(0)}", 0)
    assert segments.locate(59) == (f"message/{name(0)}", 59)
    assert segments.locate(60) == (f"message/{name(60)}", 0)
    assert segments.locate(149) == (f"message/{name(120)}", 29)
    assert [segments.end_of(base) for base in segments.bases] == [60, 120, 150]
    with pytest.raises(AssertionError):
        segments.locate(150)


@pytest.mark.parametrize(
    "position, dropped, bases",
    [(150, [], [0, 60, 120]), (130, [], [0, 60, 120]), (61, [120], [0, 60]), (0, [120, 60], [0])],
)
def test_cut_forgets_what_lies_behind_it_the_last_file_first(
    position: int, dropped: list[int], bases: list[int]
) -> None:
    segments = three()

    assert segments.cut(position) == [f"message/{name(base)}" for base in dropped]
    assert (segments.bases, segments.end) == (bases, position)
    assert segments.append(1).position == position


def test_segment_that_was_sealed_before_a_cut_stays_so() -> None:
    segments = three()
    segments.cut(70)

    assert segments.append(10) == Place(f"message/{name(70)}", 70, opened=True)
    assert segments.sealed() == [0, 60]


def test_appending_after_a_cut_of_the_open_segment_goes_on_in_it() -> None:
    segments = three()
    segments.cut(130)

    assert segments.append(10) == Place(f"message/{name(120)}", 130, opened=False)


def test_oldest_segment_is_dropped_and_the_open_one_never() -> None:
    segments = three()

    assert [segments.drop_oldest(), segments.drop_oldest()] == [0, 60]
    assert (segments.start, segments.sealed()) == (120, [])
    with pytest.raises(AssertionError):
        segments.drop_oldest()


@pytest.mark.parametrize(
    "file, base",
    [
        (name(0), 0),
        (name(10**19), 10**19),
        ("1.log", None),
        (f"{0:020}.run", None),
        (f"{0:020}.log.tmp", None),
        ("²" * 20 + ".log", None),
        (f"-{0:019}.log", None),
        ("", None),
    ],
)
def test_base_is_read_from_a_name_of_twenty_digits_only(file: str, base: int | None) -> None:
    assert base_of(file) == base


def test_folder_without_gaps_is_the_log() -> None:
    segments, left_over = from_listing("message", 64, {name(60): 60, name(0): 60, name(120): 7, "x": 9}, 127)

    assert (segments.bases, segments.end, left_over) == ([0, 60, 120], 127, [])


def test_log_whose_oldest_segments_were_dropped_begins_later() -> None:
    segments, _ = from_listing("message", 64, {name(60): 60, name(120): 0}, 0)

    assert (segments.start, segments.end) == (60, 120)
    assert segments.append(5) == Place(f"message/{name(120)}", 120, opened=False)


def test_empty_folder_is_an_empty_log() -> None:
    segments, left_over = from_listing("message", 64, {}, 0)

    assert (segments.bases, segments.end, left_over) == ([], 0, [])


def test_gap_above_what_was_synced_leaves_the_rest_over() -> None:
    sizes = {name(0): 60, name(60): 20, name(120): 60, name(180): 1}
    segments, left_over = from_listing("message", 64, sizes, 80)

    assert (segments.bases, segments.end) == ([0, 60], 80)
    assert left_over == [f"message/{name(120)}", f"message/{name(180)}"]


def test_gap_below_what_was_synced_is_damage_with_its_position() -> None:
    with pytest.raises(CorruptLog, match="the next begins at 120") as caught:
        from_listing("message", 64, {name(0): 60, name(60): 20, name(120): 60}, 81)
    assert (caught.value.file, caught.value.position) == (f"message/{name(60)}", 80)


def test_segments_that_overlap_are_damage_too() -> None:
    with pytest.raises(CorruptLog):
        from_listing("message", 64, {name(0): 61, name(60): 20}, 70)
