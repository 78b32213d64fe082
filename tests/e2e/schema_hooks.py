"""For schemathesis: what a schema cannot say of a request that is right.

A receive waits for nothing, or the run would be made of waiting. A message for later is for a time that may be.
A transaction is the one that there is.
"""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping
from typing import Any

import schemathesis

TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ].*")
LONG = re.compile(r"[0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+")


def near(said: Any, at: str, delay: str) -> None:
    """What is a time, or a duration, becomes one that is not too far."""
    if not isinstance(said, MutableMapping):
        return
    if isinstance(said.get(at), str) and TIME.fullmatch(said[at]):
        said[at] = "2027" + said[at][4:].replace("-02-29", "-02-28")
    if isinstance(said.get(delay), str) and LONG.fullmatch(said[delay]):
        said[delay] = "1h30m"


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
    path = case.path_parameters
    if isinstance(path, dict) and re.fullmatch("[89a-f][0-9a-f]{15}", str(path.get("transaction", ""))):
        path["transaction"] = os.environ["TRANSACTION"] or path["transaction"]
    query = case.query
    if (
        case.operation.method.upper() == "GET"
        and isinstance(query, dict)
        and isinstance(query.get("after"), str)
    ):
        # A place to go on from is of the question that gave it: with a key it has a dash, else none.
        place = re.fullmatch("[0-9]{1,19}(-[0-9]{1,19})?", query["after"])
        if place and bool(place[1]) is not ("key" in query):
            del query["after"]
