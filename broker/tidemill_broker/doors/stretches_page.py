"""What the OpenAPI page says of the paths in ``stretches.py``."""

from __future__ import annotations

from typing import Any

from tidemill_broker.doors.gateway_letters import SEQUENCE_MAX
from tidemill_broker.doors.queries_page import TIME
from tidemill_host.openapi import Part, answers, error_answer, error_fields, record, ref, whole
from tidemill_wire import limits

NUMBER = {"type": "string", "pattern": "^[0-9]{1,18}$"}
TEXT: Part = {"type": "string"}
WHO = {"broker": "g0-1", "group": "g0", "role": "slave"}
ROW = {"subject": "order.paid", "partition": "order.paid", "first": 0, "next": 3, "bytes": 512}


def paths() -> dict[str, Part]:
    """The path items."""
    partition = {
        "name": "partition", "in": "path", "required": True, "schema": {"type": "string", "maxLength": 300},
        "description": "a subject, a further partition of it, or a lane",
    }  # fmt: skip
    span = [
        _query("from", NUMBER, "a sequence, the first by default"),
        _query("until", NUMBER, "a sequence behind the last one that is wanted"),
    ]
    size = _query("size", NUMBER, f"how many bytes at most; never more than {limits.RANGE_BYTES_MAX}")
    batches = answers({}, None, "", (400, 404, 410, 429, 500, 503))
    batches |= _gone()
    batches["200"] = {
        "description": "whole batches as they lie in the log",
        "headers": {"Tidemill-Next": {"description": "the sequence to go on from", "schema": whole(0)}},
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
    subjects = {"type": "array", "items": {"type": "string", "maxLength": 101}}
    listed = {
        "operationId": "ranges",
        "summary": "Partitions, and from where to where they may be read for an archive",
        "parameters": [
            _query("subject", subjects, "subjects, or patterns such as order.*; all when absent"),
            _query("at", TIME, "a time of which each partition's first sequence is asked for"),
        ],
        "responses": answers(
            ref("Ranges"), {**WHO, "partitions": [ROW]}, "They are these", (400, 410, 429, 500, 503)
        ),
    }
    cut = {
        "operationId": "range_pieces",
        "summary": "Parts of a partition that can be read side by side",
        "parameters": [partition, *span],
        "responses": answers(
            ref("Pieces"),
            {**WHO, "pieces": [[0, 3, 512, 1_795_000_000_000]]},
            "They are these",
            (400, 404, 410, 503),
        )
        | _gone(),
    }
    given = {
        "operationId": "range_batches",
        "summary": "Batches of a partition, raw",
        "parameters": [partition, *span, size],
        "responses": batches,
    }
    path = "/v1/ranges"
    return {
        path: {"get": listed},
        f"{path}/batches": {"post": _together()},
        f"{path}/{{partition}}": {"get": cut},
        f"{path}/{{partition}}/batches": {"get": given},
    }


def _gone() -> Part:
    """What retention took: with where the partition begins now, when that is known."""
    return {"410": error_answer(410, ref("Gone"))}


def _together() -> Part:
    bound = whole(0, SEQUENCE_MAX)
    one_span = record({"partition": {"type": "string", "maxLength": 300}, "from": bound, "until": bound})
    wanted = record({"spans": {"type": "array", "items": one_span, "minItems": 1, "maxItems": limits.RANGE_SPANS_MAX},
                     "size": whole(1, limits.RANGE_BYTES_MAX)}, ("size",))  # fmt: skip
    woven = answers({}, None, "", (400, 404, 408, 410, 413, 415, 429, 500, 503))
    woven |= _gone()
    woven["200"] = {
        "description": "two numbers, partitions and batches; where each partition goes on; of which each batch is; "
        "and the batches as they lie in the log",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
    example = {"spans": [{"partition": "order.paid", "from": 0, "until": 3}]}
    return {
        "operationId": "range_batches_together",
        "summary": "Batches of several partitions, raw",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": wanted, "example": example}},
        },
        "responses": woven,
    }


def _query(name: str, schema: Part, description: str) -> Part:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def schemas() -> dict[str, Part]:
    """What is answered."""
    who: dict[str, Any] = {"broker": TEXT, "group": TEXT, "role": TEXT}
    sequence = whole(0, description="the sequence behind the last message that may be read")
    row = record(
        {
            "subject": TEXT,
            "partition": TEXT,
            "first": whole(0),
            "next": sequence,
            "bytes": whole(0),
            "at": whole(0, description="the first sequence of the time that was asked for"),
        },
        ("at",),
    )
    piece = {
        "type": "array", "items": whole(0), "minItems": 4, "maxItems": 4,
        "description": "first sequence, the one behind the last, about how many bytes, last stored at",
    }  # fmt: skip
    begins = whole(0, description="the first sequence that there is")
    return {
        "Gone": record({**error_fields(), "first": begins}, ("first",)),
        "Ranges": record({**who, "partitions": {"type": "array", "items": row}}),
        "Pieces": record({**who, "pieces": {"type": "array", "items": piece}}),
    }
