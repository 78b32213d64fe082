"""What a job says of itself: a line of JSON on its output, and the same to meta, from where the operator reads it.

Meta may be away while a job runs: what was committed is committed, the report is tried some times and then left out,
with a line on standard error; the next run tells the same watermarks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tidemill_spark.action_archive import ActionTotals
from tidemill_spark.archive import Totals
from tidemill_spark.ranges import NobodyAnswers
from tidemill_spark.replay import Counts

TRIES = 5
PAUSE_S = 1.0
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
