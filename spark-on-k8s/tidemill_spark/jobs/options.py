"""Options that several commands have, and what people write in them."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from tidemill_spark.errors import WrongRequest
from tidemill_spark.queries import Query
from tidemill_spark.ranges import Prefers

SERVER_DEFAULT = "127.0.0.1:7401"
PREFERS: dict[str, Prefers] = {"Slave": "slave", "Master": "master"}
AGES = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
AGE = re.compile(r"(\d+)([smhd])")


def now_ms() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000_000


def time_ms(written: str) -> int:
    """A time with its zone, as 2027-01-01T09:00Z; one without is of UTC."""
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        raise WrongRequest(f"{written[:60]!r} is no time: write one such as 2027-01-01T09:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def age_ms(written: str) -> int:
    """How long ago: 90d, 12h."""
    found = AGE.fullmatch(written)
    if found is None:
        raise WrongRequest(f"{written[:60]!r} is no age: write one such as 12h or 365d")
    return int(found[1]) * AGES[found[2]] * 1000


def add_server(parser: argparse.ArgumentParser) -> None:
    """Of whom the queue is asked."""
    parser.add_argument(
        "--server",
        default=os.environ.get("TIDEMILL_SERVER") or SERVER_DEFAULT,
        metavar="HOST:PORT",
        help="the HTTP port of meta or of a lone broker; else TIDEMILL_SERVER",
    )


def add_read_from(parser: argparse.ArgumentParser) -> None:
    """Which brokers are read."""
    parser.add_argument(
        "--read-from", choices=tuple(PREFERS), default="Slave", help="which brokers, where there are such"
    )


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Who works."""
    parser.add_argument(
        "--workers", type=int, metavar="N", help="tasks at once; as many as there are processors"
    )
    parser.add_argument("--spark", action="store_true", help="in a Spark session, and not in plain processes")


def add_query(parser: argparse.ArgumentParser) -> None:
    """Which messages."""
    parser.add_argument(
        "--subject", action="append", default=[], metavar="S", help="of these subjects; all when absent"
    )
    parser.add_argument("--id", action="append", default=[], metavar="ID", help="with one of these ids")
    parser.add_argument("--key", action="append", default=[], metavar="K", help="with one of these keys")
    parser.add_argument("--tag", action="append", default=[], metavar="T", help="with one of these tags")
    parser.add_argument("--from", dest="start", metavar="TIME", help="stored at this time or later")
    parser.add_argument("--to", dest="end", metavar="TIME", help="stored before this time")
    parser.add_argument(
        "--where", default="", metavar="SQL", help="of which this is true, as priority > 3 AND hour = 9"
    )


def query_of(found: argparse.Namespace) -> Query:
    """What was asked for; checked as far as it can be without a lake."""
    query = Query(
        tuple(found.subject),
        None if found.start is None else time_ms(found.start),
        None if found.end is None else time_ms(found.end),
        tuple(found.id),
        tuple(found.key),
        tuple(found.tag),
        found.where,
    )
    query.batch_ids()
    return query


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """What the arguments say; a mistake ends the process, as argparse has it."""
    return parser.parse_args(list(arguments))
