"""What is wrong with archives: those whose last run failed. What brokers keep for them grows until one is well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemill.cli.asking import ask
from tidemill.cli.failures import CommandFailed
from tidemill.cli.findings import Case, Check, Finding, error
from tidemill.cli.picture import Row

ARCHIVES = "/v1/archives"
ERROR_CHARS = 300
"""Of what stopped a run: the rest is in its log."""


def unarchived(case: Case) -> Iterator[Finding]:
    yield from failures(case.now.archives)


def failures(archives: Iterable[Row]) -> Iterator[Finding]:
    """One each: of an archive that has ended nobody expects anything, and a run that goes on may mend it, or not."""
    for one in archives:
        ended = [run for run in one["runs"] if run["state"] != "Running"]
        if one["state"] != "Active" or not ended or ended[-1]["state"] != "Failed":
            continue
        run, why = ended[-1]["run"], " ".join(str(ended[-1].get("error", "")).split())[:ERROR_CHARS]
        what = f"its last run, {run}, failed" + (f": {why}" if why else "")
        advice = (
            "look at the run's log, and start it again; what is kept until it is archived grows meanwhile"
        )
        yield error(f"archive {one['name']}", what, advice)


async def archives_of(server: str) -> list[Row]:
    """As meta has them; none where there is no meta, or where whoever asks may not look at them."""
    for one in server.split(","):
        try:
            found: list[Row] = await ask(one, "GET", ARCHIVES)
        except CommandFailed:  # who has no such path, and who does not answer: others say so
            continue
        return found
    return []


CHECKS: tuple[Check, ...] = (unarchived,)
