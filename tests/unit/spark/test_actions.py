"""Rows of an action log: told by a real broker, folded with what is held, in one piece or in many."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from samples.brokers import SUBJECT, Rig, pulls
from samples.storms import GROUPS, Storm, stormy
from samples.tellings import Row, held_by, held_in, told
from tidemill_broker.history import History
from tidemill_broker.telling import Names, records_in
from tidemill_host.files import Files
from tidemill_host.machine import Slice
from tidemill_journal.records import Record
from tidemill_spark.actions import MISSING, Account, missing
from tidemill_wire.commands import Ack, Extend, Nack


@pytest.mark.parametrize("seed", range(12))
def test_what_is_held_in_the_end_is_what_the_broker_says(seed: int) -> None:
    storm = stormy(seed)
    _, accounts = storm.rows(0)

    held = {group: own for account in accounts.values() for group, own in held_in(account).items()}
    assert held == held_by(storm.rig.broker)


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_the_same_in_however_many_pieces_a_log_is_read(seed: int) -> None:
    storm = stormy(seed)
    whole, _ = storm.rows(0)
    parts, _ = storm.rows(20)

    def order(row: Row) -> tuple[object, ...]:
        return row["subject"], row["position"], row["row"]

    assert sorted(whole, key=order) == sorted(parts, key=order)
    assert len({order(row) for row in whole}) == len(whole) > 50


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_a_message_are_what_is_told_when_one_asks_why(seed: int) -> None:
    """Two ways that share no code but the log."""
    storm = stormy(seed)
    rows, _ = storm.rows(3)
    compared = 0
    for partition in list(storm.rig.broker.state.partitions.values()):
        if partition.name.startswith("%dead"):
            continue
        for sequence in range(partition.first_kept, partition.visible, 3):
            wanted = why(storm, partition.identity, sequence)
            compared += len(wanted)
            assert [one for one in of_message(rows, partition.name, sequence) if one[1] in GROUPS] == wanted
    assert compared > 20


def why(storm: Storm, partition: int, sequence: int) -> list[tuple[int, str, str, str]]:
    history = History(storm.rig.broker.state, partition, sequence)
    broker = storm.rig.broker
    for record in records(storm):
        history.note(record, lambda _: None)
    groups = {identity: group.name for identity, group in broker.state.groups.items()}
    found = [
        (event.at_ms, groups[group], event.what, event.consumer)
        for group, events in history.events.items()
        for event in events
        if event.what not in {"paused", "resumed", "moved"}
    ]
    return sorted(found)


def records(storm: Storm) -> Iterator[Record]:
    files, actions = Files(storm.rig.disk.mount()), storm.rig.broker.logs.actions
    return records_in(
        actions, lambda file, at, size: files.take(Slice(file, at, size)), actions.start, actions.end
    )


def of_message(rows: list[Row], partition: str, sequence: int) -> list[tuple[int, str, str, str]]:
    return sorted(
        (row["at"], row["consumer_group"], row["action"], row["consumer"] or "")
        for row in rows
        if row["partition"] == partition
        and row.get("last_sequence") is not None
        and row["first_sequence"] <= sequence <= row["last_sequence"]
    )


def first_of(rows: list[Row], action: str) -> Row:
    return next(row for row in rows if row["action"] == action)


def test_what_was_pulled_before_the_account_begins_is_told_without_sequences() -> None:
    """A log that lost its beginning, or a subject that is archived from some day on."""
    rig = Rig()
    rig.send(*[b"m"] * 6)
    before = pulls(rig.pull(4))
    begin = rig.broker.logs.actions.end
    after = pulls(rig.pull(2))
    rig.ask(Ack("g", "c", SUBJECT, [before[0], after[-1]]))
    rig.wait(600)
    _, found = told(rig.broker, rig.disk.mount(), begin, rig.broker.logs.synced_action_position)
    rows = list(Account(whole=False).rows(found.rows))

    assert [(row["action"], row.get("first_sequence"), row["messages"]) for row in rows] == [
        ("pulled", 4, 2),
        ("acked", None, 4),
        ("acked", 4, 2),
    ]
    assert rows[1]["pull"] == before[0]
    assert {row["consumer"] for row in rows} == {"c"}


def test_ack_that_comes_when_the_lease_is_over_is_no_row() -> None:
    rig = Rig()
    rig.send(b"m")
    given = pulls(rig.pull())
    rig.wait(1500)
    rig.ask(Ack("g", "c", SUBJECT, given))
    rig.wait(600)
    rows = rows_from(rig)

    assert [row["action"] for row in rows if row["position"] <= rows[-1]["position"]][:2] == [
        "pulled",
        "lease ended",
    ]
    assert "acked" not in {row["action"] for row in rows}
    assert rows[1]["until"] >= rows[1]["at"]


def test_consumer_that_is_gone_is_named_by_the_record_of_its_end() -> None:
    rig = Rig()
    rig.send(b"m", b"m")
    rig.pull(1, consumer="early")
    begin = rig.broker.logs.actions.end
    rig.ask(Ack("g", "early", SUBJECT, pulls(rig.pull(1, consumer="early"))))
    rig.disconnect(rig.peers[0])
    rig.connect()
    rig.wait(60_000)
    assert not rig.broker.state.consumers
    _, found = told(rig.broker, rig.disk.mount(), begin, rig.broker.logs.synced_action_position)

    assert found.unnamed == 0
    assert first_of(found.rows, "acked")["consumer"] == "early"


def test_a_name_of_the_state_is_known_though_a_later_one_was_read_before() -> None:
    rig = Rig()
    rig.send(b"m", b"m")
    names = Names()
    names.follow(rig.broker.state)
    rig.pull(1, consumer="one")
    between = rig.broker.logs.actions.end
    rig.pull(1, consumer="two")
    rig.wait(100)
    end = rig.broker.logs.synced_action_position
    records = records_in(
        rig.broker.logs.actions, lambda f, at, n: rig.files.take(Slice(f, at, n)), between, end
    )
    names.learn(records, end)
    names.follow(rig.broker.state)

    assert {names.consumer(one) for one in rig.broker.state.consumers} == {
        (SUBJECT, "g", "one"),
        (SUBJECT, "g", "two"),
    }


def test_what_failed_and_was_parked_says_why_and_until_when() -> None:
    rig = Rig()
    rig.send(b"m", b"m")
    given = pulls(rig.pull())
    rig.ask(
        Extend("g", "c", SUBJECT, [given[0], given[0]], parked_ms=200, reason="later", error="E", place="p:1")
    )
    rig.ask(Nack("g", "c", SUBJECT, given, reason="no", delay_ms=700))
    rows = rows_from(rig)

    parked, failed = first_of(rows, "parked"), [row for row in rows if row["action"] == "failed"]
    assert (parked["reason"], parked["error"], parked["place"]) == ("later", "E", "p:1")
    assert parked["until"] == parked["at"] + 200
    assert [(row["first_sequence"], row["messages"], row["reason"]) for row in failed] == [
        (0, 1, "no"),
        (1, 1, "no"),
    ]
    assert failed[0]["until"] == failed[0]["at"] + 700


def test_a_gap_is_a_row() -> None:
    row = missing(SUBJECT, 5, 100, 300)

    assert (row["action"], row["first_sequence"], row["last_sequence"]) == (MISSING, 100, 299)


def rows_from(rig: Rig) -> list[Row]:
    rig.wait(600)
    _, found = told(rig.broker, rig.disk.mount(), 0, rig.broker.logs.synced_action_position)
    return list(Account(whole=True).rows(found.rows))
