"""Queries: pages, bounds of an answer and of its work, spans, order, and what is not visible."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig, batch_of, files_of, put_file, read_file, remove_file
from samples.searches import Search
from tidemill_broker.queries import Budget, Missing, Place, Query, Span, parse_place, view_of
from tidemill_journal.errors import CorruptIndex
from tidemill_wire import limits
from tidemill_wire.batch import Origin
from tidemill_wire.codec import Codec
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Ack, SendBatches, Sent

HIGH = replace(TINY, durability="high")


def rig_of(count: int, key: str | None = "k", subject: str = SUBJECT, rig: Rig | None = None) -> Rig:
    """Batches of two messages."""
    rig = rig or Rig()
    for number in range(count):
        content = Content([b"%d.0" % number, b"%d.1" % number], [key, None])
        send(rig, batch_of(subject=subject, producer=5, sequence=number, content=content))
    return rig


def send(rig: Rig, batch: bytearray) -> None:
    answer = rig.ask(SendBatches(batch))
    assert isinstance(answer, Sent)
    assert not answer.refused, answer.refused


def search_of(rig: Rig) -> Search:
    return Search(rig.broker, rig.disk.mount())


def query_of(rig: Rig, budget: Budget) -> Query:
    search = search_of(rig)
    browsed = rig.broker.state.by_name[SUBJECT.encode()]
    return Query(
        view_of(rig.broker.state, rig.broker.logs.messages, browsed), search.read, search.size_of, budget
    )


def test_a_page_says_where_the_next_begins_and_the_last_says_nothing() -> None:
    rig = rig_of(5)
    answer = query_of(rig, Budget(4)).browse(Span(), newest=False)
    assert [one.sequence for one in answer.messages] == [0, 1, 2, 3]
    assert answer.after == "3"
    assert query_of(rig, Budget(10)).browse(Span(), newest=False).after is None
    assert query_of(rig, Budget(5)).by_key("k", None, Span(), None, newest=False).after is None


def test_an_answer_ends_when_it_has_bytes_enough_and_holds_one_message_at_least() -> None:
    rig = rig_of(5)
    answer = query_of(rig, Budget(answer_bytes=1)).browse(Span(first=3), newest=False)
    assert [one.sequence for one in answer.messages] == [3]
    assert answer.after == "3"


def test_work_in_vain_ends_with_a_place_to_go_on_from() -> None:
    """Nothing is that late: rows are looked at, and the page is empty, and not the last one."""
    rig = rig_of(12)
    assert len(rig.broker.state.index.sealed) > 1
    answer = query_of(rig, Budget(rows=1)).browse(Span(from_ms=rig.now_ms + 1), newest=False)
    assert answer.messages == []
    assert answer.after is not None
    assert 0 <= int(answer.after) < 23
    seen = search_of(rig).browse(SUBJECT, Span(from_ms=rig.now_ms + 1))
    assert seen == []


def test_what_is_unpacked_counts_as_read() -> None:
    """A kilobyte may hold a megabyte, and a page would look at thousands of them."""
    rig, size = Rig(), 1 << 20
    for sequence in range(1, 5):
        made = Origin(SUBJECT.encode(), 5, sequence, bytes([sequence]) * 16, rig.now_ms, Codec.ZSTD)
        send(rig, build_batch(made, Content([bytes(size)])))
    bound = Budget(answer_bytes=1 << 30, read_bytes=2 * size + size // 2)
    answer = query_of(rig, bound).browse(Span(), newest=False)

    assert [one.sequence for one in answer.messages] == [0, 1]
    assert answer.after == "1"


def test_a_search_by_key_ends_when_it_has_read_enough() -> None:
    rig = rig_of(12)
    answer = query_of(rig, Budget(read_bytes=1)).by_key("k", None, Span(), None, newest=False)
    assert len(answer.messages) <= 1
    assert answer.after is not None


@pytest.mark.parametrize("newest", [False, True])
def test_spans_of_sequences_and_times_are_half_open(newest: bool) -> None:
    rig = rig_of(3)
    rig.wait(1000)
    middle = rig.now_ms
    for number in range(3, 6):
        send(rig, batch_of(b"a", b"b", producer=5, sequence=number))
    rig.wait(1000)
    send(rig, batch_of(b"a", b"b", producer=5, sequence=6))
    search = search_of(rig)

    def sequences(span: Span) -> list[int]:
        found = [one.sequence for one in search.browse(SUBJECT, span, newest)]
        assert found == sorted(found, reverse=newest)
        return sorted(found)

    assert sequences(Span()) == list(range(14))
    assert sequences(Span(first=3, end=6)) == [3, 4, 5]
    assert sequences(Span(from_ms=middle)) == list(range(6, 14))
    assert sequences(Span(to_ms=middle)) == list(range(6))
    assert sequences(Span(from_ms=middle, to_ms=rig.now_ms)) == list(range(6, 12))
    assert sequences(Span(first=9, from_ms=middle, to_ms=rig.now_ms)) == [9, 10, 11]
    assert sequences(Span(first=14)) == sequences(Span(first=5, end=5)) == []
    times = {one.sequence for one in search.by_key("k", SUBJECT, newest, Span(to_ms=middle, first=1))}
    assert times == {2, 4}


def test_what_is_not_visible_is_not_found() -> None:
    rig = Rig(HIGH)
    send(rig, batch_of(content=Content([b"seen"], ["k"]), producer=5, sequence=1))
    rig.holds_syncs = True
    rig.ask(SendBatches(batch_of(content=Content([b"unseen"], ["k"]), producer=5, sequence=2)))
    search = search_of(rig)
    assert [one.body for one in search.by_key("k", None)] == [b"seen"]
    assert [one.body for one in search.browse(SUBJECT)] == [b"seen"]
    identity = (5).to_bytes(8, "big").hex() + (2).to_bytes(8, "big").hex() + "-0"
    assert search.by_id(identity) is None
    rig.sync()
    assert [one.body for one in search.by_key("k", None)] == [b"seen", b"unseen"]
    assert search.by_id(identity) is not None
    assert search.by_id(identity[:-1] + "1") is None


def test_a_key_is_compared_as_a_text_and_not_by_its_hash() -> None:
    """A producer that says the same hash for every key: only the text decides."""
    rig = Rig()
    first, second = (
        batch_of(content=Content([b"x"], [key]), producer=5, sequence=number)
        for number, key in enumerate(("a", "b"))
    )
    send(rig, first)
    send(rig, second)
    assert [one.key for one in search_of(rig).by_key("a", None)] == ["a"]
    index = rig.broker.state.index.open.view()
    assert len(index.keys[-1].places) == 2


def test_keys_without_hashes_are_refused() -> None:
    rig = Rig()
    batch = bytearray(batch_of(content=Content([b"x"], ["a"])))
    place = batch.index((3).to_bytes(2, "little") + bytes(2), 104 + 16)  # the directory's entry of KEY_HASHES
    batch[place] = 99  # a kind that nobody knows
    from crc32c import crc32c

    from tidemill_wire.batch import CHECKED_FROM, STAMP_BYTES, STAMP_CRC

    STAMP_CRC.pack_into(batch, STAMP_BYTES, crc32c(bytes(batch[CHECKED_FROM:])))
    answer = rig.ask(SendBatches(batch))
    assert isinstance(answer, Sent)
    assert "without their hashes" in answer.refused[0][2]


def test_a_segment_is_sealed_when_it_has_keys_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INDEX_KEYS_MAX", 4)
    rig = rig_of(7, rig=Rig(replace(TINY, segment_bytes=1 << 20)))
    assert len(rig.broker.logs.messages.bases) == 4
    assert search_of(rig).problems() == []
    rig.restart()
    assert search_of(rig).problems() == []


def test_an_index_is_removed_with_its_segment() -> None:
    rig = rig_of(8, rig=Rig(replace(TINY, retention_seconds=1)))
    assert len(files_of(rig.disk, "index")) > 1
    rig.wait(60_000)
    assert files_of(rig.disk, "index") == []
    assert not rig.broker.state.index.sealed
    assert search_of(rig).problems() == []


def test_an_index_that_is_made_after_its_segment_has_gone_is_not_written() -> None:
    rig = Rig(replace(TINY, retention_seconds=1))
    rig.holds_reads = True
    rig_of(8, rig=rig)
    assert search_of(rig).problems() == []
    rig.wait(60_000)
    rig.load()
    rig.pump()
    assert files_of(rig.disk, "index") == []


def test_pieces_are_let_go_when_the_file_is_written() -> None:
    rig = Rig()
    rig.holds_reads = True
    rig_of(8, rig=rig)
    held = list(rig.broker.state.index.sealed.values())
    assert all(segment.pieces is not None for segment in held)
    rig.load()
    rig.pump()
    rig.wait(60_000)
    assert all(segment.pieces is None for segment in held)
    assert search_of(rig).problems() == []


def test_a_view_made_before_retention_misses_a_file_and_says_so() -> None:
    rig = rig_of(8, rig=Rig(replace(TINY, retention_seconds=1)))
    rig.restart()
    old = query_of(rig, Budget())
    rig.wait(60_000)
    with pytest.raises((FileNotFoundError, Missing)):
        old.browse(Span(), newest=False)


def test_a_damaged_page_is_refused_and_a_missing_file_made_again() -> None:
    rig = rig_of(8)
    rig.broker.keeping.checkpoint(rig.now_ms)
    rig.pump()
    [name, *_] = files_of(rig.disk, "index")
    whole = read_file(rig.disk, name)
    put_file(rig.disk, name, whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    rig.restart()
    with pytest.raises(CorruptIndex, match=name):
        search_of(rig).by_id((5).to_bytes(8, "big").hex() + "0" * 16 + "-0")
    remove_file(rig.disk, name)
    rig.restart()
    assert search_of(rig).problems() == []
    assert read_file(rig.disk, name) == whole


def test_messages_are_found_also_when_they_were_acked() -> None:
    rig = rig_of(3)
    given = rig.pull().grants
    rig.ask(Ack("g", "c", SUBJECT, [given[0].pull_sequence, given[-1].pull_sequence + given[-1].count - 1]))
    assert len(search_of(rig).browse(SUBJECT)) == 6


@pytest.mark.parametrize("text", ["", "7", "-", "7-", "-7", "a-1", "1-b", "1-2-3", "9" * 30 + "-1", "٣-1"])
def test_a_place_is_two_numbers(text: str) -> None:
    with pytest.raises(ValueError, match="no place"):
        parse_place(text)
    assert parse_place(str(Place(7, 3))) == Place(7, 3)
