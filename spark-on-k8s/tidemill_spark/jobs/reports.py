"""What a job says of itself: a line of JSON on its output, and the same to meta, from where the operator reads it.

Meta may be away while a job runs: what was committed is committed, the report is tried some times and then left out,
with a line on standard error; the next run tells the same watermarks.

While a job is at work, its driver says every half a minute that it is there. Of one that was killed nobody hears any
more, and after ten times meta says that it is lost; one that takes long is not, for a thread of its own speaks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event, Thread

from tidemill_spark.action_archive import ActionTotals
from tidemill_spark.archive import Totals
from tidemill_spark.ranges import NobodyAnswers
from tidemill_spark.replay import Counts

TRIES = 5
PAUSE_S = 1.0
BEAT_MS = 30_000
PARTING_S = 5.0
ERROR_CHARS_MAX = 1000
RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"


def archive_counts(totals: Totals, actions: ActionTotals | None = None) -> dict[str, int]:
    """What a run did, in numbers."""
    of_actions = {} if actions is None else {
        "actions": actions.rows,
        "actions_written_bytes": actions.written_bytes,
        "actions_missing_bytes": actions.missing_bytes,
        "actions_unnamed": actions.unnamed,
    }  # fmt: skip
    return {
        **of_actions,
        "messages": totals.rows,
        "read_bytes": totals.read_bytes,
        "written_bytes": totals.written_bytes,
        "files": totals.files,
        "commits": totals.commits,
        "missing": totals.missing,
        "late": totals.late_rows,
    }


def replay_counts(counts: Counts) -> dict[str, int]:
    """The same of a replay."""
    return {"messages": counts.rows, "bytes": counts.bytes}


def error_of(error: BaseException) -> str:
    """In one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:ERROR_CHARS_MAX]


def report(tell: Callable[[], bool]) -> None:
    """Try for a while. A lone broker has no meta: nobody is told."""
    for attempt in range(TRIES):
        try:
            tell()
        except NobodyAnswers as error:
            if attempt + 1 == TRIES:
                sys.stderr.write(f"tidemill: {error}: the next run tells it\n")
            else:
                time.sleep(PAUSE_S)
        else:
            return


@contextmanager
def heard(beat: Callable[[int], bool], every_ms: int = BEAT_MS) -> Generator[None]:
    """Say every so often that the driver is there, until what is within is over; ``beat`` is told how often."""
    over = Event()

    def speak() -> None:
        listens = True
        while listens and not over.is_set():
            try:
                listens = beat(every_ms)
            except NobodyAnswers:
                listens = True  # meta is away: it hears the next one
            over.wait(every_ms / 1000)

    speaker = Thread(target=speak, name="tidemill beats", daemon=True)
    speaker.start()
    try:
        yield
    finally:
        over.set()
        speaker.join(PARTING_S)  # a beat that comes late finds a run that has ended
