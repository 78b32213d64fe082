"""What a port holds for peers that do not read: bounded for all of them, whatever each may hold alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from samples.brokers import SUBJECT, batch_of
from samples.stage import Guest, Stage
from tidemill_wire import limits
from tidemill_wire.commands import Ping, Pull, Pulled, SendBatches

ROOM = 4 << 20
ANSWER = 1 << 20


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(limits, "UNREAD_BYTES_MAX", ROOM)
    made = Stage()
    guest = made.guest()
    for sequence in range(1, 4):
        guest.say(SendBatches(batch_of(bytes(ANSWER - 4096), sequence=sequence)))
    made.pass_time(1)
    guest.transport.close()
    yield made
    assert made.loop.errors == []
    made.loop.dissolve()


def held(stage: Stage) -> int:
    return sum(one._outgoing.held for one in stage.service.server.connections.values())


def ask(guest: Guest, name: str, times: int = 1) -> None:
    for number in range(times):
        guest.say(Pull(f"{name}{number}", "c", [SUBJECT], 1000, 8 << 20, 0))


def deaf(stage: Stage, count: int, times: int = 3) -> list[Guest]:
    guests = [stage.guest() for _ in range(count)]
    for number, guest in enumerate(guests):
        guest.transport.pause_reading()
        ask(guest, f"deaf-{number}-", times)
    return guests


def pulled(guest: Guest) -> int:
    return sum(isinstance(one, Pulled) and bool(one.grants) for one in guest.heard)


def test_answers_that_nobody_reads_are_bounded_together_and_others_are_served(stage: Stage) -> None:
    """Each alone is within what a connection may hold."""
    reader = stage.guest()
    ask(reader, "before")
    stage.pass_time(2)
    deaf(stage, 8)
    most = 0
    for _ in range(20):
        stage.pass_time(0.05)
        most = max(most, held(stage))
    ask(reader, "reader")
    stage.pass_time(4)

    assert most <= ROOM + 4 * ANSWER, "what is beyond it stays on the disk"
    assert pulled(reader) == 2
    assert set(stage.refused) == {"too_slow"}


def test_who_reads_waits_for_room_and_is_not_cut_off(stage: Stage) -> None:
    guests = [stage.guest() for _ in range(12)]
    for number, guest in enumerate(guests):
        ask(guest, f"g-{number}-", 2)
        guest.say(Ping())
    stage.pass_time(20)

    assert [pulled(guest) for guest in guests] == [2] * 12
    assert stage.refused == {}


def test_who_is_held_less_than_a_pause_needs_and_reads_nothing_is_cut_off_in_the_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SLOW_FRAME_MS", 5000)
    [guest] = deaf(stage, 1, 1)
    stage.pass_time(1)
    [connection] = stage.service.server.connections.values()
    assert 0 < held(stage) <= ROOM
    assert not connection._outgoing.paused
    stage.pass_time(8)

    assert len(stage.service.server.connections) == 0
    assert stage.refused == {"too_slow": 1}
    assert guest.refusals == []
