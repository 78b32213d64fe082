"""What a job says of itself: a line of JSON on its output, and the same to meta, from where the operator reads it.

Meta may be away while a job runs: what was committed is committed, the report is tried some times and then left out,
with a line on standard error; the next run tells the same watermarks.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from tidemill_spark.archive import Totals
from tidemill_spark.commits import Partition
from tidemill_spark.replay import Counts

TRIES = 5
PAUSE_S = 1.0
TIMEOUT_S = 10.0
ERROR_CHARS_MAX = 1000
RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"


def archive_counts(totals: Totals) -> dict[str, int]:
    """What a run did, in numbers."""
    return {
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


def marks_of(watermarks: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """By broker group and partition, as meta has them."""
    found: dict[str, dict[str, int]] = {}
    for place, mark in sorted(watermarks.items()):
        found.setdefault(place.broker_group, {})[place.name] = mark
    return found


def error_of(error: BaseException) -> str:
    """In one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:ERROR_CHARS_MAX]


def tell(server: str, path: tuple[str, ...], said: Mapping[str, Any]) -> bool:
    """PUT it to whoever of meta's replicas answers. A lone broker has no meta: nobody is told."""
    target = "/".join(("/v1", *(quote(part, safe="") for part in path)))
    problem = ""
    for attempt in range(TRIES):
        for place in filter(None, server.split(",")):
            try:
                status, body = _put(place, target, said)
            except (OSError, http.client.HTTPException) as error:
                problem = f"{place}: {error}"
                continue
            if status == http.client.NOT_FOUND:
                return False
            if status < http.client.BAD_REQUEST:
                return True
            problem = f"{place} answers {status}: {body[:200].decode(errors='replace')}"
        if attempt + 1 < TRIES:
            time.sleep(PAUSE_S)
    sys.stderr.write(f"tidemill: meta was not told of {'/'.join(path)} ({problem}): the next run tells it\n")
    return False


def _put(place: str, path: str, said: Mapping[str, Any]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(place, timeout=TIMEOUT_S)
    try:
        connection.request("PUT", path, json.dumps(said), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
