"""For schemathesis, at a locked port: whoever asks is let in where the tables say so, and nowhere else.

``RIGHTS`` names the paths that may answer to whoever asks, in JSON: ``METHOD PATH``, as the page has it. Any other has
to answer with one of ``REFUSALS``, whatever else is right or wrong in the request.
"""

from __future__ import annotations

import json
import os
from typing import Any

import schemathesis

import e2e.schema_hooks  # noqa: F401 what a schema cannot say holds here, too

RIGHTS = frozenset(json.loads(os.environ["RIGHTS"]))
REFUSALS = frozenset(json.loads(os.environ["REFUSALS"]))


@schemathesis.check
def shut_where_nothing_was_granted(_context: Any, response: Any, case: Any) -> None:
    method = case.method.upper()
    asked = f"{'GET' if method == 'HEAD' else method} {case.operation.path}"
    if asked in RIGHTS:
        return
    error = response.json().get("error", {})
    if response.status_code == 400 and error.get("code") == "http_error":
        return  # no HTTP that is known here, such as a path without end: refused before anybody reads a path
    assert response.status_code in REFUSALS, f"{asked} answered {response.status_code}: {response.text[:200]}"
    assert set(error) == {"code", "detail", "advice", "retryable"}, error
