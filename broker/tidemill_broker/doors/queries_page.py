"""What the OpenAPI page says of the paths in ``queries.py``."""

from __future__ import annotations

from tidemill_host.openapi import Part, ref, whole
from tidemill_wire import limits
from tidemill_wire.batch import MESSAGE_ID
from tidemill_wire.fields import NAME

NUMBER = "[0-9]{1,18}"
PLACE = f"{NUMBER}-{NUMBER}"
_TEXT: Part = {"type": "string"}
TIME: Part = {
    "anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "pattern": f"^{NUMBER}$"}]
}
_EXAMPLE: Part = {
    "id": "000102030405060708090a0b0c0d0e0f-0",
    "subject": "order.created",
    "sequence": 41,
    "stored_at": "2026-09-01T12:00:00.000Z",
    "created_at": "2026-09-01T11:59:59.998Z",
    "key": "o-1",
    "tags": ["vip"],
    "properties": {"trace": "a1"},
    "attempts": 0,
    "origin": None,
    "priority": 0,
    "body": "b25l",
    "text": "one",
}
_STATUSES = {
    "400": "the question is wrong, the detail says where",
    "404": "there is no such message or subject",
    "409": "`after` is of another question",
    "405": "the path is only read",
    "429": "too many questions wait",
    "500": "a file is damaged or missing, the detail names it",
}


def paths() -> dict[str, Part]:
    """The path items."""
    named = {"name": "subject", "in": "path", "required": True, "description": "the subject's name"}
    subject = {**named, "schema": {"type": "string", "pattern": f"^(?:{NAME.pattern})$"}}
    identity: Part = {
        "name": "id",
        "in": "path",
        "required": True,
        "description": "the message's id, as on its receipt",
    }
    identity["schema"] = {"type": "string", "pattern": f"^(?:{MESSAGE_ID.pattern})$"}
    return {
        "/v1/messages/{id}": _get("find_message", "A message by its id", "StoredMessage", [identity]),
        "/v1/messages": _get(
            "find_by_key",
            "Messages with a key, of all subjects",
            "StoredPage",
            [_key(required=True), *_paging(PLACE)],
        ),
        "/v1/subjects/{subject}/messages": _get(
            "browse",
            "Messages of a subject, all or those with a key; nothing is consumed",
            "StoredPage",
            [subject, _key(required=False), _sequence(), *_paging(f"{NUMBER}|{PLACE}")],
        ),
    }


def schemas() -> dict[str, Part]:
    """What those paths answer."""
    time: Part = {"type": ["string", "null"], "format": "date-time"}
    fields: dict[str, Part] = {
        "id": _TEXT,
        "subject": _TEXT,
        "sequence": {"type": "integer", "minimum": 0},
        "stored_at": time,
        "created_at": {
            **time,
            "description": "by the producer's clock; null when that said nothing sensible",
        },
        "key": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": _TEXT},
        "properties": {"type": ["object", "null"], "description": "null when they are no map"},
        "attempts": {
            "type": "integer",
            "description": "how often a copy had been given out before it was made",
        },
        "origin": {"type": ["string", "null"], "description": "where a copy comes from"},
        "priority": whole(0, limits.PRIORITY_MAX),
        "problem": {
            "type": ["string", "null"],
            "description": "what of it cannot be read, as its producer wrote it, and is left out here",
        },
        "body": {"type": "string", "contentEncoding": "base64"},
        "text": {"type": ["string", "null"], "description": "the body, when it is UTF-8"},
    }
    message: Part = {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }
    after: Part = {
        "type": ["string", "null"],
        "description": "give it as `after` for the next page; null when there is none. A page may be empty and not "
        "the last: an answer is bounded in work, too",
    }
    page: Part = {
        "type": "object",
        "properties": {"messages": {"type": "array", "items": ref("StoredMessage")}, "after": after},
        "required": ["messages", "after"],
        "additionalProperties": False,
    }
    return {"StoredMessage": message, "StoredPage": page}


def _get(name: str, summary: str, schema: str, parameters: list[Part]) -> Part:
    example = _EXAMPLE if schema == "StoredMessage" else {"messages": [_EXAMPLE], "after": None}
    good = {"schema": ref(schema), "example": example}
    responses: Part = {"200": {"description": summary, "content": {"application/json": good}}}
    for status, description in _STATUSES.items():
        responses[status] = {
            "description": description,
            "content": {"application/json": {"schema": ref("Error")}},
        }
    return {
        "get": {"operationId": name, "summary": summary, "parameters": parameters, "responses": responses}
    }


def _key(*, required: bool) -> Part:
    schema: Part = {"type": "string", "minLength": 1, "maxLength": limits.KEY_BYTES_MAX}
    return _parameter("key", "exactly this key", schema) | {"required": required}


def _sequence() -> Part:
    schema: Part = {"type": "string", "pattern": f"^{NUMBER}(?:-{NUMBER})?$"}
    return _parameter(
        "sequence", "from this sequence on, or from one to another, both included: 100-199", schema
    )


def _paging(after: str) -> list[Part]:
    number: Part = {"type": "integer", "minimum": 1, "maximum": limits.QUERY_MESSAGES_MAX}
    number["default"] = limits.QUERY_MESSAGES_DEFAULT
    return [
        _parameter("from", "stored then or later; a timestamp, or milliseconds since 1970", TIME),
        _parameter("to", "stored before then", TIME),
        _parameter("limit", "messages in one answer; large ones may be fewer", number),
        _parameter(
            "after",
            "what the page before this one said in `after`",
            {"type": "string", "pattern": f"^(?:{after})$"},
        ),
        _parameter("order", "what comes first", {"enum": ["oldest", "newest"], "default": "oldest"}),
    ]


def _parameter(name: str, description: str, schema: Part) -> Part:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}
