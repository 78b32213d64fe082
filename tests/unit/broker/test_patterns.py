"""Pulls of patterns: all subjects that begin so, those that come later too, and no reserved one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from samples.brokers import TINY, Rig
from samples.sifted import content_of, pull, send, shown
from tidemill_broker import patterns
from tidemill_wire import limits
from tidemill_wire.commands import Pull, Start
from tidemill_wire.errors import KIND_BY_NAME
from tidemill_wire.filters import parse_filter

ROOMY = replace(TINY, segment_bytes=1 << 24, lease_ms=60_000)


def wait_for(rig: Rig, pattern: str, start: int = Start.EARLIEST, **more) -> int:
    """A pull that finds nothing and waits."""
    assert rig.ask(Pull("g", "c", [pattern], 100, 1 << 20, 50_000, start, **more)) is None
    return rig.correlation


def subjects(rig: Rig, *names: str, **more) -> dict[str, int]:
    """How many messages come of which subject."""
    found: dict[str, int] = {}
    while messages := shown(pull(rig, subjects=names, **more)):
        for message in messages:
            found[message.subject] = found.get(message.subject, 0) + 1
    return found


def test_all_subjects_that_begin_so_are_given_and_no_others() -> None:
    rig = Rig(ROOMY)
    for name in ("order.created", "order.paid", "orders", "customer.order.paid"):
        rig.send(b"tide", subject=name)

    assert subjects(rig, "order.*") == {"order.created": 1, "order.paid": 1}
    assert subjects(rig, "*") == {"orders": 1, "customer.order.paid": 1}


def test_subject_that_comes_while_a_pull_waits_is_given_with_its_first_message() -> None:
    rig = Rig(ROOMY)
    waiting = wait_for(rig, "order.*")
    rig.send(b"tide", subject="customer.created")
    assert waiting not in rig.answers

    rig.send(b"tide", subject="order.created")

    assert [message.subject for message in shown(rig.answers[waiting])] == ["order.created"]


def test_reserved_subjects_never_match() -> None:
    rig = Rig(ROOMY)
    waiting = wait_for(rig, "*")
    rig.broker.intake.declare("%dead%order.created%g", rig.broker.intake._defaults, rig.now_ms)
    rig.send(b"tide", subject="order.created")

    assert [message.subject for message in shown(rig.answers[waiting])] == ["order.created"]
    assert "g" not in rig.broker.state.by_name[b"%dead%order.created%g"].groups


def test_latest_holds_for_subjects_that_are_there_and_later_ones_begin_at_their_first_message() -> None:
    rig = Rig(ROOMY)
    rig.send(b"old", subject="order.created")
    waiting = wait_for(rig, "order.*", Start.LATEST)
    rig.send(b"tide", subject="order.paid")
    rig.send(b"tide", subject="order.sent")  # between two pulls

    assert [message.subject for message in shown(rig.answers[waiting])] == ["order.paid"]
    answer = rig.ask(Pull("g", "c", ["order.*"], 100, 1 << 20, 0, Start.LATEST))
    assert [message.subject for message in shown(answer)] == ["order.sent"]


def test_after_a_restart_subjects_of_a_known_group_begin_at_their_first_message() -> None:
    rig = Rig(ROOMY)
    rig.send(b"old", subject="order.created")
    wait_for(rig, "order.*", Start.LATEST)
    rig.restart()
    rig.send(b"tide", subject="order.paid")

    answer = rig.ask(Pull("g", "c", ["order.*"], 100, 1 << 20, 0, Start.LATEST))

    assert [message.subject for message in shown(answer)] == ["order.paid"]


def test_subject_that_is_named_and_matches_is_given_once() -> None:
    rig = Rig(ROOMY)
    rig.send(b"tide", subject="order.created")

    assert subjects(rig, "order.created", "order.*", "*") == {"order.created": 1}


def test_filter_holds_in_all_subjects_of_a_pattern() -> None:
    rig = Rig(ROOMY)
    vip = parse_filter(["vip"], False)
    waiting = wait_for(rig, "order.*", filter=vip)
    send(rig, content_of([["eu"]]), subject="order.created")
    assert waiting not in rig.answers

    send(rig, content_of([["eu"], ["vip"]]), subject="order.paid")

    [message] = shown(rig.answers[waiting])
    assert (message.subject, message.sequence) == ("order.paid", 1)
    assert rig.broker.state.group_of("order.created", "g").reached == 1


def test_pull_of_too_many_subjects_is_refused_before_anything_is_made_of_it(monkeypatch) -> None:
    monkeypatch.setattr(limits, "PULL_SUBJECTS_MAX", 3)
    rig = Rig(ROOMY)
    for number in range(3):
        rig.send(b"tide", subject=f"order.{number}")
    assert subjects(rig, "order.*") == {"order.0": 1, "order.1": 1, "order.2": 1}
    waiting = wait_for(rig, "order.*")

    rig.send(b"tide", subject="order.3")

    assert rig.answers[waiting].number == KIND_BY_NAME["limit_exceeded"].number
    assert rig.refused(Pull("h", "c", ["*"], 1, 1, 0)) == KIND_BY_NAME["limit_exceeded"].number
    assert rig.broker.state.group_of("order.0", "h") is None


def test_consumer_that_leaves_is_told_of_no_new_subject() -> None:
    rig = Rig(ROOMY)
    peer = rig.connect()
    rig.ask(Pull("g", "c", ["order.*"], 100, 1 << 20, 50_000), peer)
    rig.disconnect(peer)

    rig.send(b"tide", subject="order.created")

    assert rig.broker.state.group_of("order.created", "g") is None
    assert not rig.broker.serving.pulls.patterned


def test_what_is_remembered_of_patterns_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(patterns, "PATTERNS_KEPT", 5)
    monkeypatch.setattr(patterns, "BEGUN_KEPT", 5)
    rig = Rig(ROOMY)
    for number in range(20):
        pull(rig, subjects=[f"a{number}.*"])

    assert len(rig.broker.serving._patterns._found) <= 5
    assert len(rig.broker.serving._patterns._begun) <= 5


@pytest.mark.parametrize("name", ["%*", "a%*", "*.a", "a**", "a b*", "a" * 101 + "*"])
def test_names_that_are_no_pattern_are_refused(name: str) -> None:
    from tidemill_wire.commands import encode_command, parse_command
    from tidemill_wire.errors import Refused
    from tidemill_wire.frame import FrameDecoder

    [frame] = FrameDecoder().feed(encode_command(Pull("g", "c", [name], 1, 1, 0), 1))
    with pytest.raises(Refused, match="invalid_subject"):
        parse_command(frame)
