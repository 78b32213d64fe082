"""For schemathesis: what a schema cannot say of a request that is right.

A receive waits for nothing, or the run would be made of waiting. A message for later is for a time that may be, and
one that has a timer key is for later. What recurs does so at times that there are. A transaction is the one that there
is. Of a lane is read what there is.
"""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping
from typing import Any

import schemathesis

TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ].*")
CRON = re.compile(r"@[a-z]+|[^\s@]+( [^\s@]+){4}")
ZONE = re.compile(r"[A-Za-z0-9_+/-]{1,64}")
LANE = re.compile("%(25)?lane%")
LONG = re.compile(r"[0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+")


def near(said: Any, at: str, delay: str) -> None:
    """What is a time, or a duration, becomes one that is not too far."""
    if not isinstance(said, MutableMapping):
        return
    if isinstance(said.get(at), str) and TIME.fullmatch(said[at]):
        said[at] = "2027" + said[at][4:].replace("-02-29", "-02-28")
    if isinstance(said.get(delay), str) and LONG.fullmatch(said[delay]):
        said[delay] = "1h30m"


def timed(head: Any, body: Any) -> None:
    """What has a timer key, its own or that of the head, gets a time when nothing gives it one."""
    rows = body.get("messages") if isinstance(body, dict) else None
    said = [body, *(rows if isinstance(rows, list) else ())]
    keyed = any(isinstance(one, dict) and one.get("timer_key") for one in said)
    if not (keyed or head.get("Tidemill-Timer-Key")) or head.get("Tidemill-At") or head.get("Tidemill-Delay"):
        return
    if not (isinstance(body, dict) and ("delay" in body or "at" in body or "cron" in body)):
        head["Tidemill-Delay"] = "1h30m"


def recurring(head: Any, body: Any) -> None:
    """What is an expression, or the name of a zone, becomes one that there is."""
    if not isinstance(body, dict) or not isinstance(body.get("cron"), str):
        return
    if CRON.fullmatch(body["cron"]) and len(body["cron"]) <= 200:
        body["cron"] = "@daily"
    if isinstance(body.get("time_zone"), str) and ZONE.fullmatch(body["time_zone"]):
        body["time_zone"] = "UTC"
    head.pop("Tidemill-Dedup-Key", None)


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    body = case.body
    if case.operation.path.endswith("/receive") and isinstance(body, dict):
        wait_ms = body.get("wait_ms", 0)
        if type(wait_ms) in {int, float} and 0 <= wait_ms <= 60_000:
            body["wait_ms"] = 0
    if case.operation.path.endswith("/messages") and case.operation.method.upper() == "POST":
        near(case.headers, "Tidemill-At", "Tidemill-Delay")
        if case.headers.get("Tidemill-Delay") is not None:
            case.headers.pop("Tidemill-At", None)
        messages = body.get("messages") if isinstance(body, dict) else None
        for said in (body, *(messages if isinstance(messages, list) else ())):
            near(said, "at", "delay")
        timed(case.headers, body)
        recurring(case.headers, body)
    if case.operation.path.endswith("/reschedule"):
        near(body, "at", "delay")
    path = case.path_parameters
    if isinstance(path, dict) and re.fullmatch("[89a-f][0-9a-f]{15}", str(path.get("transaction", ""))):
        path["transaction"] = os.environ["TRANSACTION"] or path["transaction"]
    query = case.query
    lane = isinstance(path, dict) and LANE.match(str(path.get("partition", "")))
    if lane and isinstance(query, dict):
        query.pop("from", None)  # lanes begin at a number of their own: below it everything is gone
    if (
        case.operation.method.upper() == "GET"
        and isinstance(query, dict)
        and isinstance(query.get("after"), str)
    ):
        # A place to go on from is of the question that gave it: with a key it has a dash, else none.
        place = re.fullmatch("[0-9]{1,19}(-[0-9]{1,19})?", query["after"])
        if place and bool(place[1]) is not ("key" in query):
            del query["after"]
