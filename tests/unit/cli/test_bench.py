"""`tidemill bench` sends and consumes what it says, and its figures follow from what was timed."""

import json

import pytest

from tidemill.cli import measure
from tidemill.cli.measure import Measured, percentile


def test_produce_sends_exactly_so_many_messages(command, queue) -> None:
    outcome = command("bench", "produce", "--count", "25001", "--size", "10", "--json")
    result = json.loads(outcome.text)
    assert outcome.code == 0
    assert len(queue.messages) == result["messages"] == 25_001
    assert result["bytes"] == 250_010
    assert {len(message.body) for message in queue.messages} == {10}
    assert set(result) == {
        "bench", "subject", "messages", "bytes", "seconds", "messages_per_second", "megabytes_per_second",
        "p50_ms", "p99_ms", "p999_ms", "client_cpu_seconds_per_million",
    }  # fmt: skip


def test_consume_takes_batches_until_it_has_enough(command, queue) -> None:
    for _ in range(9):
        queue.add("bench", b"xy")
    result = json.loads(command("bench", "consume", "--count", "6", "--json").text)
    assert (result["messages"], result["bytes"]) == (6, 12)
    assert queue.consumed["start"] == "earliest"


def test_consume_does_not_wait_for_ever_for_what_was_never_sent(
    command, queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "SILENCE_SECONDS", 0.01)
    queue.add("bench", b"xy")
    outcome = command("bench", "consume", "--count", "6")
    assert outcome.code == 1
    assert (
        "1 of 6 messages came, then none for 0.01 seconds: run `tidemill bench produce` first" in outcome.err
    )


def test_the_result_is_a_table_for_people(command) -> None:
    outcome = command("bench", "produce", "--count", "10")
    assert any(line.split() == ["messages", "10"] for line in outcome.text.splitlines())


@pytest.mark.parametrize(
    "values, share, expected",
    [
        ([], 0.5, None),
        ([1.0], 0.99, 1.0),
        ([1.0, 2.0], 0.5, 1.0),
        (list(map(float, range(1, 101))), 0.99, 99.0),
    ],
)
def test_a_percentile_is_by_nearest_rank(values: list[float], share: float, expected: float | None) -> None:
    assert percentile(values, share) == expected


def test_figures_are_rates_of_what_was_timed() -> None:
    figures = Measured(
        messages=1000, bytes=2_000_000, seconds=2.0, cpu_seconds=0.5, waits_ms=[3.0, 1.0, 2.0]
    ).figures()
    assert figures["messages_per_second"] == 500
    assert figures["megabytes_per_second"] == 1.0
    assert figures["p50_ms"] == 2.0
    assert figures["client_cpu_seconds_per_million"] == 500.0
