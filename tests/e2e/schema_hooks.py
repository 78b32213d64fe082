"""For schemathesis: a receive that is right waits for nothing, or the run would be made of waiting."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    body = case.body
    if case.operation.path.endswith("/receive") and isinstance(body, dict):
        wait_ms = body.get("wait_ms", 0)
        if type(wait_ms) in {int, float} and 0 <= wait_ms <= 60_000:
            body["wait_ms"] = 0
