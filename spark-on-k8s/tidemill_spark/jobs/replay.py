"""The job of a Replay: once, on Spark. The last line of its output says what was sent, as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tidemill_spark import replay
from tidemill_spark.jobs.options import add_server, now_ms, parsed, time_ms
from tidemill_spark.jobs.reports import FAILED, RUNNING, SUCCEEDED, error_of, replay_counts, tell
from tidemill_spark.queries import Query
from tidemill_spark.workers import on_spark, spark_session

MARKED, PRESERVED, BY_KEY, UNORDERED = "MarkReplayed", "Preserve", "ByKey", "None"


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 when all is sent, or counted."""
    parser = argparse.ArgumentParser("replay", description="Send archived messages again.")
    add_server(parser)
    parser.add_argument("--from-uri", required=True, metavar="URI", help="the lake's folder")
    parser.add_argument("--from", dest="start", metavar="TIME", help="stored at this time or later")
    parser.add_argument("--to", dest="end", metavar="TIME", help="stored before this time")
    add_choice(parser)
    found = parsed(parser, arguments)
    query = Query(
        tuple(found.subject), None if found.start is None else time_ms(found.start),
        None if found.end is None else time_ms(found.end), tuple(found.id), tuple(found.key), tuple(found.tag),
        found.where,
    )  # fmt: skip
    query.batch_ids()
    wanted = wanted_of(found, found.from_uri, query)
    session = spark_session(f"tidemill-replay-{wanted.run}")
    try:
        with on_spark(session) as workers:
            said = reported(wanted, lambda: replay.run(wanted, workers, lambda _: None))
    finally:
        session.stop()
    sys.stdout.write(json.dumps(said) + "\n")
    return 0


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Which messages, and what becomes of them."""
    for name, means in (("subject", "of these subjects"), ("tag", "with one of these tags")):
        parser.add_argument(f"--{name}", action="append", default=[], help=means)
    for name, means in (("id", "with one of these ids"), ("key", "with one of these keys")):
        parser.add_argument(f"--{name}", action="append", default=[], help=means)
    parser.add_argument("--where", default="", metavar="SQL", help="of which this is true, as priority > 3")
    add_target(parser)


def add_target(parser: argparse.ArgumentParser) -> None:
    """Where they go, and how."""
    parser.add_argument("--target", required=True, metavar="SUBJECT", help="the subject they are sent to")
    parser.add_argument("--group", help="the only group of it that gets them; all when absent")
    parser.add_argument("--rate", type=int, default=2000, help="messages a second at most; 0: as fast as they go")
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
    path = ("replays", wanted.run)
    known: dict[str, Any] = {"started_at": now_ms(), "dry_run": "true" if wanted.dry_run else "false"}
    tell(wanted.server, path, {**known, "state": RUNNING})
    try:
        counts = run()
    except Exception as error:
        tell(wanted.server, path, {**known, "state": FAILED, "ended_at": now_ms(), "error": error_of(error)})
        raise
    said = {**known, "state": SUCCEEDED, "ended_at": now_ms(), "counts": replay_counts(counts)}
    tell(wanted.server, path, said)
    return {"replay": wanted.run, **said, "dry_run": wanted.dry_run, "subjects": counts.subjects}
