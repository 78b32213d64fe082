"""What the OpenAPI page of a broker in a group says of the paths in ``replicas.py`` and ``segments.py``."""

from __future__ import annotations

from typing import Any

from tidemill_host.openapi import Part, answers, json_content, reading, record, ref, whole
from tidemill_wire import limits

NUMBER = {"type": "string", "pattern": "^[0-9]{1,18}$"}
ERRORS = (400, 408, 409, 413, 415, 429, 500, 503)
EPOCH_MAX, VERSION_MAX = (1 << 32) - 1, (1 << 63) - 1
ENDS = {"message": 4096, "action": 512}
STANDING: Part = {
    "name": "g0-0", "role": "master", "epoch": 1, "version": 0, "begun": 1, "master": "g0-0", "ends": ENDS,
    "committed": ENDS, "wish": None, "slaves": {"g0-1": ENDS},
}  # fmt: skip
APPOINTMENT: Part = {
    "group": "g0", "epoch": 1, "master": "g0-0", "replicas": ["g0-0", "g0-1"], "in_sync": ["g0-0", "g0-1"],
    "version": 0, "addresses": {"g0-0": "10.0.0.1:7400", "g0-1": "10.0.0.2:7400"},
}  # fmt: skip


def paths() -> dict[str, Part]:
    """The path items."""
    obeyed, left = record({"obeyed": {"const": True}}), record({"left": {"const": True}})
    standing = reading("standing", "What this broker is in its group", ref("Standing"), STANDING)
    standing["get"]["responses"] = answers(ref("Standing"), STANDING, "How it stands", (503,))
    return {
        "/v1/replication": standing,
        "/v1/replication/wish": {
            "post": {
                "operationId": "wish",
                "summary": "The same, for whoever grants what is wished: the master waits for those from now on",
                "responses": answers(ref("Standing"), STANDING, "How it stands", ERRORS),
            }
        },
        "/v1/replication/appointment": _told(
            "appoint", "Be what meta decided", ref("BrokerAppointment"), APPOINTMENT, (obeyed, {"obeyed": True})
        ),
        "/v1/replication/handover": _told(
            "hand_over", "Take no more work, and answer when that slave has all; then it is to be appointed",
            {"type": "object", "properties": {"to": _name()}, "required": ["to"]}, {"to": "g0-1"},
            (left, {"left": True}), (404,),
        ),
        "/v1/segments": reading(
            "segments", "Segments of both logs, and how far they are committed", ref("Segments"),
            {"message": [{"base": 0, "end": 4096}], "action": [{"base": 0, "end": 512}]},
        ),
        "/v1/segments/{log}/{base}": {"get": _range()},
    }  # fmt: skip


def _told(
    name: str, summary: str, body: Part, example: Part, answer: tuple[Part, Any], more: tuple[int, ...] = ()
) -> Part:
    operation = {
        "operationId": name,
        "summary": summary,
        "requestBody": {"required": True, "content": json_content(body, example)},
        "responses": answers(*answer, summary, (*ERRORS, *more)),
    }
    return {"post": operation}


def _range() -> Part:
    log = {
        "name": "log", "in": "path", "required": True, "description": "which of the two",
        "schema": {"enum": ["message", "action"]},
    }  # fmt: skip
    base = {
        "name": "base", "in": "path", "required": True, "description": "where the segment begins",
        "schema": NUMBER,
    }  # fmt: skip
    most = limits.PULL_BYTES_MAX
    responses = answers({}, None, "", (400, 404))
    responses["200"] = {
        "description": "the bytes as they lie there, fewer at the end; a batch or record may be cut",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
    return {
        "operationId": "segment",
        "summary": "Bytes of a segment",
        "parameters": [
            log, base, _query("from", "a position in the log, the segment's first by default"),
            _query("size", f"how many bytes at most; never more than {most}, which is the default"),
        ],
        "responses": responses,
    }  # fmt: skip


def _query(name: str, description: str) -> Part:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": NUMBER}


def _name() -> Part:
    return {"type": "string", "maxLength": 200, "description": "a broker's name"}


def schemas() -> dict[str, Part]:
    """What is said and answered."""
    ends = record({"message": whole(0), "action": whole(0)}, description="positions in both logs")
    names = {"type": "array", "items": {"type": "string"}, "maxItems": limits.REPLICAS_MAX}
    addresses = {
        "type": "object", "additionalProperties": {"type": "string"}, "maxProperties": limits.REPLICAS_MAX,
        "description": "where each replica's data port is, as HOST:PORT",
    }  # fmt: skip
    row = record({"base": whole(0), "end": whole(0, description="as far as it is committed")})
    rows = {"type": "array", "items": row}
    appointment: dict[str, Part] = {
        "group": {"type": "string", "maxLength": 100},
        "epoch": whole(1, EPOCH_MAX),
        "master": {**_name(), "description": "one of those in sync"},
        "replicas": names,
        "in_sync": {**names, "description": "some of the replicas"},
        "version": whole(0, VERSION_MAX),
        "addresses": addresses,
    }
    required = [name for name in appointment if name != "addresses"]
    return {
        "Ends": ends,
        "Standing": record(
            {
                "name": _name(),
                "role": {"enum": ["master", "leaving", "slave", "fenced"]},
                "epoch": whole(0),
                "version": whole(0),
                "begun": whole(0, description="the newest epoch in its log"),
                "master": {**_name(), "description": "empty: nobody said"},
                "ends": ref("Ends"),
                "committed": ref("Ends"),
                "wish": {"type": ["array", "null"], "items": {"type": "string"}, "description": "null: all is well"},
                "slaves": {"type": "object", "additionalProperties": ref("Ends")},
            }
        ),
        "BrokerAppointment": {"type": "object", "properties": appointment, "required": required},
        "Segments": record({"message": rows, "action": rows}),
    }  # fmt: skip
