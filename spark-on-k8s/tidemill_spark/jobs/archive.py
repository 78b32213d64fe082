"""The job of an Archive: one run, on Spark. The last line of its output says what was done, as JSON."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tidemill_spark import action_archive, archive, delta
from tidemill_spark.jobs.options import PREFERS, add_read_from, add_server, now_ms, parsed
from tidemill_spark.jobs.reports import FAILED, RUNNING, SUCCEEDED, archive_counts, error_of, heard, report
from tidemill_spark.marks import beat_run, put_run, watermarks_of
from tidemill_spark.workers import on_spark, spark_session

SECOND_MS = 1000
WITHOUT_ACTIONS = "only messages, and not what was done with them"


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 when all that was there is archived."""
    parser = argparse.ArgumentParser("archive", description="Archive what brokers have and the lake has not.")
    add_server(parser)
    parser.add_argument("--name", required=True, help="the archive's name")
    parser.add_argument(
        "--subject", action="append", required=True, help="a subject, or a pattern as order.*"
    )
    parser.add_argument("--to", required=True, metavar="URI", help="the lake's folder")
    parser.add_argument("--format", choices=(archive.FORMAT, delta.FORMAT), default=archive.FORMAT)
    parser.add_argument("--compression", choices=("Zstd", "Snappy", "None"), default="Zstd")
    parser.add_argument("--safety-lag-seconds", type=int, default=300)
    parser.add_argument("--max-span-seconds", type=int, default=86_400)
    add_read_from(parser)
    parser.add_argument("--run", default="", help="the run's name; drawn when absent")
    parser.add_argument("--without-actions", action="store_true", help=WITHOUT_ACTIONS)
    found = parsed(parser, arguments)
    wanted = archive.Wanted(
        found.server, found.to, tuple(found.subject), found.name, found.compression,
        found.safety_lag_seconds * SECOND_MS, found.max_span_seconds * SECOND_MS, PREFERS[found.read_from],
    )  # fmt: skip
    session = spark_session(f"tidemill-archive-{found.name}")
    try:
        actions = None if found.without_actions else partial(_run_actions, session, wanted)
        said = reported(wanted, found.run, partial(_run, session, wanted, found.format), actions)
    finally:
        session.stop()
    sys.stdout.write(json.dumps(said) + "\n")
    return 0


def _run(session: Any, wanted: archive.Wanted, kind: str, tell_totals: archive.Tell) -> archive.Totals:
    with on_spark(session) as workers:
        if kind == delta.FORMAT:
            return delta.run(session, wanted, workers, now_ms, tell_totals)
        return archive.run(wanted, workers, now_ms, tell_totals)


def _run_actions(session: Any, wanted: archive.Wanted) -> action_archive.ActionTotals:
    with on_spark(session) as workers:
        return action_archive.run(wanted, workers, now_ms)


def reported(
    wanted: archive.Wanted,
    name: str,
    run: Callable[[archive.Tell], archive.Totals],
    run_actions: Callable[[], action_archive.ActionTotals] | None,
    tell_totals: archive.Tell = lambda _: None,
) -> dict[str, Any]:
    """A run that meta is told of: that it began, and how it ended. Messages come first, then what was done with them:
    when that fails, the run has, and the messages are archived all the same.
    """
    began_ms, name = now_ms(), name or f"r{now_ms()}-{secrets.token_hex(3)}"
    known: dict[str, Any] = {"started_at": began_ms, "subjects": list(wanted.subjects)}

    def told(said: dict[str, Any]) -> None:
        report(partial(put_run, wanted.server, wanted.name, name, {**known, **said}))

    told({"state": RUNNING})
    last = archive.Totals()

    def on_totals(totals: archive.Totals) -> None:
        nonlocal last
        last = totals
        tell_totals(totals)

    done: dict[str, Any] = {}
    try:
        with heard(partial(beat_run, wanted.server, wanted.name, name)):
            totals = run(on_totals)
            marks = watermarks_of({place[1:]: mark for place, mark in totals.watermarks.items()})
            done = {"watermarks": marks} | ({} if totals.made is None else {"made": totals.made})
            actions = run_actions() if run_actions is not None else None
    except Exception as error:
        ended = {"state": FAILED, "ended_at": now_ms(), "counts": archive_counts(last)}
        told({**ended, **done, "error": error_of(error)})
        raise
    said = {
        **known,
        "state": SUCCEEDED,
        "ended_at": now_ms(),
        "through": totals.through_ms,
        "counts": archive_counts(totals, actions),
        **done,
    }
    told(said)
    return {"archive": wanted.name, "run": name, **said}
