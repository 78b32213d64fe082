"""The commands of ``tidemill archive``. Results go to standard output, all else to standard error.

Exit codes: 0 done, 1 it did not work, or what was asked for is not so, 2 it was asked for in a wrong way.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

from tidemill.errors import TidemillError
from tidemill_spark import (
    action_archive,
    action_reconciling,
    archive,
    finding,
    histories,
    reconciling,
    replay,
    upkeep,
)
from tidemill_spark.errors import ArchiveError, WrongRequest
from tidemill_spark.jobs import archive as archive_job
from tidemill_spark.jobs import replay as replay_job
from tidemill_spark.jobs.options import add_query, add_server, add_workers, age_ms, now_ms, query_of, time_ms
from tidemill_spark.jobs.screen import Progress, say, show, show_history
from tidemill_spark.lake import Lake
from tidemill_spark.workers import Workers, local_conf, on_spark, processes, spark_session

DONE, FAILED, USAGE = 0, 1, 2
SHOWN_DEFAULT = 20
OUTPUTS = ("text", "json")
NOTHING = "nothing is archived at {}: name what `tidemill archive run --to` was given"

Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str]) -> int:
    """Run one of them; its exit code."""
    found = parser().parse_args(list(arguments))
    command: Command = found.command
    try:
        return command(found)
    except WrongRequest as error:
        say(str(error))
        return USAGE
    except (ArchiveError, TidemillError, FileNotFoundError, ConnectionError) as error:
        say(str(error))
        return FAILED
    except KeyboardInterrupt:
        say("interrupted: what was committed, or answered, stays; run it again for the rest")
        return FAILED


class Parser(argparse.ArgumentParser):
    """What is wrong is one sentence, as with all other commands."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"tidemill: {message} (see `{self.prog} --help`)\n")


def parser() -> argparse.ArgumentParser:
    whole = Parser("tidemill archive", description="Messages in files, and out of them again.")
    commands = whole.add_subparsers(required=True, metavar="COMMAND")
    for add in (
        _add_run,
        _add_find,
        _add_sql,
        _add_replay,
        _add_reconcile,
        _add_compact,
        _add_expire,
        _add_status,
    ):
        add(commands)
    return whole


def _add(commands: Any, name: str, command: Command, means: str, uri: str = "uri") -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=means, description=means)
    made.set_defaults(command=command)
    if uri == "uri":
        made.add_argument("uri", metavar="URI", help="the archive: a folder, hdfs://…, s3a://…")
    made.add_argument("--output", "-o", choices=OUTPUTS, default="text", help="for people, or JSON lines")
    return made


def _add_run(commands: Any) -> None:
    made = _add(commands, "run", _run, "Archive what there is and is not archived yet.", uri="")
    add_server(made)
    add_workers(made)
    made.add_argument("--subject", action="append", required=True, metavar="S", help="a subject, or order.*")
    made.add_argument("--to", required=True, metavar="URI", help="the archive: a folder, hdfs://…, s3a://…")
    made.add_argument("--name", default="archive", help="what meta knows it by")
    made.add_argument("--compression", choices=("Zstd", "Snappy", "None"), default="Zstd")
    made.add_argument(
        "--safety-lag-seconds", type=int, default=0, help="what is younger is left for the next run"
    )
    made.add_argument("--max-span-seconds", type=int, help="how much time is archived at most")
    made.add_argument("--without-actions", action="store_true", help=archive_job.WITHOUT_ACTIONS)


def _add_find(commands: Any) -> None:
    made = _add(
        commands, "find", _find, "Find archived messages by id, key, tag, time or a predicate of SQL."
    )
    add_query(made)
    made.add_argument("--limit", "-n", type=int, default=SHOWN_DEFAULT, help="show so many at most")
    made.add_argument(
        "--history", action="store_true", help="who got each of them when, which try, and what came of it"
    )


def _add_sql(commands: Any) -> None:
    made = _add(commands, "sql", _sql, "Ask the tables messages and actions, by SQL.")
    made.add_argument("text", metavar="SELECT", help="as SELECT key, count(*) FROM messages GROUP BY key")


def _add_replay(commands: Any) -> None:
    made = _add(commands, "replay", _replay, "Send archived messages again, to a subject or one group of it.")
    add_server(made)
    add_workers(made)
    add_query(made)
    replay_job.add_target(made)


def _add_reconcile(commands: Any) -> None:
    made = _add(commands, "reconcile", _reconcile, "Compare an archive with what brokers have.")
    add_server(made)
    add_workers(made)
    made.add_argument("--subject", action="append", default=[], metavar="S", help="of these subjects")


def _add_compact(commands: Any) -> None:
    made = _add(commands, "compact", _compact, "Merge the small files of each hour.")
    add_workers(made)
    made.add_argument("--compression", choices=("Zstd", "Snappy", "None"), default="Zstd")
    made.add_argument("--target-bytes", type=int, default=upkeep.TARGET_BYTES, help="how large files become")


def _add_expire(commands: Any) -> None:
    made = _add(
        commands, "expire", _expire, "Take out what is old, and delete files that nobody reads any more."
    )
    made.add_argument("--older-than", metavar="AGE", help="stored so long ago, as 365d")
    made.add_argument("--before", metavar="TIME", help="or stored before this time")
    made.add_argument("--subject", action="append", default=[], metavar="S", help="of these subjects")


def _add_status(commands: Any) -> None:
    made = _add(commands, "status", _status, "Say how far an archive has come, and what is in it.")
    made.add_argument("--files", action="store_true", help="the files that are in it, one a line")


@contextmanager
def _workers(found: argparse.Namespace, name: str) -> Generator[Workers]:
    if not found.spark:
        with processes(found.workers) as workers:
            yield workers
        return
    session = spark_session(f"tidemill-{name}", local_conf(found.workers))
    try:
        with on_spark(session) as workers:
            yield workers
    finally:
        session.stop()


def _run(found: argparse.Namespace) -> int:
    span = found.max_span_seconds
    wanted = archive.Wanted(
        found.server, found.to, tuple(found.subject), found.name, found.compression, found.safety_lag_seconds * 1000,
        None if span is None else span * 1000,
    )  # fmt: skip
    with _workers(found, "archive") as workers, Progress("archive") as progress:
        said = archive_job.reported(
            wanted,
            "",
            partial(archive.run, wanted, workers, now_ms),
            None if found.without_actions else partial(action_archive.run, wanted, workers, now_ms),
            progress.archived,
        )
    if found.output == "json":
        sys.stdout.write(json.dumps(said) + "\n")
    else:
        counts = said["counts"]
        sys.stdout.write(
            f"{counts['messages']:,} messages archived, {counts['read_bytes']:,} bytes read, "
            f"{counts['written_bytes']:,} written in {counts['files']:,} files\n"
        )
        if counts["missing"]:
            say(f"{counts['missing']:,} messages had expired at the brokers before they were archived")
        if not found.without_actions:
            _say_actions(counts)
    return DONE


def _say_actions(counts: Mapping[str, int]) -> None:
    sys.stdout.write(
        f"{counts['actions']:,} actions archived, {counts['actions_written_bytes']:,} bytes written\n"
    )
    if counts["actions_missing_bytes"]:
        size = counts["actions_missing_bytes"]
        say(f"{size:,} bytes of the brokers' action logs were dropped before they were archived")
    if counts["actions_unnamed"]:
        number = counts["actions_unnamed"]
        say(f"{number:,} actions are of groups that are gone, and whose names the log has not any more")


def _find(found: argparse.Namespace) -> int:
    if found.history:
        return _find_histories(found)
    shown = 0
    for table in finding.find(Lake.at(found.uri), query_of(found)):
        some = table.slice(0, found.limit - shown)
        show(some, found.output, head=shown == 0)
        shown += some.num_rows
        if shown >= found.limit:
            break
    if not shown:
        _say_none(found.uri)
    return DONE if shown else FAILED


def _say_none(uri: str) -> None:
    """A place that was mistyped is no archive without such a message."""
    say("no archived message is like that" if Lake.at(uri).state.number else NOTHING.format(uri))


def _find_histories(found: argparse.Namespace) -> int:
    shown = 0
    for history in histories.histories(Lake.at(found.uri), query_of(found), found.limit):
        show_history(history, found.output)
        shown += 1
    if not shown:
        _say_none(found.uri)
    return DONE if shown else FAILED


def _sql(found: argparse.Namespace) -> int:
    show(finding.sql(Lake.at(found.uri), found.text), found.output)
    return DONE


def _replay(found: argparse.Namespace) -> int:
    wanted = replay_job.wanted_of(found, found.uri, query_of(found))
    with _workers(found, "replay") as workers, Progress("replay") as progress:
        said = replay_job.reported(wanted, lambda: replay.run(wanted, workers, progress.resent))
    if found.output == "json":
        sys.stdout.write(json.dumps(said) + "\n")
        return DONE
    done = "would be sent" if wanted.dry_run else "sent"
    counts = said["counts"]
    sys.stdout.write(f"{counts['messages']:,} messages {done}, {counts['bytes']:,} bytes of bodies\n")
    for subject, rows in sorted(said["subjects"].items()):
        sys.stdout.write(f"  {subject}: {rows:,}\n")
    return DONE


def _reconcile(found: argparse.Namespace) -> int:
    with _workers(found, "reconcile") as workers:
        compared = reconciling.reconcile(found.server, Lake.at(found.uri), workers, found.subject)
        actions = action_reconciling.reconcile_actions(found.server, found.uri, workers, found.subject)
    rows = reconciling.by_partition(compared)
    done = [one.row() for one in actions]
    if found.output == "json":
        sys.stdout.writelines(json.dumps(row) + "\n" for row in (*rows, *done))
    else:
        for row in rows:
            what = f"{row['broker_group']}/{row['partition']}: {row['lake']:,} messages"
            sys.stdout.write(f"{what}, {_difference(row)}\n")
        for row in done:
            what = f"{row['broker_group']}/{row['subject']}: {row['lake']:,} actions from {row['from']:,} of the log on"
            sys.stdout.write(f"{what}, {_difference(row)}\n")
    return DONE if all(row["equal"] for row in (*rows, *done)) else FAILED


def _difference(row: Mapping[str, Any]) -> str:
    differing = {name: row[name] for name in ("lost", "strange", "doubled", "different") if name in row}
    return "equal" if row["equal"] else f"differs: {json.dumps(differing)}"


def _compact(found: argparse.Namespace) -> int:
    lake, sizes = Lake.at(found.uri), (found.compression, found.target_bytes)
    with _workers(found, "compact") as workers:
        done = upkeep.compact(lake, workers, now_ms, *sizes)
        other = upkeep.compact(histories.actions_of(lake), workers, now_ms, *sizes, upkeep.merged_actions)
    sys.stdout.write(f"{done.merged:,} files became {done.made:,}, with {done.rows:,} messages\n")
    sys.stdout.write(f"{other.merged:,} files became {other.made:,}, with {other.rows:,} actions\n")
    return DONE


def _expire(found: argparse.Namespace) -> int:
    lake = Lake.at(found.uri)
    if found.older_than and found.before:
        raise WrongRequest("--older-than and --before exclude each other: give one of them")
    for one, what in ((lake, "messages"), (histories.actions_of(lake), "actions")):
        gone: list[Any] = []
        if found.older_than or found.before:
            before_ms = time_ms(found.before) if found.before else now_ms() - age_ms(found.older_than)
            gone = upkeep.expire(one, before_ms, now_ms(), found.subject)
        swept = one.sweep(now_ms())
        rows = sum(file.rows for file in gone)
        sys.stdout.write(f"{rows:,} {what} in {len(gone):,} files taken out; {swept:,} objects deleted\n")
    return DONE


def _status(found: argparse.Namespace) -> int:
    lake = Lake.at(found.uri)
    if not lake.state.number:
        say(NOTHING.format(found.uri))
        return FAILED
    actions = histories.actions_of(lake)
    files, others = lake.files(), actions.files()
    if found.files:
        sys.stdout.writelines(f"{lake.store.uri}/{one.name}\n" for one in files)
        return DONE
    said: dict[str, Any] = {
        "uri": lake.store.uri,
        "commits": lake.state.number,
        "messages": sum(one.rows for one in files),
        "bytes": sum(one.size for one in files),
        "files": len(files),
        "missing": lake.state.missing,
        "watermarks": archive.watermark_rows(dict(lake.archived())),
        "actions": {
            "rows": sum(one.rows for one in others),
            "bytes": sum(one.size for one in others),
            "files": len(others),
            "positions": archive.watermark_rows(dict(actions.archived())),
        },
    }
    if found.output == "json":
        sys.stdout.write(json.dumps(said) + "\n")
        return DONE
    sys.stdout.write(
        f"{said['messages']:,} messages in {len(files):,} files of {said['bytes']:,} bytes, "
        f"{lake.state.number:,} commits\n"
    )
    for place, mark in sorted(lake.archived().items()):
        sys.stdout.write(f"  {place.broker_group}/{place.name}: up to {mark:,}\n")
    sys.stdout.write(f"{said['actions']['rows']:,} actions in {len(others):,} files\n")
    for place, mark in sorted(actions.archived().items()):
        sys.stdout.write(f"  {place.broker_group}/{place.subject}: up to {mark:,} of the action log\n")
    return DONE
