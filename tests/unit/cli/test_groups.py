"""`tidemill groups seek` says what would happen before it asks, and does nothing that was not agreed to."""

import json
from datetime import UTC, datetime

import pytest

EFFECT = "1,000 delivered again, 3 in flight, void, 2 waiting for another attempt, dropped"


def seek(command, to, *more, **how):
    return command("groups", "seek", "orders", "billing", "--to", to, *more, **how)


@pytest.mark.parametrize(
    "written, meant",
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("4711", 4711),
        ("2026-09-01", datetime(2026, 9, 1, tzinfo=UTC)),
        ("2026-09-01T12:30:00Z", datetime(2026, 9, 1, 12, 30, tzinfo=UTC)),
    ],
)
def test_place_is_a_word_a_sequence_or_a_time(command, queue, written, meant) -> None:
    assert seek(command, written, "--yes").code == 0
    assert queue.sought == [("orders", "billing", meant, True), ("orders", "billing", meant, False)]


@pytest.mark.parametrize("written", ["middle", "-5", "1.5", "2026-13-01", ""])
def test_what_is_no_place_is_refused_before_anything_is_asked(command, queue, written) -> None:
    outcome = seek(command, f"{written}", "--yes")
    assert outcome.code == 2
    assert "is no place" in outcome.err
    assert queue.sought == []


def test_dry_run_tells_and_does_nothing(command, queue) -> None:
    outcome = seek(command, "latest", "--dry-run")
    assert outcome.text == f"Group billing of orders would go on at sequence 4: {EFFECT}.\n"
    assert [rehearsal for *_, rehearsal in queue.sought] == [True]


@pytest.mark.parametrize("answer, done", [("y", True), ("n", False), ("", False)])
def test_person_is_asked_after_being_told(command, queue, monkeypatch, answer, done) -> None:
    monkeypatch.setattr("typer.confirm", lambda *_, **__: answer == "y")
    outcome = seek(command, "latest")
    assert outcome.code == 0
    assert f"would go on at sequence 4: {EFFECT}" in outcome.text
    assert ("goes on at sequence 4" in outcome.text) is done
    assert [rehearsal for *_, rehearsal in queue.sought] == [True, False][: 1 + done]


def test_program_without_yes_is_told_what_to_add(command, queue) -> None:
    outcome = seek(command, "latest", stdin=b"")
    assert outcome.code == 2
    assert "--yes" in outcome.err
    assert [rehearsal for *_, rehearsal in queue.sought] == [True]


def test_as_json_it_is_one_object(command) -> None:
    outcome = seek(command, "latest", "--yes", "-o", "json")
    assert json.loads(outcome.text) == {
        "sequence": 4,
        "again": 1000,
        "skipped": 0,
        "in_flight": 3,
        "failed": 2,
    }
