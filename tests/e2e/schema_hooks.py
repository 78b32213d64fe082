"""For schemathesis: what a schema cannot say of a request that is right.

A receive waits for nothing, or the run would be made of waiting. A transaction is the one that there is.
"""

from __future__ import annotations

import os
import re
from typing import Any

import schemathesis


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    body = case.body
    if case.operation.path.endswith("/receive") and isinstance(body, dict):
        wait_ms = body.get("wait_ms", 0)
        if type(wait_ms) in {int, float} and 0 <= wait_ms <= 60_000:
            body["wait_ms"] = 0
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
