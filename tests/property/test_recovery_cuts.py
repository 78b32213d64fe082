"""For any byte at which the logs end: what was whole before it is served, the rest is cut, no number is used twice."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from samples.brokers import SUBJECT, TINY, Rig, copy_of, files_of, pulls, put_file, read_file, remove_file
from sim.disk import SimDisk
from tidemill_broker.settings import BrokerSettings
from tidemill_wire.batch import read_header
from tidemill_wire.commands import Ack, Nack

PATIENT = replace(TINY, action_segment_bytes=512, lease_ms=40_000_000, consumer_gone_ms=10**9)


def written(with_checkpoint: bool) -> tuple[SimDisk, int, int]:
    """A disk with some of everything, and the positions below which it had been synced."""
    rig = Rig(PATIENT)
    positions = (0, rig.broker.logs.actions.end)
    for index in range(14):
        rig.send(*(b"x" * (7 * index + each) for each in range(1 + index % 3)))
        if index == 6 and with_checkpoint:
            rig.broker.keeping.checkpoint(rig.now_ms)
            rig.pump()
            positions = (rig.broker.logs.messages.end, rig.broker.logs.actions.end)
        given = pulls(rig.pull(2))
        if index % 2:
            rig.ask(Ack("g", "c", SUBJECT, given))
        elif index % 3:
            rig.ask(Nack("g", "c", SUBJECT, given))
    rig.disk.kill()
    return rig.disk, *positions


DISKS = {flag: written(flag) for flag in (False, True)}


def whole(disk: SimDisk, folder: str) -> bytes:
    return b"".join(read_file(disk, name) for name in files_of(disk, folder))


def cut_log(disk: SimDisk, folder: str, position: int) -> None:
    for name in files_of(disk, folder):
        base = int(name.rpartition("/")[2].partition(".")[0])
        data = read_file(disk, name)
        if base >= position:
            remove_file(disk, name)
        elif base + len(data) > position:
            put_file(disk, name, data[: position - base])


def batches_below(log: bytes, position: int) -> int:
    """The next sequence after the batches that end at or below a position."""
    at = following = 0
    while at < len(log) and (header := read_header(log, at)) and at + header.length <= position:
        following = header.first_sequence + header.messages
        at += header.length
    return following


def check_life(disk: SimDisk, rules: BrokerSettings, stored: int) -> None:
    rig = Rig(rules, disk)
    rig.sent_batches = 1000  # the same producer goes on
    state = rig.broker.state
    partition = state.by_name.get(SUBJECT.encode())
    cursors = [group.cursor for group in state.groups.values()]
    assert (partition.next_sequence if partition else 0) == max([stored, *cursors])
    found: list[int] = []
    while grants := rig.pull(group="new").grants:
        for grant in grants:
            found += range(grant.first_sequence, grant.first_sequence + grant.count)
    assert found == list(range(stored))
    first = max([stored, *cursors])
    assert rig.send(b"next").first_sequences == [first]
    rig.fill(8)
    rig.restart()
    assert rig.broker.state.partitions[1].next_sequence == first + 9


@settings(max_examples=200)
@given(st.booleans(), st.integers(0, 1 << 16), st.integers(0, 1 << 16))
def test_logs_that_end_at_any_byte_recover_what_was_whole(
    with_checkpoint: bool, messages: int, actions: int
) -> None:
    disk, messages_synced, actions_synced = DISKS[with_checkpoint]
    log, records = whole(disk, "message"), whole(disk, "action")
    message_end = messages_synced + messages % (len(log) - messages_synced + 1)
    action_end = actions_synced + actions % (len(records) - actions_synced + 1)
    other = copy_of(disk)
    cut_log(other, "message", message_end)
    cut_log(other, "action", action_end)

    check_life(other, PATIENT, batches_below(log, message_end))
