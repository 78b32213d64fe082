"""A broker takes what quotas allow, tells the rest to wait, and takes and charges nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, TINY, Rig, batch_of
from samples.services import Indoors
from tidemill_broker import quotas
from tidemill_broker.doors.service import subject_settings
from tidemill_broker.gate import Removal, Told
from tidemill_broker.partitions import SubjectSettings
from tidemill_host.local import LocalPeer
from tidemill_wire.batch import SINGLES_FROM, Flags, Origin
from tidemill_wire.columns import Content, build_batch
from tidemill_wire.commands import Done, Failed, SendBatches, Sent
from tidemill_wire.declarations import API_VERSION, Subject, parse_manifest
from tidemill_wire.errors import KIND_BY_NUMBER, Unavailable
from tidemill_wire.quotas import Meter, Rates
from tidemill_wire.transacting import Half


@pytest.fixture
def indoors() -> Iterator[Indoors]:
    made = Indoors()
    yield made
    made.close()


SETTINGS = SubjectSettings("low", 3600, 0, 1 << 20)


def bounded(messages: float = 0, size: float = 0) -> Rig:
    rig = Rig()
    declare(rig, Rates(messages, size))
    return rig


def declare(rig: Rig, rates: Rates | None, subject: str = SUBJECT) -> None:
    rig.broker.intake.declare(subject, replace(SETTINGS, rates=rates), rig.now_ms)
    rig.pump()


def codes(sent: Sent) -> list[tuple[int, str, int]]:
    return [(index, error.kind.name, error.wait_ms) for index, error in sent.errors.items()]


def ask(rig: Rig, batches: bytearray, payer: Meter | None = None) -> Sent:
    answer = rig.ask(SendBatches(batches, payer=payer))
    assert isinstance(answer, Sent)
    return answer


def test_what_is_beyond_the_quota_is_told_to_wait_and_is_nowhere() -> None:
    rig = bounded(messages=2)
    assert [codes(rig.send(b"x")) for _ in range(3)] == [[], [], [(0, "over_quota", 500)]]
    assert rig.broker.state.by_name[SUBJECT.encode()].next_sequence == 2
    rig.now_ms += 499
    assert codes(rig.send(b"x")) == [(0, "over_quota", 1)]
    rig.now_ms += 1
    assert codes(rig.send(b"x")) == []


def test_bytes_are_charged_by_the_batch() -> None:
    rig = bounded(size=1000)
    assert codes(rig.send(bytes(3000))) == []
    (refused,) = codes(rig.send(b"x"))
    assert refused[1] == "over_quota"
    assert 2000 < refused[2] < 2600


def test_a_batch_that_waits_holds_up_no_other_subject_of_its_frame() -> None:
    rig = bounded(messages=1)
    frame = bytearray()
    for number, subject in enumerate((SUBJECT, "other", SUBJECT, "other"), 1):
        frame += batch_of(b"x", subject=subject, producer=5, sequence=number)
    answer = ask(rig, frame)
    assert [index for index, _, _ in codes(answer)] == [2]
    assert [first >= 0 for first in answer.first_sequences] == [True, True, False, True]


def test_what_was_stored_is_answered_again_and_costs_nothing() -> None:
    """Also when nothing is left: so a batch that is told to wait certainly is not stored."""
    rig = bounded(messages=2)
    batch = batch_of(b"x", producer=7, sequence=1)
    first = ask(rig, bytearray(batch))
    rig.send(b"y")
    for _ in range(5):
        assert ask(rig, bytearray(batch)).first_sequences == first.first_sequences
    assert codes(rig.send(b"z")) == [(0, "over_quota", 500)]


def test_lanes_and_further_partitions_share_what_their_subject_has() -> None:
    rig = bounded(messages=3)
    rig.broker.intake.found(f"{SUBJECT}#1", rig.now_ms)
    rig.pump()
    assert codes(rig.send(b"x", priority=4)) == []
    assert codes(rig.send(b"x", subject=f"{SUBJECT}#1")) == []
    assert codes(rig.send(b"x")) == []
    for more in ({"priority": 4}, {"subject": f"{SUBJECT}#1"}, {}):
        assert codes(rig.send(b"x", **more)) == [(0, "over_quota", 334)]  # type: ignore[arg-type]


def test_many_singles_are_bounded_as_one_batch_is() -> None:
    """Runs of single messages have a way of their own, which must not lead around a quota."""
    rig = bounded(messages=3)
    declare(rig, None, "free")
    frame = bytearray()
    for number in range(1, 41):
        frame += batch_of(b"x", subject=SUBJECT if number % 2 else "free", producer=number, sequence=1)
    assert len(codes(ask(rig, frame))) == 17


def test_who_sends_pays_beside_the_subject_and_neither_pays_alone() -> None:
    rig, payer = bounded(messages=100), Meter("token:shop", Rates(1), 0)
    assert codes(ask(rig, batch_of(b"x", producer=5, sequence=1), payer)) == []
    for number in range(2, 150):
        (refused,) = codes(ask(rig, batch_of(b"x", producer=5, sequence=number), payer))
        assert refused[1:] == ("over_quota", 1000)
    assert [codes(rig.send(b"x")) for _ in range(99)] == [[]] * 99


def test_a_half_message_pays_when_it_is_kept_and_once() -> None:
    rig, payer = Rig(), Meter("token:shop", Rates(1), 0)

    def half(number: int) -> object:
        transaction = SINGLES_FROM | number
        origin = Origin(
            SUBJECT.encode(),
            transaction,
            0,
            number.to_bytes(16, "big"),
            rig.now_ms,
            flags=Flags.TRANSACTIONAL,
        )
        return rig.ask(Half("shop", memoryview(build_batch(origin, Content([b"x"]))), payer))

    assert isinstance(half(1), Done)
    assert isinstance(half(1), Done)
    refused = half(2)
    assert isinstance(refused, Failed)
    assert (KIND_BY_NUMBER[refused.number].name, refused.wait_ms) == ("over_quota", 1000)


def test_another_quota_holds_from_its_declaration_on_and_none_lets_all_in() -> None:
    rig = bounded(messages=1)
    rig.send(b"x")
    declare(rig, Rates(1000, 0))
    rig.now_ms += 1
    assert codes(rig.send(b"x")) == []
    declare(rig, None)
    assert [codes(rig.send(b"x")) for _ in range(50)] == [[]] * 50


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_quota_outlives_a_restart(*, checkpoint: bool) -> None:
    rig = bounded(messages=2)
    if checkpoint:
        rig.broker.keeping.checkpoint(rig.now_ms)
        rig.pump()
    rig.restart()
    assert [len(codes(rig.send(b"x"))) for _ in range(3)] == [0, 0, 1]


def test_it_is_counted_by_whose_quota_was_used_up() -> None:
    rig, payer = bounded(messages=1), Meter("token:shop", Rates(1), 0)
    rig.send(b"x")
    rig.send(b"x")
    for number in (1, 2, 3):
        ask(rig, batch_of(b"x", subject="other", producer=5, sequence=number), payer)
    rows = dict(rig.broker.intake.quotas.told_to_wait.rows("other"))
    assert rows == {f"subject {SUBJECT}": 1, "token:shop": 2}
    assert rig.broker.counters.refused["over_quota"] == 3


def test_a_broker_takes_the_share_of_its_partitions() -> None:
    manifest = {
        "apiVersion": API_VERSION, "kind": "Subject", "metadata": {"name": SUBJECT},
        "spec": {"quota": {"messagesPerSecond": 90, "bytesPerSecond": 9000}},
    }  # fmt: skip
    subject = parse_manifest(manifest)
    assert isinstance(subject, Subject)
    assert subject_settings(subject, TINY, (1, 3)).rates == Rates(30, 3000)
    assert subject_settings(subject, TINY).rates == Rates(90, 9000)
    settings = subject_settings(subject, TINY, (2, 3))
    assert SubjectSettings.from_map(settings.to_map()) == settings


def test_a_subject_that_is_made_again_does_not_begin_with_the_debt_of_the_one_before(
    indoors: Indoors,
) -> None:
    """A large batch may have used up hours of its quota."""
    service = indoors.service
    rates = replace(SETTINGS, rates=Rates(messages=1))

    def send(number: int) -> list[str]:
        batch = build_batch(
            Origin(b"tide", 5, number, b"%016d" % number, service.now_ms), Content([b"x"] * 1000)
        )
        asked = indoors.call(lambda: LocalPeer(service.server, lambda _: None).ask(SendBatches(batch)))
        indoors.pass_time(0.1)
        answer = asked.result()
        assert isinstance(answer, Sent)
        return [error.kind.name for error in answer.errors.values()]

    def declare() -> None:
        service.broker.intake.declare("tide", rates, service.now_ms)
        service.turn.start()

    indoors.call(declare)
    assert send(1) == []
    assert send(2) == ["over_quota"]
    indoors.call(lambda: service.obey(Told(1, removed=(Removal("tide", "billing", 1),))))
    assert send(3) == ["over_quota"]  # a group went, and not the subject
    indoors.call(lambda: service.obey(Told(2, removed=(Removal("tide", "", 2),))))
    indoors.call(declare)
    assert send(4) == []


def test_what_was_paid_for_is_paid_for_once_as_long_as_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "SINGLES_REMEMBERED_MAX", 2)
    paid, payer = quotas.PaidOnce(), Meter("token:shop", Rates(messages=1), 0)

    def charged(request: int, now_ms: int = 0) -> bool:
        try:
            paid.charge((SINGLES_FROM, request), (1, 100), payer, now_ms)
        except Unavailable:
            return False
        return True

    assert [charged(1), charged(1), charged(2)] == [True, True, False]
    assert [charged(2, 1000), charged(2, 1000), charged(3, 2000)] == [True, True, True]
    assert [charged(2, 2000), charged(1, 2000)] == [True, False]
