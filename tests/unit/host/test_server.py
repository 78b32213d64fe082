"""The data port on a simulated network: greetings, refusals with their reason, slow readers, cold reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from samples.brokers import SUBJECT, batch_of
from samples.stage import HELLO, Stage
from sim.weather import CALM, Weather
from tidemill_wire import limits
from tidemill_wire.commands import (
    Done,
    Goodbye,
    Hello,
    Ping,
    Pull,
    Pulled,
    SendBatches,
    Sent,
    Welcome,
    encode_command,
)
from tidemill_wire.connection import State


@pytest.fixture
def make_stage() -> Iterator[type[Stage]]:
    made: list[Stage] = []

    def make(weather: Weather = CALM) -> Stage:
        made.append(Stage(weather))
        return made[-1]

    yield make  # type: ignore[misc]
    for stage in made:
        assert stage.loop.errors == []
        stage.loop.dissolve()


@pytest.fixture
def stage(make_stage) -> Stage:
    return make_stage()


def test_guest_is_greeted_and_what_came_with_its_hello_is_answered(stage: Stage) -> None:
    guest = stage.guest(HELLO + encode_command(Ping(), 5))

    assert guest.heard == [Welcome(1, "g0-0", 1), Done([])]
    assert not guest.closed


def test_message_goes_in_and_comes_out(stage: Stage) -> None:
    guest = stage.guest()
    guest.say(SendBatches(batch_of(b"tide")), Pull("g", "c", [SUBJECT], 1, 1 << 20, 1000))
    stage.pass_time(1)

    _, sent, pulled = guest.heard
    assert sent == Sent([0], [])
    assert isinstance(pulled, Pulled)
    assert pulled.grants[0].count == 1
    assert stage.service.server.statistics.bytes_sent > len(pulled.batches)


@pytest.mark.parametrize(
    "first, reason",
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not_tidemill"),
        (b"\xff" * 64, "not_tidemill"),
        (encode_command(Ping(), 1), "not_tidemill"),
        (encode_command(Hello(7, 9, "new"), 0), "unsupported_version"),
        (HELLO + HELLO, "malformed_frame"),
    ],
)
def test_connection_that_begins_wrong_is_told_why_and_closed(stage: Stage, first: bytes, reason: str) -> None:
    other = stage.guest()
    guest = stage.guest(first)

    assert guest.closed
    assert guest.refusals[:1] in ([reason], [])
    assert stage.refused == {reason: 1}
    other.say(Ping())
    stage.pass_time(1)
    assert other.heard[-1] == Done([])
    assert list(stage.service.server.connections.values()) != []


def test_machine_hears_of_the_end_of_those_it_met_and_no_others(stage: Stage) -> None:
    heard: list[str] = []
    broker = stage.service.broker
    connected, disconnected = broker.connected, broker.disconnected
    broker.connected = lambda peer, now: (heard.append("hello"), connected(peer, now))[1]
    broker.disconnected = lambda peer, *when: (heard.append("gone"), disconnected(peer, *when))[1]
    stage.guest(b"\xff" * 64)
    stage.guest(HELLO + HELLO)
    stage.pass_time(1)
    assert heard.count("gone") == heard.count("hello")
    guest = stage.guest()
    guest.transport.close()
    stage.pass_time(1)

    assert heard[-2:] == ["hello", "gone"]


def test_silent_connection_is_closed_when_its_hello_does_not_come(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HELLO_MS", 3000)
    silent, dripping = stage.guest(b""), stage.guest(HELLO[:10])
    stage.pass_time(2.5)
    assert not silent.closed
    stage.pass_time(2)

    assert (silent.closed, dripping.closed) == (True, True)
    assert silent.refusals == ["too_slow"]
    assert stage.refused == {"too_slow": 2}


def test_half_a_frame_is_waited_for_and_silence_between_frames_is_not_counted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SLOW_FRAME_MS", 3000)
    quiet, half = stage.guest(), stage.guest()
    frame = encode_command(SendBatches(batch_of(b"x" * 5000)), 1)
    half.transport.write(frame[:3000])
    stage.pass_time(2)
    half.transport.write(frame[3000:] + frame[:20])
    stage.pass_time(2)
    assert not half.closed, "another frame, another patience"
    stage.pass_time(3)

    assert (half.closed, quiet.closed) == (True, False)
    assert half.heard[1] == Sent([0], [])
    assert stage.refused == {"too_slow": 1}


def test_connections_beyond_the_limit_are_told_so(stage: Stage) -> None:
    stage.service.server.connections_max = 2
    guests = [stage.guest() for _ in range(3)]

    assert [guest.closed for guest in guests] == [False, False, True]
    assert stage.refused == {"too_many_connections": 1}
    guests[0].transport.close()
    stage.pass_time(1)
    assert not stage.guest().closed


def test_unfinished_frames_that_hold_too_much_are_closed_the_largest_first(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RECEIVE_BYTES_MAX", 3 << 20)
    guests = [stage.guest() for _ in range(4)]
    frame = encode_command(SendBatches(bytearray(5 << 20)), 1)
    for guest, size in zip(guests, (100, 3 << 20, 1 << 20, 2 << 20), strict=True):
        guest.transport.write(frame[:size])
    stage.pass_time(3)

    assert [guest.closed for guest in guests] == [False, True, False, True]
    assert stage.refused == {"too_slow": 2}


def test_who_does_not_read_harms_no_other_and_is_closed_in_the_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SLOW_FRAME_MS", 5000)
    reader, slow = stage.guest(), stage.guest()
    for sequence in range(1, 9):
        reader.say(SendBatches(batch_of(bytes(1_000_000), sequence=sequence)))
    stage.pass_time(1)
    slow.transport.pause_reading()
    for index in range(40):
        slow.say(Pull(f"g{index}", "c", [SUBJECT], 1000, 8 << 20, 0))
    stage.pass_time(2)
    reader.say(Ping())
    stage.pass_time(1)
    assert reader.heard[-1] == Done([])
    [connection] = [one for one in stage.service.server.connections.values() if one._is_paused]
    assert connection._outgoing._waiting_bytes < 100_000, "what waits are descriptions, not bytes"
    stage.pass_time(10)

    assert stage.refused == {"too_slow": 1}
    assert len(stage.service.server.connections) == 1


def test_slow_reader_that_reads_on_gets_everything_in_its_order(stage: Stage) -> None:
    guest = stage.guest()
    for sequence in range(1, 9):
        guest.say(SendBatches(batch_of(bytes(1_000_000), sequence=sequence)))
    stage.pass_time(1)
    guest.transport.pause_reading()
    for index in range(6):
        guest.say(Pull(f"g{index}", "c", [SUBJECT], 1000, 8 << 20, 0), Ping())
    stage.pass_time(5)
    guest.transport.resume_reading()
    stage.pass_time(20)

    kinds = [type(one).__name__ for one in guest.heard[9:]]
    assert kinds == ["Pulled", "Done"] * 6
    assert not guest.closed


def test_cold_batches_come_from_the_lane_and_nothing_overtakes_them(make_stage) -> None:
    stage = make_stage(Weather(cold_reads=1.0, short_io=0.3))
    guest = stage.guest()
    guest.say(SendBatches(batch_of(b"cold" * 1000)))
    stage.pass_time(1)
    guest.say(Pull("g", "c", [SUBJECT], 1, 1 << 20, 0), Ping(), Pull("h", "c", [SUBJECT], 1, 1 << 20, 0))
    stage.pass_time(2)

    assert [type(one).__name__ for one in guest.heard[2:]] == ["Pulled", "Done", "Pulled"]
    assert stage.service.server.statistics.cold_reads == 2


def test_batch_that_the_disk_does_not_give_ends_the_connection(make_stage) -> None:
    """A short answer could not be told from a good one."""
    stage = make_stage(Weather(cold_reads=1.0))
    guest = stage.guest()
    guest.say(SendBatches(batch_of(b"cold" * 1000)))
    stage.pass_time(1)
    inode = stage.disk.names.cached[f"message/{0:020}.log"]
    del inode.cached[2000:]
    guest.say(Pull("g", "c", [SUBJECT], 1, 1 << 20, 0))
    stage.pass_time(2)

    assert guest.closed
    assert stage.refused == {"read_failed": 1}


def test_batch_that_the_disk_refuses_is_left_out_and_what_waited_behind_comes(make_stage) -> None:
    stage = make_stage(Weather(cold_reads=1.0))
    guest = stage.guest()
    for sequence in range(2):
        guest.say(SendBatches(batch_of(b"cold" * 1000, sequence=sequence)))
    stage.pass_time(1)
    stage.disk.refuse(f"message/{0:020}.log", 2000)
    guest.say(Pull("g", "c", [SUBJECT], 10, 1 << 20, 0), Ping())
    stage.pass_time(2)

    done, pulled = guest.heard[3:]
    assert isinstance(done, Done)
    assert isinstance(pulled, Pulled)
    assert [(grant.first_sequence, grant.count) for grant in pulled.grants] == [(1, 1)]
    assert not guest.closed
    assert stage.refused == {}


def test_everybody_is_told_when_the_broker_stops(stage: Stage) -> None:
    guest, silent = stage.guest(), stage.guest(b"")
    stage.run("a", stage.service.drain())
    stage.pass_time(1)

    assert isinstance(guest.heard[-1], Goodbye)
    assert (guest.closed, silent.closed) == (True, True)
    assert guest.wire.state is State.OPEN


def test_disk_that_fails_ends_every_connection_without_a_word(stage: Stage) -> None:
    guest = stage.guest()
    stage.disk.fail_at["append"] = 0
    guest.say(SendBatches(batch_of(b"x")))
    stage.pass_time(1)

    assert guest.closed
    assert [type(one).__name__ for one in guest.heard] == ["Welcome"]
    assert stage.service.failed.done()
