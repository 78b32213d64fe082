"""What the OpenAPI page says of the paths in ``telling.py``."""

from __future__ import annotations

from typing import Any

from tidemill_host.openapi import Part, answers, error_answer, record, ref, whole
from tidemill_wire import limits

NUMBER = {"type": "string", "pattern": "^[0-9]{1,18}$"}
TEXT: Part = {"type": "string"}
WHO = {"broker": "g0-1", "group": "g0", "role": "slave"}
AT_MS = 1_795_000_000_000
TOLD = {
    "position": 4096, "at": AT_MS, "subject": "order.paid", "partition": "order.paid", "group": "billing",
    "consumer": "web-1", "number": 7, "action": "acked", "ranges": [0, 9],
}  # fmt: skip


def paths() -> dict[str, Part]:
    """The path items."""
    stand = {
        "operationId": "actions",
        "summary": "From where to where the action log may be read for an archive",
        "responses": answers(
            ref("ActionLog"),
            {**WHO, "first": 0, "next": 4224, "since": AT_MS},
            "It is this",
            (400, 410, 429, 500, 503),
        ),
    }
    subjects = {"type": "array", "items": {"type": "string", "maxLength": 101}}
    records = {
        "operationId": "action_records",
        "summary": "What was done with messages, as the action log has it",
        "parameters": [
            _query("from", NUMBER, "a position at which a record begins, the first by default"),
            _query("until", NUMBER, "a position behind the last record that is wanted"),
            _query("subject", subjects, "subjects, or patterns such as order.*; all when absent"),
        ],
        "responses": answers(
            ref("Actions"),
            {**WHO, "next": 4224, "unnamed": 0, "records": [TOLD]},
            f"What {limits.ACTIONS_BYTES_MAX} bytes of the log say at most; go on from `next`",
            (400, 429, 500, 503),
        )
        | {"410": error_answer(410, ref("Gone"))},
    }
    return {"/v1/actions": {"get": stand}, "/v1/actions/records": {"get": records}}


def _query(name: str, schema: Part, description: str) -> Part:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def schemas() -> dict[str, Part]:
    """What is answered."""
    who: dict[str, Any] = {"broker": TEXT, "group": TEXT, "role": TEXT}
    since = {"type": ["integer", "null"], "description": "when the first record that is kept was written"}
    log = record({**who, "first": whole(0), "next": whole(0), "since": since})
    ranges = {"type": "array", "items": whole(0), "description": "of pull sequences, firsts and lasts"}
    sequences = {"type": "array", "items": whole(0), "description": "firsts and lasts"}
    run = {
        "type": "array", "items": whole(0), "minItems": 4, "maxItems": 4,
        "description": "first pull sequence, first sequence, messages, attempts",
    }  # fmt: skip
    letter = {"type": ["integer", "null"], "description": "the first sequence of the copies"}
    said: dict[str, Any] = {
        "position": whole(0), "at": whole(0), "subject": TEXT, "partition": TEXT, "group": TEXT, "action": TEXT,
        "consumer": TEXT, "number": whole(0, description="of the consumer"), "ranges": ranges,
        "runs": {"type": "array", "items": run}, "until": {"type": "integer"}, "limit": {"type": "integer"},
        "sequences": sequences, "first": whole(0), "messages": whole(0), "letter": letter,
        "reason": TEXT, "error": TEXT, "place": TEXT,
    }  # fmt: skip
    always = ("position", "at", "subject", "partition", "group", "action")
    told = record(said, tuple(name for name in said if name not in always))
    unnamed = whole(0, description="records of groups whose names are gone from the log")
    return {
        "ActionLog": log,
        "Actions": record(
            {**who, "next": whole(0), "unnamed": unnamed, "records": {"type": "array", "items": told}}
        ),
    }
