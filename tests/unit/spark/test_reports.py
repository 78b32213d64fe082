"""A job at work says so every so often, however long it takes; and nothing of it remains when it has ended."""

from __future__ import annotations

import threading

import pytest

from tidemill_spark.jobs.reports import heard
from tidemill_spark.ranges import NobodyAnswers

PATIENCE_S = 30.0


class Listener:
    """Meta, which hears, is away at first, or is of a version that does not listen."""

    def __init__(self, away: int = 0, *, listens: bool = True) -> None:
        self.every: list[int] = []
        self.enough = threading.Event()
        self._away = away
        self._listens = listens

    def __call__(self, every_ms: int) -> bool:
        self.every.append(every_ms)
        if len(self.every) >= self._away + 3 or not self._listens:
            self.enough.set()
        if len(self.every) <= self._away:
            raise NobodyAnswers("it is away")
        return self._listens


@pytest.mark.parametrize("away", [0, 2])
def test_driver_speaks_while_its_job_is_at_work_also_when_meta_was_away(away: int) -> None:
    meta = Listener(away)
    with heard(meta, every_ms=1):
        assert meta.enough.wait(PATIENCE_S)
    said = len(meta.every)
    assert set(meta.every) == {1}
    assert not [one for one in threading.enumerate() if one.name == "tidemill beats"]
    assert len(meta.every) == said


def test_meta_that_does_not_listen_is_told_once() -> None:
    meta = Listener(listens=False)
    with heard(meta, every_ms=1):
        assert meta.enough.wait(PATIENCE_S)
        for speaker in [one for one in threading.enumerate() if one.name == "tidemill beats"]:
            speaker.join(PATIENCE_S)
            assert not speaker.is_alive(), "it speaks no more while the job goes on"
    assert meta.every == [1]


def test_what_stops_a_job_is_raised_when_nobody_speaks_any_more() -> None:
    with pytest.raises(ValueError, match="no room"), heard(Listener(), every_ms=3_600_000):
        raise ValueError("no room")
    assert not [one for one in threading.enumerate() if one.name == "tidemill beats"]
