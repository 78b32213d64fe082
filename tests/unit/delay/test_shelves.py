"""What is due and cannot leave: it waits without bytes, takes no place that others need, and comes when it may."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from samples.between import BetweenRig, version
from samples.delays import BROKER, HOUR_MS, NOW_MS, OTHER_SUBJECT, SMALL, SUBJECT, DelayRig
from tidemill_broker.gate import Told
from tidemill_delay import courier, outcomes, shelves
from tidemill_delay.parcels import Parcel, Unit
from tidemill_delay.rows import pack_piece
from tidemill_delay.shelves import PACKED, REFUSED, ROUND_MS, Shelf, Shelves
from tidemill_host.machine import Peer
from tidemill_wire.batch import partition_name, read_header
from tidemill_wire.columns import Content
from tidemill_wire.commands import SendBatches, Sent, Welcome
from tidemill_wire.connection import Received
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.recurrence import Recurrence

LARGE = replace(SMALL, segment_bytes=1 << 20, action_segment_bytes=1 << 20, checkpoint_events=1000)
FAR = Peer(9)


class RefusingRig(DelayRig):
    """Its broker takes nothing of ``SUBJECT`` until it is let."""

    sent = 0

    def start(self) -> None:
        self.let(False)
        super().start()

    def let(self, takes: bool) -> None:
        self.broker.broker.intake.gate.obey(Told(read_only=frozenset(() if takes else (SUBJECT,))))

    def _at_broker(self, correlation: int, command: SendBatches) -> None:
        self.sent += 1
        super()._at_broker(correlation, command)

    def bodies(self, begin: bytes = b"") -> list[bytes]:
        return [body for _, _, body in self.arrived if body.startswith(begin)]


class SilentRig(DelayRig):
    """``SUBJECT`` lies on another broker group than all others, to which there is a connection, and no answer comes."""

    def meet(self) -> None:
        self.delay.route(SUBJECT, ("g1",), self.now_ms)
        self.delay.received(FAR, Received(0, Welcome(1, "g1-0", 1)), self.now_ms)
        super().meet()


class LeaderlessRig(SilentRig):
    """The same, and there is no connection."""

    def meet(self) -> None:
        self.delay.route(SUBJECT, ("g1",), self.now_ms)
        super(SilentRig, self).meet()


@pytest.mark.parametrize("kind", [RefusingRig, SilentRig, LeaderlessRig])
def test_a_subject_that_cannot_leave_holds_up_no_other_one(
    kind: Callable[..., DelayRig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes are many times what may be held, and its messages more than the wheel has room for."""
    monkeypatch.setattr(courier, "AHEAD_BYTES", 4096)
    monkeypatch.setattr(courier, "FLIGHT_BYTES", 4096)
    rig = kind(replace(LARGE, wheel_messages=20))
    due = NOW_MS + HOUR_MS
    for number in range(50):
        rig.send([b"a" * 1000], due + 1000 + number)
    for number in range(40):
        rig.send([b"b%d" % number], due + 5000 + 100 * number, subject=OTHER_SUBJECT)
    rig.wait(due + 12_000 - rig.now_ms)
    rig.delay.check()

    assert sorted(body for _, _, body in rig.arrived) == sorted(b"b%d" % number for number in range(40))
    assert rig.delay.due == rig.delay.courier.stuck == 50
    assert max(at_ms for at_ms, _, _ in rig.arrived) <= due + 9_500 + 1_000


def test_what_was_refused_comes_soon_after_it_is_taken_again_however_much_it_is() -> None:
    rig = RefusingRig(LARGE)
    for number in range(300):
        rig.send([b"a%d" % number], NOW_MS + 1000)
    rig.wait(60_000)
    assert rig.bodies() == []
    assert rig.sent < 300 + 60 * shelves.TRIED * 2, "not all of it is sent each second"
    rig.let(True)
    rig.wait(3_000)

    assert sorted(rig.bodies()) == sorted(b"a%d" % number for number in range(300))
    assert rig.delay.state.waiting == 0


def test_what_waits_without_its_bytes_comes_when_somebody_leads_its_broker_group() -> None:
    rig = LeaderlessRig(LARGE)
    for number in range(600):
        rig.send([b"%d" % number], NOW_MS + 1000)
    rig.wait(5_000)
    assert rig.arrived == []
    assert rig.delay.courier.stuck == 600
    rig.delay.route(SUBJECT, ("g0",), rig.now_ms)
    rig.pump()

    assert sorted(int(body) for _, _, body in rig.arrived) == list(range(600))
    assert rig.delay.state.waiting == 0


def test_what_may_be_there_is_asked_for_as_the_same_batch_though_its_bytes_were_given_back() -> None:
    """Answers get lost, with order keys and without; another connection comes, and nothing is stored twice."""
    rig = BetweenRig(version(1, a=512, b=1024))
    rig.keyed(*(str(number) for number in range(12)))
    for number in range(12):
        rig.send([b"%d" % number], NOW_MS + 1_000)
    rig.deaf_to = {"g0", "g1"}
    rig.wait(3_000)
    assert len(rig.stored) == 24
    for group in ("g0", "g1"):
        rig.lose(group)
    courier = rig.delay.courier
    assert courier.shelves.size == 24
    rig.delay.check()
    rig.deaf_to = set()
    rig.meet()
    rig.wait(1_000)

    assert (rig.once, len(rig.stored), rig.delay.state.waiting) == (True, 24, 0)


def unit(number: int, *numbers: int, version: int | None = None) -> Unit:
    """One of an hour, in a piece of its own."""
    found = numbers or (number,)
    return Unit(
        HOUR_MS, pack_piece(8 * number, 8), np.array(found, np.int64), HOUR_MS + 500 * number, version
    )


def test_a_long_shelf_is_rows_and_gives_out_what_was_put_there() -> None:
    rng = random.Random(7)
    shelf, put, got = Shelf(), list[tuple[object, ...]](), list[tuple[object, ...]]()
    for number in range(0, 3 * PACKED * 3, 3):
        one = unit(number, number, number + 1, version=rng.choice((None, None, 0, 2)))
        if rng.random() < 0.01:
            one.parcel = Parcel(one, SUBJECT, bytearray(), sent=True)
        put.append((one.piece, *one.numbers.tolist(), one.due_ms, one.version, one.parcel is None))
        shelf.put(one)
        assert shelf.size == shelf.held()
    assert len(shelf.last) < PACKED
    while (out := shelf.pop(500)) is not None:
        got.append((out.piece, *out.numbers.tolist(), out.due_ms, out.version, out.parcel is None))
        assert shelf.size == shelf.held()

    assert sorted(map(str, got)) == sorted(map(str, put))


def test_all_of_a_shelf_is_tried_within_a_round_and_a_short_one_each_time() -> None:
    for count, wait_ms in ((3, 60_000), (10_000, 60_000), (10_000, 1_000)):
        some, now_ms = Shelves(500), 0
        for number in range(count):
            some.put(unit(number), SUBJECT, REFUSED, (now_ms + wait_ms, wait_ms))
        tried = set[int]()
        for now_ms in range(wait_ms, ROUND_MS + 2 * wait_ms, wait_ms):
            found = list(some.ripe(now_ms))
            tried |= {one.piece for one in found}
            for one in found:
                some.put(one, SUBJECT, REFUSED, (now_ms + wait_ms, wait_ms))
            some.check()
            assert len(found) <= max(shelves.TRIED, 2 * count * wait_ms // ROUND_MS)
            if now_ms == wait_ms:
                assert len(found) >= min(count, shelves.TRIED)
        assert len(tried) == count


def test_shelves_of_no_broker_group_wait_for_nobody() -> None:
    some = Shelves(500)
    for number in range(3):
        some.put(unit(number), SUBJECT, shelves.LOST)
        some.put(unit(10 + number), OTHER_SUBJECT, "g0")
    assert some.wake_ms() is None
    assert not list(some.ripe(1 << 60))
    some.told(SUBJECT)
    assert some.homes(set()) == [shelves.FREE]
    assert sorted(some.homes({"g0"})) == [shelves.FREE, "g0"]
    assert len(some.pull(shelves.FREE)) == len(some.pull("g0")) == 3
    assert (some.size, some.homes({"g0"})) == (0, [])


@pytest.fixture
def kept_ms(monkeypatch: pytest.MonkeyPatch) -> int:
    """How long a message waits for its subject: three days, which are two hours here."""
    assert outcomes.KEPT_MS == 72 * 3_600_000
    kept_ms = 2 * 3_600_000
    monkeypatch.setattr(outcomes, "KEPT_MS", kept_ms)
    return kept_ms


class GoneRig(RefusingRig):
    """Its broker says of ``SUBJECT`` that it was removed."""

    def let(self, takes: bool) -> None:
        self.removed = not takes

    def _at_broker(self, correlation: int, command: SendBatches) -> None:
        view, at, names = memoryview(command.batches), 0, list[str]()
        while at < len(view):
            header = read_header(view, at)
            names.append(partition_name(view, at, header).decode())
            at += header.length
        if self.removed and SUBJECT in names:
            self.sent += 1
            number = KIND_BY_NAME["removed"].number
            refused = [(index, number, "") for index, name in enumerate(names) if name == SUBJECT]
            assert len(refused) == len(names), "these tests send one subject at a time"
            self.delay.received(BROKER, Received(correlation, Sent([-1] * len(names), refused)), self.now_ms)
        else:
            super()._at_broker(correlation, command)


def test_what_is_for_a_subject_that_was_removed_waits_for_a_while_and_ends_counted(kept_ms: int) -> None:
    rig = GoneRig(LARGE)
    rig.send([b"a"], NOW_MS + 1000)
    rig.send([b"b"], NOW_MS + 1000, timer_keys=["k"])
    rig.wait(kept_ms)
    assert (rig.delay.state.waiting, dict(rig.delay.outcomes.discarded)) == (2, {})
    rig.wait(120_000)
    rig.delay.check()

    assert (rig.delay.state.waiting, dict(rig.delay.outcomes.discarded)) == (0, {"removed": 2})
    assert rig.bodies() == []
    rig.restart()
    assert (rig.delay.state.waiting, rig.delay.state.cancelled) == (0, 2)


@pytest.mark.parametrize("told", [False, True])
def test_what_is_for_a_subject_that_is_declared_again_comes(told: bool, kept_ms: int) -> None:
    """Whether the broker said that it was gone, or meta."""
    rig = GoneRig(LARGE)
    if told:
        rig.delay.gone(SUBJECT, rig.now_ms)
    rig.send([b"%d" % 1], NOW_MS + 1000)
    rig.wait(kept_ms // 2)
    assert rig.arrived == []
    assert rig.delay.courier.wanted == ({SUBJECT} if told else set())
    rig.let(True)
    rig.delay.route(SUBJECT, ("g0",), rig.now_ms)
    rig.wait(61_000)

    assert rig.bodies() == [b"1"]
    assert rig.delay.state.waiting == 0
    assert SUBJECT not in rig.delay.courier.gone


def test_a_subject_that_meta_does_not_know_is_asked_for_only_while_something_waits_for_it(
    kept_ms: int,
) -> None:
    rig = DelayRig(LARGE)
    rig.delay.gone(SUBJECT, rig.now_ms)
    assert SUBJECT not in rig.delay.courier.routes
    assert not rig.delay.courier.wanted
    rig.send([b"a"], NOW_MS + 1000)
    rig.wait(2000)
    assert rig.delay.courier.wanted == {SUBJECT}
    rig.delay.gone(SUBJECT, rig.now_ms)
    rig.wait(kept_ms + 120_000)
    rig.delay.gone(SUBJECT, rig.now_ms)

    assert dict(rig.delay.outcomes.discarded) == {"unknown_subject": 1}
    assert (rig.delay.state.waiting, rig.delay.courier.wanted) == (0, set())


def test_with_an_occurrence_that_nobody_wants_any_more_its_series_ends(kept_ms: int) -> None:
    rig = GoneRig(LARGE)
    due = NOW_MS + HOUR_MS - NOW_MS % 60_000
    said = Recurrence(due, "once", "UTC", "* * * * *")
    answer = rig.send([b"often"], due, content=Content([b"often"], timer_keys=["k"], cron=said.encode()))
    assert not answer.refused
    rig.wait(due + kept_ms - rig.now_ms - 60_000)
    waiting = rig.delay.state.waiting
    assert waiting >= 120
    rig.wait(ROUND_MS + 120_000)
    assert rig.delay.state.waiting < waiting
    placed = rig.delay.state.messages
    rig.wait(kept_ms + ROUND_MS)

    assert rig.delay.state.messages == placed, "nothing comes after them"
    assert rig.delay.state.waiting == 0
    assert rig.bodies() == []


@pytest.mark.parametrize("death", ["restart", "power_cut", "wait"])
def test_an_hour_of_which_something_cannot_leave_keeps_no_other_one(death: str) -> None:
    rig = RefusingRig(replace(SMALL, segment_bytes=1 << 20))
    rig.send([b"a"], NOW_MS + 1000)
    for number in range(12):
        rig.send([b"b%d" % number], NOW_MS + 5000 + number * HOUR_MS, subject=OTHER_SUBJECT)
    for _ in range(14):
        rig.wait(HOUR_MS)
        if death != "wait":
            getattr(rig, death)()
        rig.delay.check()
    state = rig.delay.state
    assert NOW_MS in state.kept
    assert state.closed_ms >= NOW_MS + 11 * HOUR_MS
    names = [name for name in rig.disk.names.cached if name.startswith("schedule/")]
    assert len(names) <= 9, "three for each hour"
    assert len(rig.bodies(b"b")) == 12

    rig.let(True)
    rig.wait(2_000)
    assert rig.bodies(b"a") == [b"a"]
    rig.send([b"now"], 0)
    rig.wait(120_000)
    assert (list(state.hours), state.kept) == (
        [rig.now_ms // HOUR_MS * HOUR_MS],
        frozenset(),
    ) or not state.hours
    assert not [
        name for name in rig.disk.names.cached if name.startswith("schedule/") and str(NOW_MS) in name
    ]
