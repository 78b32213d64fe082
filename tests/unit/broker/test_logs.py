"""The write side of the logs: one append a file and Ready, and marks of the host read as positions."""

from __future__ import annotations

from tidemill_broker.actions import Started
from tidemill_broker.logs import Logs
from tidemill_host.machine import Append, Mark, Ready, Remove, Replace
from tidemill_journal.segments import Segments

ACTION = "action/00000000000000000000.log"


def logs(messages: int = 1 << 20, batches: int = 1 << 20) -> Logs:
    return Logs(Segments("message", messages), Segments("action", 1 << 20), 1, batches)


def take(one: Logs) -> Ready:
    ready = Ready()
    one.take(ready)
    return ready


def store(one: Logs, size: int) -> None:
    place = one.place_batch(size)
    one.append(place.file, bytes(size), size)


def test_bytes_of_one_file_are_one_append() -> None:
    one = logs()
    store(one, 64)
    one.act(Started(1), 5)
    store(one, 32)

    [messages, actions] = take(one).writes
    assert isinstance(messages, Append)
    assert isinstance(actions, Append)
    assert (messages.size, [len(buffer) for buffer in messages.buffers]) == (96, [64, 32])
    assert (actions.file, actions.size) == (ACTION, 40)
    assert one.bytes_appended == 136


def test_appends_come_before_files_that_refer_to_them() -> None:
    one = logs()
    one.remove("old")
    one.replace(Replace("new", b""))
    store(one, 8)

    assert [type(write) for write in take(one).writes] == [Append, Remove, Replace]


def test_only_a_ready_with_writes_has_a_number() -> None:
    one = logs()
    assert not one.has_writes
    assert take(one).writes == []
    assert one.number == 0
    store(one, 8)
    take(one)
    take(one)
    assert one.number == 1


def test_marks_of_the_host_become_positions() -> None:
    one = logs()
    for size in (8, 16, 32):
        store(one, size)
        take(one)
    one.persisted(Mark(3, 0))
    assert (one.synced_message_position, one.all_synced) == (0, False)
    one.persisted(Mark(3, 2))
    assert (one.synced_message_position, one.all_synced) == (24, False)
    one.persisted(Mark(3, 3))
    assert (one.synced_message_position, one.all_synced) == (56, True)
    store(one, 8)
    assert not one.all_synced


def test_batches_are_bounded_in_a_segment() -> None:
    one = logs(batches=2)
    for _ in range(5):
        store(one, 8)

    assert one.messages.bases == [0, 16, 32]
