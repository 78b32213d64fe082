"""The job of a Replay: once, on Spark. The last line of its output says what was sent, as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tidemill_spark import replay
from tidemill_spark.jobs.options import add_query, add_server, now_ms, parsed, query_of
from tidemill_spark.jobs.reports import FAILED, RUNNING, SUCCEEDED, error_of, heard, replay_counts, report
from tidemill_spark.marks import beat_replay, put_replay
from tidemill_spark.queries import Query
from tidemill_spark.workers import on_spark, spark_session

MARKED, PRESERVED, BY_KEY, UNORDERED = "MarkReplayed", "Preserve", "ByKey", "None"


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 when all is sent, or counted."""
    parser = argparse.ArgumentParser("replay", description="Send archived messages again.")
    add_server(parser)
    parser.add_argument("--from-uri", required=True, metavar="URI", help="the lake's folder")
    add_query(parser)
    add_target(parser)
    found = parsed(parser, arguments)
    wanted = wanted_of(found, found.from_uri, query_of(found))
    session = spark_session(f"tidemill-replay-{wanted.run}")
    try:
        with on_spark(session) as workers:
            said = reported(wanted, lambda: replay.run(wanted, workers, lambda _: None))
    finally:
        session.stop()
    sys.stdout.write(json.dumps(said) + "\n")
    return 0


def add_target(parser: argparse.ArgumentParser) -> None:
    """Where they go, and how."""
    parser.add_argument("--target", required=True, metavar="SUBJECT", help="the subject they are sent to")
    parser.add_argument("--group", help="the only group of it that gets them; all when absent")
    parser.add_argument(
        "--rate", type=int, default=2000, help="messages a second at most; 0: as fast as they go"
    )
    parser.add_argument("--headers", choices=(MARKED, PRESERVED), default=MARKED)
    parser.add_argument("--ordering", choices=(BY_KEY, UNORDERED), default=BY_KEY)
    parser.add_argument("--dry-run", action="store_true", help="count, and send nothing")
    parser.add_argument("--run", default="replay", metavar="NAME", help="who names it again goes on with it")


def wanted_of(found: argparse.Namespace, uri: str, query: Query) -> replay.Wanted:
    """What the options say."""
    return replay.Wanted(
        found.server, uri, query, found.target, found.group, found.run, found.rate, found.headers == MARKED,
        found.ordering == BY_KEY, found.dry_run,
    )  # fmt: skip


def reported(wanted: replay.Wanted, run: Callable[[], replay.Counts]) -> dict[str, Any]:
    """A replay that meta is told of."""
    known: dict[str, Any] = {"started_at": now_ms(), "dry_run": "true" if wanted.dry_run else "false"}

    def told(said: dict[str, Any]) -> None:
        report(partial(put_replay, wanted.server, wanted.run, {**known, **said}))

    told({"state": RUNNING})
    try:
        with heard(partial(beat_replay, wanted.server, wanted.run)):
            counts = run()
    except Exception as error:
        told({"state": FAILED, "ended_at": now_ms(), "error": error_of(error)})
        raise
    said = {**known, "state": SUCCEEDED, "ended_at": now_ms(), "counts": replay_counts(counts)}
    told(said)
    return {"replay": wanted.run, **said, "dry_run": wanted.dry_run, "subjects": counts.subjects}
