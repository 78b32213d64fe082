"""What people made read-only is refused to clients, by name, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import SUBJECT, Rig, batch_of
from samples.services import Indoors
from tidemill_broker.gate import Told, Unfenced, Unmade
from tidemill_broker.settings import BrokerSettings
from tidemill_wire.commands import Ack, Done, Pulled, SendBatches, Sent
from tidemill_wire.declarations import Subject
from tidemill_wire.errors import KIND_BY_NAME, KIND_BY_NUMBER, Unavailable

READ_ONLY = KIND_BY_NAME["read_only"]


def send(rig: Rig, subject: str = SUBJECT, sequence: int = 0) -> str | None:
    """The detail with which it was refused."""
    answer = rig.ask(SendBatches(batch_of(b"tide", subject=subject, producer=9, sequence=sequence)))
    assert isinstance(answer, Sent)
    for _, number, detail in answer.refused:
        assert number == READ_ONLY.number
        return detail
    return None


def obey(rig: Rig, told: Told) -> None:
    rig.broker.intake.gate.obey(told)


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.connect()
    return made


def test_a_broker_group_that_is_read_only_refuses_sends_until_it_takes_them_again(rig: Rig) -> None:
    assert READ_ONLY.retryable
    obey(rig, Told(1, "R"))
    refused = send(rig)
    obey(rig, Told(1, "RW"))

    assert refused == "this broker group takes no messages now"
    assert send(rig) is None


def test_a_master_under_meta_takes_nothing_before_it_was_told_what_it_may_take(rig: Rig) -> None:
    rig.broker.intake.gate.wait()
    answer = rig.ask(SendBatches(batch_of(b"tide", producer=9)))
    assert isinstance(answer, Sent)
    [(_, number, detail)] = answer.refused
    with pytest.raises(Unavailable, match="not_told"):
        rig.broker.intake.gate.check_adopted(SUBJECT)
    obey(rig, Told())

    assert KIND_BY_NUMBER[number].name == "not_told"
    assert KIND_BY_NUMBER[number].retryable
    assert detail == "this broker leads from now on, and meta has not told it what it may take"
    assert send(rig) is None


@pytest.mark.parametrize("subject", [SUBJECT, f"{SUBJECT}#3"])
def test_a_subject_that_is_read_only_is_refused_in_all_its_partitions(rig: Rig, subject: str) -> None:
    assert send(rig, sequence=1) is None
    obey(rig, Told(1, "RW", frozenset({SUBJECT})))

    assert send(rig, subject, 2) == f"subject {SUBJECT!r} takes no messages now"
    assert send(rig, "order.paid", 3) is None


def test_what_was_stored_before_is_answered_again_and_read_and_acked(rig: Rig) -> None:
    assert send(rig, sequence=5) is None
    obey(rig, Told(1, "R"))

    assert send(rig, sequence=5) is None
    assert send(rig, sequence=6) is not None
    pulled = rig.pull()
    assert isinstance(pulled, Pulled)
    grant = pulled.grants[0]
    assert rig.ask(Ack("g", "c", SUBJECT, [grant.pull_sequence, grant.pull_sequence])) == Done([])


def declared(name: str, **spec: object) -> Subject:
    return Subject.from_map(
        {"apiVersion": "tidemill.dev/v1alpha1", "kind": "Subject", "metadata": {"name": name}, "spec": spec}
    )


def test_one_declaration_that_cannot_be_holds_up_no_other() -> None:
    indoors = Indoors(settings=BrokerSettings(durability="low", subjects_max=2))
    told = Told(1, "R", frozenset(), tuple(map(declared, ("one", "two", "three"))))

    unmade = indoors.call(lambda: indoors.service.heed(told))
    problem = indoors.service.problem

    again = replace(
        told, state="RW", declared=(declared("one", config=[{"name": "durability", "value": "high"}]),)
    )
    assert indoors.call(lambda: indoors.service.heed(again)) is None
    assert isinstance(unmade, Unmade)
    assert (unmade.declared, unmade.problem.kind.name) == (told.declared[2:], "too_many_subjects")
    assert problem.startswith("Subject 'three', tried again with each beat, is not yet as it is declared: ")
    assert problem.endswith("(too_many_subjects)")
    assert indoors.service.problem == ""
    rows = {row["name"]: row["durability"] for row in indoors.call(indoors.service.subjects)}
    shut = indoors.service.broker.intake.gate.shut
    indoors.close()
    assert (rows, shut) == ({"one": "high", "two": "low"}, False)


def test_a_fence_that_is_not_up_is_said_beside_what_is_not_made() -> None:
    indoors = Indoors(settings=BrokerSettings(durability="low", subjects_max=1))
    indoors.call(lambda: indoors.service.heed(Told(1, "RW", frozenset(), (declared("one"), declared("two")))))

    indoors.call(lambda: indoors.service.heed(Unfenced("partition 'orders': no")))
    both = indoors.service.problem
    indoors.call(lambda: indoors.service.heed(Unfenced("")))
    one = indoors.service.problem
    indoors.close()

    assert both.startswith("Subject 'two'")
    assert both.endswith(
        "; a fence that meta wants, tried again with each beat, is not up: partition 'orders': no"
    )
    assert one == both.partition("; ")[0]
