"""What the page says of grants and tokens."""

from __future__ import annotations

from typing import Any

from tidemill_host.openapi import Part, answers, json_content, pattern, record, whole
from tidemill_meta.doors.schemas import COUNT, TEXT, many
from tidemill_wire.access import Operation
from tidemill_wire.fields import NAME
from tidemill_wire.grant_specs import MATCH_PATTERN
from tidemill_wire.granted import ITEMS_MAX, QUOTA_BOUNDS, WHO

ERRORS = (400, 404, 408, 409, 413, 415, 503)
GRANT_EXAMPLE = {
    "grant": "shop", "principals": ["token:shop"],
    "permissions": [{"operations": ["Consume", "Send"], "subjects": ["order.*"]}], "version": 1,
}  # fmt: skip
TOKEN_EXAMPLE = {
    "token": "2430a0f9469f1bed",
    "who": "token:shop",
    "created_ms": 1_780_000_000_000,
    "expires_ms": 0,
}


def paths() -> dict[str, Part]:
    """Those of ``access.py`` that people use."""
    patterns = pattern(MATCH_PATTERN, "a name, or the beginning of names and a *")
    whom = pattern(
        f"{WHO.pattern}|[!-9;-~]{{1,253}}", "token:NAME, certificate:NAME; without a kind a token's"
    )
    permission = record(
        {
            "subjects": _some(patterns), "groups": {"type": "array", "items": patterns, "maxItems": ITEMS_MAX},
            "operations": _some({"enum": [one.value for one in Operation]}),
        },
        ("groups",),
    )  # fmt: skip
    quota = record({name: whole(*bounds) for name, bounds in QUOTA_BOUNDS.items()}, tuple(QUOTA_BOUNDS))
    quota["description"] = "messages and bytes a second, connections, and messages in flight, at each service"
    asked = record({"principals": _some(whom), "permissions": _some(permission), "quota": quota}, ("quota",))
    shown = {"principals": many(TEXT), "permissions": many({"type": "object"}), "version": COUNT}
    grant = record({"grant": TEXT, **shown, "quota": quota}, ("quota",))
    row = {"token": TEXT, "who": TEXT, "created_ms": COUNT, "expires_ms": COUNT}
    wanted = record({"who": whom, "expires_seconds": whole(0, 10 * 366 * 24 * 3600)}, ("expires_seconds",))
    made = {**TOKEN_EXAMPLE, "secret": "shown-this-once-and-never-again-to-anybody"}
    gone = record({"removed": TEXT})
    return {
        "/v1/access/grants": {"get": _asked("grants", "Who may do what", many(grant), [GRANT_EXAMPLE])},
        "/v1/access/grants/{grant}": {
            "put": _asked("setGrant", "Grant something", grant, GRANT_EXAMPLE, body=asked, name="grant"),
            "delete": _asked("removeGrant", "Take a grant back", gone, {"removed": "shop"}, name="grant"),
        },
        "/v1/access/tokens": {
            "get": _asked("tokens", "The tokens there are", many(record(row)), [TOKEN_EXAMPLE]),
            "post": _asked(
                "createToken",
                "Make a token, which is shown once",
                record({**row, "secret": TEXT}),
                made,
                body=wanted,
            ),
        },
        "/v1/access/tokens/{token}": {
            "put": _asked(
                "setToken",
                "Let a token hold that was made elsewhere",
                record(row),
                TOKEN_EXAMPLE,
                body=record({"who": whom, "digest": pattern("[0-9a-f]{64}", "the SHA-256 of the token")}),
                name="token",
            ),
            "delete": _asked("revokeToken", "Let a token hold no more", gone, {"removed": "0"}, name="token"),
        },
    }


def _some(items: Part) -> Part:
    return {"type": "array", "items": items, "minItems": 1, "maxItems": ITEMS_MAX}


def _asked(
    operation: str, summary: str, schema: Part, example: Any, *, body: Part | None = None, name: str = ""
) -> Part:
    variable = {"name": name, "in": "path", "required": True, "schema": pattern(NAME.pattern, "its name")}
    return {
        "operationId": operation,
        "summary": summary,
        **({"parameters": [variable]} if name else {}),
        **({"requestBody": {"required": True, "content": json_content(body)}} if body is not None else {}),
        "responses": answers(schema, example, summary, ERRORS),
    }
