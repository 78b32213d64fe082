"""What is wrong with archives: those whose last run failed, or is lost. What brokers keep for them grows until one is
well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from tidemill.cli.asking import ask
from tidemill.cli.failures import CommandFailed
from tidemill.cli.findings import Case, Check, Finding, error, warning
from tidemill.cli.picture import Row
from tidemill_wire.counted import counted

ARCHIVES = "/v1/archives"
LOST = "Lost"
HOW = {"Failed": "failed", LOST: "is lost"}
BEHIND_SECONDS = 2 * 86_400
"""An archive that runs once a day has missed a day."""
ERROR_CHARS = 300
"""Of what stopped a run: the rest is in its log."""


def unarchived(case: Case) -> Iterator[Finding]:
    yield from failures(case.now.archives)


def failures(archives: Iterable[Row]) -> Iterator[Finding]:
    """One each: of an archive that has ended nobody expects anything, and a run that goes on may mend it, or not."""
    for one in archives:
        ended = [run for run in one["runs"] if run["state"] != "Running"]
        how = HOW.get(ended[-1]["state"]) if ended else None
        if one["state"] != "Active" or how is None:
            continue
        what = f"its last run, {ended[-1]['run']}, {how}{_why(ended[-1])}"
        advice = (
            "look at the run's log, and start it again; what is kept until it is archived grows meanwhile"
        )
        yield error(f"archive {one['name']}", what, advice)


def _why(run: Row) -> str:
    """What it said; or when it was heard last, if it says nothing any more."""
    if run["state"] == LOST and "heard_at" in run:
        at = datetime.fromtimestamp(run["heard_at"] / 1000, UTC)
        return f": its driver was last heard of at {at:%Y-%m-%d %H:%M:%S} UTC"
    why = " ".join(str(run.get("error", "")).split())[:ERROR_CHARS]
    return f": {why}" if why else ""


def archived(case: Case) -> Iterator[Finding]:
    """An archive that nobody runs fills disks as one that fails does."""
    for node in case.now.masters:
        behind_s = node.number("tidemill_archive_lag_seconds") or 0.0
        if behind_s > BEHIND_SECONDS:
            count = int(node.number("tidemill_archive_lag_messages") or 0)
            what = f"it keeps {counted(count, 'message')} for an archive, the oldest for {behind_s / 86_400:.1f} days"
            advice = "run the archive, `tidemill archive run`, or look why nobody does; docs/archive.md"
            yield warning(node.name, what, advice)


async def archives_of(server: str) -> list[Row]:
    """As meta has them; none where there is no meta, or where whoever asks may not look at them."""
    for one in server.split(","):
        try:
            found: list[Row] = await ask(one, "GET", ARCHIVES)
        except CommandFailed:  # who has no such path, and who does not answer: others say so
            continue
        return found
    return []


CHECKS: tuple[Check, ...] = (unarchived, archived)
