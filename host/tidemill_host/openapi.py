"""The page that describes an HTTP port: each door describes its own paths, this puts them together.

A door gives *path items* as OpenAPI 3.1 knows them; the shape of errors, which all share, is in ``components`` here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from tidemill_wire.fields import NAME
from tidemill_wire.limits import DETAIL_CHARS_MAX

Part: TypeAlias = dict[str, Any]

_ERROR_TEXTS = {
    400: "the request is wrong, the detail says where",
    401: "nothing was shown that says who asks, where that is asked",
    403: "it was not granted to whoever asks",
    404: "there is no such thing",
    405: "the path takes other methods",
    408: "the body did not come in time",
    409: "it is not so any more: a lease ended, or there are too many of them",
    410: "it has expired",
    413: "the body or a message is too large",
    415: "the body is of a kind that is not known here",
    429: "too much at once",
    500: "a defect; the server's log has more",
    503: "not now; what stands in the way is in the detail",
}
EXAMPLE_ERROR: Part = {
    "error": {
        "code": "invalid_subject",
        "detail": "'a b' is no subject name",
        "advice": "use 1 to 100 characters of A-Z a-z 0-9 . _ -",
        "retryable": False,
    }
}


def ref(name: str) -> Part:
    """A schema by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def record(properties: Mapping[str, Part], optional: tuple[str, ...] = (), **more: Any) -> Part:
    """An object with these fields and no others."""
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "properties": dict(properties),
        **({"required": required} if required else {}),
        "additionalProperties": False,
        **more,
    }


def whole(low: int, high: int | None = None, **more: Any) -> Part:
    """A whole number."""
    return {"type": "integer", "minimum": low, **({} if high is None else {"maximum": high}), **more}


def pattern(expression: str, description: str, **more: Any) -> Part:
    """A text that matches as a whole."""
    return {"type": "string", "pattern": f"^(?:{expression})$", "description": description, **more}


def variable(name: str, description: str) -> Part:
    """A part of a path."""
    schema = pattern(NAME.pattern, description)
    return {"name": name, "in": "path", "required": True, "description": description, "schema": schema}


def header(name: str, description: str, expression: str, **more: Any) -> Part:
    """A field of the request's head, not required."""
    schema = pattern(expression, description, **more)
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def json_content(schema: Part, example: Any = None) -> Part:
    return {"application/json": {"schema": schema, **({} if example is None else {"example": example})}}


def answers(schema: Part, example: Any, description: str, errors: tuple[int, ...]) -> Part:
    """200 with a value, and errors by their status."""
    ok = {"description": description, "content": json_content(schema, example)}
    return {"200": ok, **{str(status): error_answer(status) for status in sorted({405, *errors})}}


def error_answer(status: int, schema: Part | None = None) -> Part:
    answer: Part = {
        "description": _ERROR_TEXTS[status],
        "content": json_content(schema or ref("Error"), None if schema else EXAMPLE_ERROR),
    }
    if status in {429, 503}:
        seconds = {"description": "seconds until it may work", "schema": whole(1)}
        answer["headers"] = {"Retry-After": seconds}
    if status == 405:
        allowed = {"description": "the methods there are", "schema": {"type": "string"}}
        answer["headers"] = {"Allow": allowed}
    return answer


def reading(name: str, summary: str, schema: Part, example: Any) -> Part:
    """A path that is only read and takes nothing."""
    operation = {
        "operationId": name,
        "summary": summary,
        "responses": answers(schema, example, summary, ()),
    }
    return {"get": operation}


def process_paths(serves: str) -> dict[str, Part]:
    """The paths that every service has; ``serves`` says what ``/readyz`` tells."""
    status = record({"status": {"type": "string"}})
    metrics = {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}}
    ready = reading("readyz", serves, status, {"status": "ready"})
    ready["get"]["responses"] |= {"503": error_answer(503)}
    return {
        "/healthz": reading("healthz", "Whether the process answers", status, {"status": "ok"}),
        "/readyz": ready,
        "/metrics": {
            "get": {
                "operationId": "metrics",
                "summary": "Numbers for Prometheus",
                "responses": {"200": metrics, "405": error_answer(405)},
            }
        },
        "/openapi.json": reading("openapi", "This page", {"type": "object"}, {"openapi": "3.1.0"}),
    }


def error_fields() -> Part:
    text = {"type": "string", "minLength": 1}
    detail = {**text, "maxLength": 2 * DETAIL_CHARS_MAX, "description": "what is wrong, in a sentence"}
    return {
        "error": record(
            {
                "code": {
                    **text,
                    "description": "the name of the error, for programs; docs/protocol.md has a table",
                },
                "detail": detail,
                "advice": {**text, "description": "what to do"},
                "retryable": {"type": "boolean", "description": "the same request may work later"},
            }
        )
    }


def assemble(
    paths: Iterable[Mapping[str, Part]], components: Iterable[Part], version: str, description: str
) -> Part:
    """The whole page. Two doors may share a path; each has its own methods there."""
    items: dict[str, Part] = {}
    for described in paths:
        for path, item in described.items():
            items[path] = {**items.get(path, {}), **{method: _locked(one) for method, one in item.items()}}
    known: Part = {}
    for named in (*components, {"Error": record(error_fields())}):
        known.update(named)
    return {
        "openapi": "3.1.0",
        "info": {"title": "tidemill", "version": version, "description": description},
        "servers": [{"url": "/"}],
        "paths": items,
        "components": {
            "schemas": known,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _locked(operation: Part) -> Part:
    """Where it is asked who somebody is, any path may answer so."""
    said: Part = operation.get("responses", {})
    return {**operation, "responses": {"401": error_answer(401), "403": error_answer(403), **said}}
