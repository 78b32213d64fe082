"""The service around a broker: what it watches, and what ends it."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from samples.brokers import CALM, SUBJECT, TINY, batch_of, files_of
from samples.services import Indoors
from sim.weather import Weather
from tidemill_broker.doors.service import subject_settings
from tidemill_broker.partitions import SubjectSettings
from tidemill_host.hosted import SPACE_CHECK_SECONDS
from tidemill_host.local import LocalPeer
from tidemill_journal.errors import CorruptRun
from tidemill_wire.commands import Ping, Pull, Pulled, SendBatches
from tidemill_wire.declarations import API_VERSION, Subject
from tidemill_wire.errors import Unavailable

PULL = Pull("g", "c", [SUBJECT], 10, 1 << 20, 500)


@pytest.fixture
def indoors() -> Iterator[Indoors]:
    made = Indoors()
    made.call(made.service._check_space)
    yield made
    made.close()


def refusal(indoors: Indoors) -> str:
    found = indoors.service.broker.intake.refusal
    return "" if found is None else found.kind.name


def test_disk_whose_free_space_nobody_can_tell_takes_nothing_until_it_can_be_told(indoors: Indoors) -> None:
    """An error of the question must not end the questions: the disk would fill up unseen."""
    disk = indoors.service._disk
    told = disk.space
    assert refusal(indoors) == ""

    def silent() -> tuple[int, int]:
        raise OSError(errno.EIO, "Input/output error")

    disk.space = silent  # type: ignore[method-assign]
    indoors.pass_time(2 * SPACE_CHECK_SECONDS)
    assert refusal(indoors) == "disk_full"
    assert "Input/output error" in str(indoors.service.broker.intake.refusal)

    disk.space = told  # type: ignore[method-assign]
    indoors.pass_time(2 * SPACE_CHECK_SECONDS)
    assert refusal(indoors) == ""

    disk.space = lambda: (1, 100)  # type: ignore[method-assign]
    indoors.pass_time(2 * SPACE_CHECK_SECONDS)
    assert refusal(indoors) == "disk_full"


def test_mistake_in_the_broker_ends_the_service_and_whoever_waits_is_told(indoors: Indoors) -> None:
    """A question after it is not even taken: half of a decision may have been made."""
    broker, service = indoors.service.broker, indoors.service
    peer = indoors.call(lambda: LocalPeer(service.server, lambda _answer: None))

    def wrong(_now_ms: int) -> None:
        raise AssertionError("what nobody had foreseen")

    broker.ticked = wrong  # type: ignore[method-assign]
    indoors.pass_time(5)

    assert isinstance(service.failed.result(), AssertionError)
    assert isinstance(indoors.call(lambda: peer.ask(Ping())).exception(), Unavailable)
    [said] = indoors.loop.errors
    assert "what nobody had foreseen" in said
    indoors.loop.errors.clear()


def test_rows_that_the_disk_cannot_read_are_made_again_by_the_next_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Else each life would find the same bad place when the same consumer comes back."""
    indoors = Indoors(CALM, TINY)
    peer = indoors.call(lambda: LocalPeer(indoors.service.server, lambda _answer: None))
    for sequence in range(20):
        indoors.call(lambda number=sequence: peer.ask(SendBatches(batch_of(b"x", sequence=number))))
        indoors.pass_time(0.1)
    indoors.restart()
    disk = indoors.disk
    disk.weather = Weather(cold_reads=1.0)
    runs = files_of(disk, "consume")
    assert runs

    disk.refuse(runs[0], 0, 1 << 20)
    peer = indoors.call(lambda: LocalPeer(indoors.service.server, lambda _answer: None))
    asked = indoors.call(lambda: peer.ask(PULL))
    indoors.pass_time(1)
    failed = indoors.service.failed.result()
    assert isinstance(failed, CorruptRun)
    assert failed.file == runs[0]
    assert f"of {runs[0]} cannot be read (Input/output error): look at the disk" in capsys.readouterr().err
    assert isinstance(asked.exception(), Unavailable)
    assert files_of(disk, "consume") == runs[1:]

    indoors.restart()
    peer = indoors.call(lambda: LocalPeer(indoors.service.server, lambda _answer: None))
    asked = indoors.call(lambda: peer.ask(PULL))
    indoors.pass_time(1)
    pulled = asked.result()
    assert isinstance(pulled, Pulled)
    assert pulled.grants
    assert files_of(disk, "consume") == runs
    indoors.close()


def test_setting_that_a_subject_names_without_a_value_stays_as_it_is(indoors: Indoors) -> None:
    def declared(*config: dict[str, str]) -> str:
        manifest = {
            "apiVersion": API_VERSION,
            "kind": "Subject",
            "metadata": {"name": "orders"},
            "spec": {"config": list(config)},
        }
        subject = Subject.from_map(manifest)
        indoors.call(lambda: indoors.service.declare([subject]))
        return indoors.service.broker.state.by_name[b"orders"].settings.durability

    default = indoors.service.broker.settings.durability
    assert default != "high"
    assert declared({"name": "durability"}) == default
    assert declared({"name": "durability", "value": "high"}) == "high"
    assert declared({"name": "durability"}) == "high"
    assert declared() == default


def test_what_a_subject_says_of_delays_and_dead_letters_comes_to_its_settings(indoors: Indoors) -> None:
    said = {
        "config": [{"name": "durability", "value": "low"}],
        "delay": {"maxDelaySeconds": 60},
        "deadLetter": {"mode": "Disabled"},
    }
    manifest = {"apiVersion": API_VERSION, "kind": "Subject", "metadata": {"name": "orders"}, "spec": said}
    settings = subject_settings(Subject.from_map(manifest), indoors.service.broker.settings)
    assert (settings.durability, settings.later_seconds, settings.dead_letters) == ("low", 60, False)
    assert SubjectSettings.from_map(settings.to_map()) == settings
    said["delay"] = {"mode": "Forbidden", "maxDelaySeconds": 60}
    assert subject_settings(Subject.from_map(manifest), indoors.service.broker.settings).later_seconds == 0
